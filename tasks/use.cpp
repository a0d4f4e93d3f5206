#include "heed/tasks/use.h"

#include <algorithm>
#include <array>
#include <span>

#include "heed/base/error.h"

namespace heed {
namespace {

using SettingNames = std::span<const std::string_view>;

/// Which of the user's data a run learns from and measures itself on, and what is made where there is none.
constexpr std::array<std::string_view, 19> of_parts = {
    "data.file",      "data.valid",     "data.test",       "data.held_out",   "data.source",
    "data.target",    "data.split",     "data.stratified", "data.fold",       "data.labels",
    "data.overlap",   "data.numbers",   "data.reports",    "data.dialogues",  "data.listops",
    "data.questions", "data.sentences", "data.news",       "data.impressions"};
/// Read while a model is made and trained alone.
constexpr std::array<std::string_view, 5> of_training = {"data.patch", "data.news", "data.long_sources",
                                                         "evaluation.pairs", "evaluation.characters"};
/// How files are laid out, and what is measured on them.
constexpr std::array<std::string_view, 5> of_files = {"data.format", "data.header", "data.positive_label",
                                                      "data.memory_bytes", "evaluation"};
/// What a setting needs: another one with this value.
struct Need {
  std::string_view name, other, value;
};
constexpr std::array<Need, 11> needs = {{{"decoding.temperature", "decoding.method", "sample"},
                                         {"decoding.top_k", "decoding.method", "sample"},
                                         {"decoding.top_p", "decoding.method", "sample"},
                                         {"decoding.seed", "decoding.method", "sample"},
                                         {"decoding.beam", "decoding.method", "beam"},
                                         {"decoding.length_penalty", "decoding.method", "beam"},
                                         {"decoding.early_stop", "decoding.method", "beam"},
                                         {"prediction.best", "objective", "masked"},
                                         {"generation", "objective", "causal"},
                                         {"evaluation.stride", "objective", "causal"},
                                         {"evaluation.sentences", "objective", "causal"}}};

/// Whether a name is one of the list, or stands below one: "data.valid_source" and "data.valid.x" below
/// "data.valid".
bool stands_in(std::string_view name, SettingNames list) {
  return std::ranges::any_of(list, [&](std::string_view one) {
    return name == one || (name.starts_with(one) &&
                           (name[one.size()] == '.' || name[one.size()] == '_' || one == "data.fold"));
  });
}

bool is_column(std::string_view name) {
  return name.starts_with("data.") && (name.ends_with("_column") || name.ends_with("_columns"));
}

}  // namespace

std::string why_unread(const Settings& settings, const TaskKind& kind, std::string_view name, RunUse use) {
  if (use == RunUse::anything) return "";
  const auto has = [&](std::string_view other) {
    return std::ranges::any_of(settings.declared(), [&](const Setting& one) { return one.name == other; });
  };
  for (const Need& need : needs)
    if ((name == need.name || name.starts_with(concat_text(need.name, '.'))) && has(need.other) &&
        settings.get<std::string>(need.other) != need.value)
      return concat_text("it is for ", need.other, '=', need.value);
  for (const std::string group : {"decoding", "generation"})
    for (const char* const drawn : {".top_k", ".top_p", ".seed"})
      if (name == group + drawn && settings.get<double>(group + ".temperature") == 0)
        return "nothing is drawn at " + group + ".temperature=0";
  const bool writes = kind.stacks == Stacks::encoder_decoder;
  if (stands_in(name, of_training) || (writes && name == "data.max_tokens")) return "it is for training";
  if (name == "generation.samples" && use != RunUse::texts) return "it is for writing texts";
  if (use == RunUse::lines || use == RunUse::texts)
    return stands_in(name, of_parts) || stands_in(name, of_files) || is_column(name)
               ? "it is for reading data"
               : "";
  const bool shows_more = name == "decoding.n_best" && settings.get<std::string>("decoding.method") == "beam";
  if (name == "prediction.best" || shows_more) return "it is for answering lines";
  const bool is_of_rule = name == "evaluation.sentences" || name.starts_with("generation.");
  if (use == RunUse::part) {
    const bool is_of_layout = name == "data.format" || name == "data.header" || is_column(name);
    if (kind.names_data(settings) ? is_of_rule : is_of_layout)
      return is_of_rule ? "it is for text made by rule" : "the run's own data is made by rule";
    return "";
  }
  if (stands_in(name, of_parts) || is_of_rule) return "it is for the run's own data, and files are read";
  if (use == RunUse::scores && (name.starts_with("evaluation.") ||
                                (name.starts_with("decoding.") && name != "decoding.max_source_tokens")))
    return "given targets are scored, and no answer is looked for";
  return "";
}

}  // namespace heed
