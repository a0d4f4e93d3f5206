#include "heed/apps/tasks/learner.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "heed/apps/tasks/recipe.h"
#include "heed/base/names.h"
#include "heed/data/token_kind.h"

namespace heed {

std::vector<std::string> Learner::take_remarks() {
  const std::lock_guard lock(remarks_mutex_);
  return std::exchange(remarks_, {});
}

void Learner::remark(std::string text) {
  const std::lock_guard lock(remarks_mutex_);
  remarks_.push_back(std::move(text));
}

void Learner::keep_choices(const Settings& before) {
  const std::span<const Setting> all = settings_.declared();
  const auto kind = std::ranges::find(all, "tokenizer.kind", &Setting::name);
  if (kind == all.end() || settings_.get<std::string>(kind->name) != "auto") return;
  settings_.set_json(kind->name, before.json(kind->name), "config.json");
  const std::string size = "tokenizer.vocabulary";
  if (settings_.json(size) == settings_.setting(size).initial)
    settings_.set_json(size, before.json(size), "config.json");
}

void Learner::choose_token_kind(const TextSource& texts) {
  const auto tokenizer = settings_.read<VocabularySettings>("tokenizer");
  const auto training = settings_.read<TrainingSettings>("training");
  if (tokenizer.kind != "auto" || !tokenizer.file.empty() || !training.from.empty()) return;
  const TokenKind chosen = training.embeddings.empty()
                               ? token_kind_for(texts)
                               : TokenKind{"words", "training.embeddings are vectors of words"};
  settings_.set("tokenizer.kind", chosen.name, "the training texts");
  const bool is_given =
      settings_.json("tokenizer.vocabulary") != settings_.setting("tokenizer.vocabulary").initial;
  if (chosen.vocabulary > 0 && !is_given)
    settings_.set("tokenizer.vocabulary", std::to_string(chosen.vocabulary), "the training texts");
  remark(concat_text("tokens are ", chosen.name == "bpe" ? "parts of words (bpe)" : chosen.name, ", since ",
                     chosen.why, " (tokenizer.kind=auto)"));
}

void Learner::remark_on_reading(const ReadReport& report) {
  if (report.replaced > 0)
    remark(concat_text(report.replaced, " bytes of the data were no characters and were replaced"));
  if (report.blank > 0) remark(concat_text(report.blank, " blank lines of the data were left out"));
  for (const std::string& text : report.remarks) remark(text);
}

void Learner::read_table(const std::string& file, const TakeText& take) {
  ReadReport report;
  read_rows(file, take, report);
  remark_on_reading(report);
}

void Learner::read_rows(const std::string& file, const TakeText& /*take*/, ReadReport& /*report*/) const {
  throw SettingsError(concat_text(file, ": a ", kind_.name, " run answers lines, not rows of a table"));
}

std::vector<Metric> Learner::metrics(std::span<const double> values) const {
  check(values.size() == kind_.metrics.size(), kind_.name, " measures ", kind_.metrics.size(),
        " metrics, not ", values.size());
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < values.size(); ++i)
    metrics.push_back({std::string(kind_.metrics[i].name), values[i], kind_.metrics[i].larger_is_better});
  return metrics;
}

Measurement Learner::measurement(std::span<const double> values, std::size_t count, bool round) const {
  nlohmann::ordered_json json;
  Measurement measurement;
  measurement.metrics = metrics(values);
  measurement.count = static_cast<std::int64_t>(count);
  for (const Metric& metric : measurement.metrics)
    json[metric.name] = round ? rounded(metric.value) : metric.value;
  json[unit()] = count;
  measurement.json = json.dump();
  return measurement;
}

Measurement Learner::measure_examples(const std::string& file) {
  check(!kind_.examples.empty(), kind_.name, " measures on files, not on examples in memory");
  Settings given = settings_;
  use_layout_of(kind_.examples.front(), settings_);
  try {
    Measurement measurement = measure_files({&file, 1});
    settings_ = std::move(given);
    return measurement;
  } catch (...) {
    settings_ = std::move(given);
    throw;
  }
}

Tensor Learner::outputs_of_lines(std::span<const std::string> /*lines*/, Context& /*context*/) {
  fail("the model of a ", kind_.name,
       " run has no outputs for lines alone: predict() answers them, and with targets there are the "
       "log-probabilities of these");
}

Tensor Learner::log_probabilities_of(std::span<const std::string> /*lines*/,
                                     std::span<const std::string> /*targets*/, Context& /*context*/) {
  fail("a ", kind_.name, " run writes no text for a text, whose probability could be asked for");
}

}  // namespace heed

// The list of tasks, a line each: tasks/<name>.cpp defines <name>_task(). What trains, measures, opens or
// compares a task finds it here by its name.
// clang-format off
#define HEED_TASKS(task) \
  task(translate)        \
  task(summarize)        \
  task(converse)         \
  task(classify)         \
  task(match)            \
  task(embed_text)       \
  task(recommend)        \
  task(language_model)
// clang-format on

namespace heed {

#define HEED_DECLARE(name) const TaskKind& name##_task();
HEED_TASKS(HEED_DECLARE)
#undef HEED_DECLARE

std::span<const TaskKind* const> task_kinds() {
#define HEED_KIND(name) &name##_task(),
  static const std::vector<const TaskKind*> kinds{HEED_TASKS(HEED_KIND)};
#undef HEED_KIND
  return kinds;
}

const TaskKind& task_kind(std::string_view name) {
  std::vector<std::string> names;
  for (const TaskKind* kind : task_kinds()) {
    if (kind->name == name) return *kind;
    names.emplace_back(kind->name);
  }
  fail("there is no task '", name, "'", suggest_name(std::string(name), names));
}

}  // namespace heed
