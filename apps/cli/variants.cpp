// heed variants: lists the attention mechanisms with their capabilities, and advises which one to
// use. Libraries can add their own.

#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>

#include "heed/apps/cli/attention_advice.h"
#include "heed/apps/cli/program.h"
#include "heed/base/error.h"
#include "heed/models/cases/attention_capabilities.h"

namespace heed::programs {

std::shared_ptr<std::vector<std::string>> add_load_flag(CLI::App& command) {
  auto libraries = std::make_shared<std::vector<std::string>>();
  command
      .add_option("--load", *libraries,
                  "Shared library that registers attentions (register_attention) when it is loaded")
      ->type_name("FILE");
  return libraries;
}

namespace {

std::string opened_library;

/// Ends the program with a message when a global object of a library throws: such an exception
/// cannot leave dlopen().
[[noreturn]] void end_with_thrown() {
  std::string what = "an exception";
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {  // anything else has no message
  }
  try {
    throw SettingsError(concat_text("--load ", opened_library, ": it threw while it was loaded: ", what));
  } catch (const SettingsError&) {
    std::_Exit(report_exception("heed"));
  }
}

}  // namespace

std::vector<std::string> load_attentions(const std::vector<std::string>& libraries) {
  std::vector<std::string> names;
  for (const std::string& library : libraries) {
    const std::size_t before = attention_variants().size();
    opened_library = library;
    const std::terminate_handler handler = std::set_terminate(end_with_thrown);
    // Absolute, since dlopen looks for a bare name in the system's folders only.
    const void* const opened = dlopen(std::filesystem::absolute(library).c_str(), RTLD_NOW | RTLD_GLOBAL);
    std::set_terminate(handler);
    if (!opened) throw SettingsError(concat_text("--load: ", dlerror()));
    const auto added = attention_variants().subspan(before);
    if (added.empty())
      throw SettingsError(concat_text("--load ", library,
                                      ": it registers no attention; call "
                                      "heed::register_attention() in the initial value of a global"));
    for (const AttentionVariant& variant : added) names.emplace_back(variant.name);
  }
  return names;
}

namespace {

/// Prints the table, with notes on each mechanism below its line.
void print_with_notes(const std::string& table) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::cout << line << '\n';
    if (const AttentionNotes* const notes = attention_notes(line.substr(0, line.find(' '))))
      std::cout << "    " << notes->what << "\n    " << notes->when << '\n';
  }
}

struct VariantsOptions {
  bool markdown = false, advise = false;
  std::shared_ptr<std::vector<std::string>> libraries;
  std::int64_t length = AdviceQuestion().length;
  bool causal = false, cross = false;
  std::string task;
};

/// Lists the variants, and checks loaded attentions against their declared capabilities.
int list_variants(const VariantsOptions& options) {
  const std::vector<std::string> loaded = load_attentions(*options.libraries);
  const std::string table = capability_table(try_all_capabilities(), options.markdown);
  if (options.markdown)
    std::cout << table;
  else
    print_with_notes(table);
  int status = exit_success;
  for (const std::string& name : loaded) try {
      heed::check_attention(name);  // not the one that measures
    } catch (const Error& error) {
      std::cout << error.what() << '\n';
      status = exit_failure;
    }
  flush_output();
  return status;
}

int advise_variants(const VariantsOptions& options) {
  if (options.causal && options.cross) throw SettingsError("cross-attention cannot be causal: give one");
  try {
    std::cout << advice_text({options.length, options.causal, options.cross, options.task});
  } catch (const Error& error) {
    throw SettingsError(error.what());
  }
  flush_output();
  return exit_success;
}

}  // namespace

std::function<int()> add_variants_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "variants",
      "Lists the attention variants with descriptions and tested capabilities, or advises which one to use");
  auto options = std::make_shared<VariantsOptions>();
  command->add_flag("--markdown", options->markdown, "Prints the table as in docs/reference/attention.md");
  options->libraries = add_load_flag(*command);
  CLI::Option* const advise = command->add_flag(
      "--advise", options->advise, "Lists the variants that can serve, best first by measured accuracy");
  command
      ->add_option("--length", options->length, "With --advise: length of a text in tokens (default: 1024)")
      ->type_name("N")
      ->needs(advise);
  command
      ->add_flag("--causal", options->causal,
                 "With --advise: causal attention, in which a token sees only earlier ones")
      ->needs(advise);
  command
      ->add_flag("--cross", options->cross,
                 "With --advise: cross-attention, with keys and values from a memory")
      ->needs(advise);
  command
      ->add_option("--task", options->task,
                   "With --advise: rank by the accuracy on this task, such as listops, text or pixels")
      ->type_name("NAME")
      ->needs(advise);
  command->footer(
      "causal         strictly: later tokens do not change earlier outputs; values: later values have no\n   "
      "            influence, but later tokens may determine which earlier ones are seen; -: no causal "
      "form\ncross          keys and values from a memory; not by step: for whole sequences, not for "
      "decoding\npadding        masked tokens change nothing, and their outputs are 0\nany length     no "
      "parameter depends on the length: max_length is not needed\nrotary, alibi, relative: the "
      "model.positions that it supports\ndeterministic  no random numbers in inference: the same input gives "
      "the same output\n\nAttentions of a library (--load) are checked against their declared capabilities; "
      "exit status 1 if one\nfails.\n\n--advise prints the growth of the time with the length N; GFLOP of a "
      "layer of width 512 at --length,\nforward and backward; and the accuracy in percent on each task after "
      "the same processor time, for\nbidirectional self-attention (it says little about cross-attention). "
      "The best comes first; beyond 1,024\npositions, variants that grow more slowly than N^2 come first. "
      "See\ndocs/explanation/which_attention.md.\n");
  return [options] { return options->advise ? advise_variants(*options) : list_variants(*options); };
}

}  // namespace heed::programs
