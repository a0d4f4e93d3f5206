#include "heed/apps/tasks/learner.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "heed/base/names.h"

namespace heed {

std::vector<Metric> metrics_of(std::span<const MetricKind> kinds, std::span<const double> values) {
  check(values.size() == kinds.size(), "there are ", kinds.size(), " metrics, and ", values.size(),
        " values");
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < values.size(); ++i)
    metrics.push_back({std::string(kinds[i].name), values[i], kinds[i].larger_is_better});
  return metrics;
}

std::vector<std::string> Learner::take_remarks() {
  const std::lock_guard lock(remarks_mutex_);
  return std::exchange(remarks_, {});
}

void Learner::remark(std::string text) {
  if (text.empty()) return;
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

void Learner::remark_all(std::vector<std::string> texts) {
  for (std::string& text : texts) remark(std::move(text));
}

void Learner::check_settings() {
  kind_.names_data(settings_);
  check_model([&] { return make_model(); });
}

void Learner::learn_vocabulary() {
  const NamedFiles learned = learned_files();
  open_files([&](std::string_view name) { return learned.at(std::string(name)); });
}

void Learner::open_files(const ReadFile& read) {
  files_.clear();
  open([&](std::string_view name) { return files_[std::string(name)] = read(name); });
}

void Learner::build(Device device) {
  check_model([&] { return make_model(); });
  model_ = make_model();
  model_->to(DType::f32, device);
}

void Learner::remark_on_reading(const ReadReport& report) {
  if (report.replaced > 0)
    remark(concat_text(report.replaced, " bytes of the data were no characters and were replaced"));
  if (report.blank > 0) remark(concat_text(report.blank, " blank lines of the data were left out"));
  remark_all(report.remarks);
}

void Learner::read_table(const std::string& file, const TakeText& take) {
  ReadReport report;
  read_rows(file, take, report);
  remark_on_reading(report);
}

void Learner::read_rows(const std::string& file, const TakeText& /*take*/, ReadReport& /*report*/) const {
  throw SettingsError(concat_text(file, ": a ", kind_.name, " run answers lines, not rows of a table"));
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
  Settings layout = settings_;
  use_layout_of(kind_.examples.front(), layout);
  return measured({"", {&file, 1}, layout});
}

std::vector<std::string> Learner::example_lines(std::size_t count) const {
  std::vector<std::string> lines;
  for (ExampleLine& one : examples(count, false)) lines.push_back(std::move(one.text));
  return lines;
}

std::vector<Written> Learner::written_examples(std::size_t count) {
  std::vector<ExampleLine> asked = examples(count, true);
  std::vector<std::string> lines;
  for (const ExampleLine& one : asked) lines.push_back(one.text);
  const std::vector<Prediction> answers = predict(lines, {});
  std::vector<Written> written;
  for (std::size_t i = 0; i < asked.size(); ++i)
    written.push_back({std::move(lines[i]), std::move(asked[i].expected), answers[i].text});
  return written;
}

void Learner::plan_batches(const Lengths& lengths, const BatchOptions& options) {
  const BatchPlan plan(lengths[0], lengths[1], options);
  remark(plan.left_out_message());
  batches_.plan(plan);
}

NamedFiles Learner::learned_tokenizer(const TextSource& texts) {
  remark(choose_token_kind(settings_, texts));
  return {{"tokenizer.json", learn_tokenizer(settings_, texts).to_json()}};
}

TransformerConfig Learner::encoder_config(std::int64_t vocabulary, std::int64_t classes) const {
  TransformerConfig config = model_config(trained());
  config.source_vocabulary = vocabulary;
  config.classes = classes;
  return config;
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
