// heed variants: lists the attention mechanisms with their capabilities. Libraries can add their own.

#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "heed/apps/cli/program.h"
#include "heed/base/error.h"
#include "heed/models/cases/adapters.h"
#include "heed/models/cases/attention_capabilities.h"

namespace heed {
extern const std::string_view attention_advice_json;  // attention_advice.json (cmake/page.cmake)
}

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

using Json = nlohmann::ordered_json;

/// Descriptions of heed's own mechanisms, when to use them, and measured results. The tables in docs/ are
/// made from the same file.
const Json& attention_notes() {
  static const Json notes = Json::parse(attention_advice_json);
  return notes;
}

/// Prints the table, with notes on each mechanism below its line.
void print_with_notes(const std::string& table) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::cout << line << '\n';
    for (const Json& notes : attention_notes().at("mechanisms"))
      if (notes.at("name") == line.substr(0, line.find(' ')))
        std::cout << "    " << notes.at("what").get<std::string>() << "\n    "
                  << notes.at("when").get<std::string>() << '\n';
  }
}

struct VariantsOptions {
  bool markdown = false;
  std::shared_ptr<std::vector<std::string>> libraries;
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
      check_attention(name);
    } catch (const Error& error) {
      std::cout << error.what() << '\n';
      status = exit_failure;
    }
  flush_output();
  return status;
}

}  // namespace

std::function<int()> add_variants_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "variants", "Lists the attention variants with descriptions and tested capabilities");
  auto options = std::make_shared<VariantsOptions>();
  command->add_flag("--markdown", options->markdown, "Prints the table as in docs/reference/attention.md");
  options->libraries = add_load_flag(*command);
  command->footer(
      "causal         strictly: later tokens do not change earlier outputs; values: later values have no\n   "
      "            influence, but later tokens may determine which earlier ones are seen; -: no causal "
      "form\ncross          keys and values from a memory; not by step: for whole sequences, not for "
      "decoding\npadding        masked tokens change nothing, and their outputs are 0\nany length     no "
      "parameter depends on the length: max_length is not needed\nrotary, alibi, relative: the "
      "model.positions that it supports\ndeterministic  no random numbers in inference: the same input gives "
      "the same output\n\nAttentions of a library (--load) are checked against their declared capabilities; "
      "exit status 1 if one\nfails.\n\nWhich to choose: docs/explanation/which_attention.md.\n");
  return [options] { return list_variants(*options); };
}

}  // namespace heed::programs
