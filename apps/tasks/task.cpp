#include "heed/apps/tasks/task.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "heed/base/names.h"
#include "heed/base/unicode.h"

namespace heed {

using Json = nlohmann::ordered_json;

std::vector<Metric> metrics_of(std::span<const MetricKind> kinds, std::span<const double> values) {
  check(values.size() == kinds.size(), "there are ", kinds.size(), " metrics, and ", values.size(),
        " values");
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < values.size(); ++i)
    metrics.push_back({std::string(kinds[i].name), values[i], kinds[i].larger_is_better});
  return metrics;
}

std::string Task::advice_on_length() const {
  const std::int64_t now = settings_.read<TextLimits>("data").max_tokens;
  const TransformerConfig model = model_config(trained());
  const bool is_limited = model.positions == "learned" ||
                          !std::ranges::all_of(model.encoder_attention, [](const AttentionChoice& choice) {
                            return attention_capabilities(choice.name, choice.options).any_length;
                          });
  std::int64_t most = 2 * now;
  if (is_limited && trained_) most = std::min(most, trained_->read<TextLimits>("data").max_tokens);
  if (is_limited && !trained_ && is_fine_tuned()) most = now;  // the limit of the run that it starts from
  if (most <= now) return "; the model reads no more";
  return concat_text("; data.max_tokens=", most, " reads more");
}

std::vector<std::string> Task::take_remarks() {
  const std::string cut = truncation_message_ ? truncation_message_() : "";
  if (!cut.empty()) remark(cut + advice_on_length());
  const std::lock_guard lock(remarks_mutex_);
  return std::exchange(remarks_, {});
}

void Task::remark(std::string text) {
  if (text.empty()) return;
  const std::lock_guard lock(remarks_mutex_);
  remarks_.push_back(std::move(text));
}

void Task::restore_choices(const Settings& before) {
  const std::string kind = "tokenizer.kind", size = "tokenizer.vocabulary";
  if (!settings_.has(kind) || settings_.get<std::string>(kind) != "auto") return;
  settings_.set_json(kind, before.json(kind), "config.json");
  if (settings_.json(size) == settings_.setting(size).initial)
    settings_.set_json(size, before.json(size), "config.json");
}

void Task::remark_all(std::vector<std::string> texts) {
  for (std::string& text : texts) remark(std::move(text));
}

void Task::check_settings() {
  trains_ = true;
  entry_.names_data(settings_);
  if (entry_.check_training) entry_.check_training(settings_);
  check_build();
}

void Task::check_build() {
  check_model([&] { return make_model(); });
}

void Task::learn_vocabulary() {
  const NamedFiles learned = learned_files();
  open_files([&](std::string_view name) { return learned.at(std::string(name)); });
}

void Task::open_files(const ReadFile& read) {
  files_.clear();
  open([&](std::string_view name) { return files_[std::string(name)] = read(name); });
}

void Task::build(Device device) {
  check_build();
  model_ = make_model();
  model_->to(DType::f32, device);
}

void Task::remark_on_reading(const ReadReport& report) {
  if (report.replaced > 0)
    remark(concat_text(report.replaced, " invalid bytes in the data were replaced by U+FFFD"));
  if (report.blank > 0) remark(concat_text(report.blank, " blank lines of the data were left out"));
  if (report.missing > 0)
    remark(concat_text(report.missing, " rows without a label or a text were left out (data.missing)"));
  if (report.bad_rows > 0)
    remark(concat_text(report.bad_rows,
                       " rows that cannot be read were left out; the first: ", report.first_bad_row));
  remark_all(report.remarks);
}

void Task::read_table(const std::string& file, const TakeText& take) {
  if (!entry_.read_rows)
    throw SettingsError(
        concat_text(file, ": a ", entry_.name, " run predicts from lines, not from rows of a table"));
  ReadReport report;
  entry_.read_rows(settings_, file, take, report);
  remark_on_reading(report);
}

Evaluation Task::evaluation(std::vector<Metric> metrics, std::size_t count, std::size_t all) const {
  Evaluation found{std::move(metrics), training().keep_best_by};
  if (count < all)
    found.sample = static_cast<std::int64_t>(count), found.all = static_cast<std::int64_t>(all);
  return found;
}

Measurement Task::measurement(std::span<const double> values, std::size_t count, bool round) const {
  Json json;
  Measurement measurement;
  measurement.metrics = metrics(values);
  measurement.count = static_cast<std::int64_t>(count);
  for (const Metric& metric : measurement.metrics)
    json[metric.name] = round ? rounded(metric.value) : metric.value;
  json[unit()] = count;
  measurement.json = json.dump();
  return measurement;
}

