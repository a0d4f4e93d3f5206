// heed variants: the attention variants and what they can do.

#include <CLI/CLI.hpp>
#include <iostream>

#include "commands.h"
#include "heed/examples/common/program.h"
#include "heed/tests/cases/attention_capabilities.h"

namespace heed::programs {
namespace {

int list_variants(bool markdown) {
  std::cout << capability_table(try_all_capabilities(), markdown);
  flush_output();
  return exit_success;
}

}  // namespace

std::function<int()> add_variants_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("variants", "Lists the attention variants and what each was seen to do, just now");
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "The table as it stands in docs/attention.md");
  command->footer(
      "causal         strictly: later tokens change nothing before them; values: their values do not enter,\n"
      "               but they may decide which of the earlier ones are seen; -: there is no causal form\n"
      "cross          keys and values from a memory; not by step: for whole sequences, not for decoding\n"
      "padding        masked tokens change nothing, and their outputs are 0\n"
      "any length     no parameter depends on the length, so that no max_length is needed\n"
      "rotary, alibi, relative: which of these model.positions it can serve with\n"
      "deterministic  one input has one output: no random numbers in inference\n");
  return [markdown] { return list_variants(*markdown); };
}

}  // namespace heed::programs
