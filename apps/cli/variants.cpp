// heed variants: lists the attention mechanisms with their capabilities, and advises which one to
// use. Libraries can add their own.

#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "heed/apps/cli/program.h"
#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
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
  bool markdown = false, advise = false, causal = false, cross = false;
  std::shared_ptr<std::vector<std::string>> libraries;
  std::int64_t length = 1024;
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
      check_attention(name);
    } catch (const Error& error) {
      std::cout << error.what() << '\n';
      status = exit_failure;
    }
  flush_output();
  return status;
}

/// Returns the GFLOP at a length: a N + b N^2 through the figures at 1,024 and 8,192, with a, b >= 0.
double gflop_at(const Json& measured, double length) {
  const double shorter = measured.at(0).get<double>() / 1024, longer = measured.at(1).get<double>() / 8192;
  const double b = std::clamp((longer - shorter) / (8192 - 1024), 0.0, longer / 8192);
  return (longer - b * 8192) * length + b * length * length;
}

/// A mechanism that can serve, with its measured accuracy by task and in the mean.
struct Advice {
  const Json* notes;
  std::vector<double> accuracy;  ///< percent; empty: not yet measured
  double rank = -1;              ///< the accuracy that orders the mechanisms; -1: not yet measured
  bool is_slow = false;          ///< for texts of this length
};

/// Prints the mechanisms that can serve, by decreasing accuracy; unmeasured ones come last. Beyond 1,024
/// positions, mechanisms whose time grows more slowly than N^2 come first.
int advise_variants(const VariantsOptions& options) {
  if (options.causal && options.cross) throw SettingsError("cross-attention cannot be causal: give one");
  if (options.length < 1)
    throw SettingsError(concat_text("--length is ", options.length, "; it must be at least 1"));
  std::vector<std::string> columns;
  for (const Json& task : attention_notes().at("tasks")) columns.push_back(task.at("name"));
  if (!options.task.empty() && std::ranges::count(columns, options.task) == 0)
    throw SettingsError(
        concat_text("there is no task '", options.task, "' among the measured tasks: ", listed(columns)));
  columns.emplace_back("mean");
  const auto ranked = std::ranges::find(columns, options.task.empty() ? "mean" : options.task);

  std::vector<Advice> able;
  for (const Json& notes : attention_notes().at("mechanisms")) {
    const Capabilities& can = attention_variant(notes.at("name").get<std::string>()).capabilities;
    if ((options.causal && !can.causal) || (options.cross && !can.cross)) continue;
    Advice& advice = able.emplace_back(Advice{&notes, {}});
    advice.is_slow = options.length > 1024 && notes.at("growth") == "N^2";
    double sum = 0;
    for (const Json& result : notes.at("arena")) {
      advice.accuracy.push_back(result.at(0));
      sum += advice.accuracy.back();
    }
    if (advice.accuracy.empty()) continue;
    advice.accuracy.push_back(sum / static_cast<double>(advice.accuracy.size()));
    advice.rank = advice.accuracy[static_cast<std::size_t>(ranked - columns.begin())];
  }
  std::ranges::stable_sort(able, {}, [](const Advice& one) { return std::pair(one.is_slow, -one.rank); });

  std::cout << formatted("%-32s%-9s%-9s", "mechanism", "time", "GFLOP");
  for (const std::string& column : columns)
    std::cout << formatted(column == "mean" ? "%s" : "%-11s", column.c_str());
  std::cout << '\n';
  for (const Advice& advice : able) {
    const auto text = [&](const char* name) { return advice.notes->at(name).get<std::string>(); };
    const double gflop = gflop_at(advice.notes->at("gflop"), static_cast<double>(options.length));
    std::cout << formatted("%-32s%-9s", text("name").c_str(), text("growth").c_str())
              << formatted("%-9.*f",
                           gflop >= 100  ? 0
                           : gflop >= 10 ? 1
                                         : 2,
                           gflop);
    for (const double percent : advice.accuracy)
      std::cout << formatted(&percent == &advice.accuracy.back() ? "%.1f" : "%-11.1f", percent);
    std::cout << (advice.accuracy.empty() ? "not yet measured" : "") << "\n    " << text("when") << '\n';
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
  const auto add_question = [&](CLI::Option* question) { return question->needs(advise); };
  add_question(command->add_option("--length", options->length,
                                   "With --advise: length of a text in tokens (default: 1024)"))
      ->type_name("N");
  add_question(command->add_flag("--causal", options->causal,
                                 "With --advise: causal attention, in which a token sees only earlier ones"));
  add_question(command->add_flag("--cross", options->cross,
                                 "With --advise: cross-attention, with keys and values from a memory"));
  add_question(command->add_option(
                   "--task", options->task,
                   "With --advise: rank by the accuracy on this task, such as listops, text or pixels"))
      ->type_name("NAME");
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