void Task::plan_batches(const Lengths& lengths, BatchOptions options) {
  const std::string path = "training.batch_tokens";
  std::int64_t longest = 0;  // of the examples that data.max_tokens lets in
  for (std::size_t i = 0; i < lengths[0].size(); ++i) {
    const std::int64_t source = lengths[0][i], target = lengths[1].empty() ? 0 : lengths[1][i];
    if (options.max_length == 0 || std::max(source, target) <= options.max_length)
      longest = std::max(longest, source + target);
  }
  if (options.max_tokens > 0 && longest > options.max_tokens && !settings_.setting(path).is_given) {
    options.max_tokens = longest;
    settings_.set(path, std::to_string(longest), "the data");
    remark(concat_text(path, " = ", longest, ", for the longest example"));
  }
  const BatchPlan plan(lengths[0], lengths[1], options);
  remark(plan.left_out_message());
  batches_.plan(plan);
  if (const double share = plan.padding_share(batches_.epoch(0)); share >= 0.05)
    remark(concat_text(std::lround(100 * share), " % of the tokens in the batches are padding"));
}

void Task::limit_epochs(const EpochLimit& limit) {
  const auto options = settings_.read<TrainerOptions>("training");
  const std::int64_t usual = options.steps, accumulation = options.accumulation;
  const std::int64_t batches_of_passes = checked_product("passes", limit.passes, batches(0));
  const std::int64_t most = std::max(batches_of_passes / accumulation, limit.least_steps);
  const std::int64_t one_pass = (batches(0) + accumulation - 1) / accumulation;
  const std::int64_t fit = most < usual ? most : std::max(usual, std::min(one_pass, limit.most_steps));
  if (settings_.setting("training.steps").is_given || options.epochs > 0 || fit == usual) return;
  settings_.set("training.steps", std::to_string(fit), "the data");
  for (const auto& [name, value] :
       {std::pair("training.schedule.warmup_steps", options.schedule.warmup_steps),
        {"training.evaluate_every", options.evaluate_every}})
    if (!settings_.setting(name).is_given)
      settings_.set(name, std::to_string(value * fit / usual), "the data");
  remark(fit < usual ? concat_text("training.steps = ", fit, ": ", limit.passes,
                                   " passes over this little data are enough, and ", usual,
                                   " steps the default for more")
                     : concat_text("training.steps = ", fit,
                                   ": this much data takes more than the default of ", usual));
}

NamedFiles Task::learned_tokenizer(const TextSource& texts) {
  remark(choose_token_kind(settings_, texts));
  return {{"tokenizer.json", learn_tokenizer(settings_, texts).to_json()}};
}

std::string spans_to_json(const Prediction& answer) {
  Json json;
  for (const auto& [name, spans] : {std::pair("spans", &answer.spans), {"words", &answer.words}}) {
    json[name] = Json::array();
    for (const Prediction::Span& one : *spans)
      json[name].push_back({{"text", one.text},
                            {"label", one.label},
                            {"start", one.begin},
                            {"end", one.end},
                            {"probability", one.probability}});
  }
  return json.dump();
}

TransformerConfig Task::encoder_config(std::int64_t vocabulary, std::int64_t classes) const {
  TransformerConfig config = model_config(trained());
  config.source_vocabulary = vocabulary;
  config.classes = classes;
  return config;
}

}  // namespace heed

// The list of tasks. tasks/<name>.cpp defines <name>_task(). Training, evaluation and comparisons
// look up tasks here by name.
// clang-format off
#define HEED_TASKS(task) \
  task(translate)        \
  task(summarize)        \
  task(converse)         \
  task(classify)         \
  task(match)            \
  task(rate)             \
  task(tag)              \
  task(embed_text)       \
  task(recommend)        \
  task(language_model)
// clang-format on

namespace heed {

#define HEED_DECLARE(name) const TaskEntry& name##_task();
HEED_TASKS(HEED_DECLARE)
#undef HEED_DECLARE

std::span<const TaskEntry* const> task_table() {
#define HEED_KIND(name) &name##_task(),
  static const std::vector<const TaskEntry*> kinds{HEED_TASKS(HEED_KIND)};
#undef HEED_KIND
  return kinds;
}

const TaskEntry& task_entry(std::string_view name) {
  std::vector<std::string> names;
  for (const TaskEntry* entry : task_table()) {
    if (entry->name == name) return *entry;
    names.emplace_back(entry->name);
  }
  fail("there is no task '", name, "'", suggest_name(std::string(name), names));
}

}  // namespace heed
