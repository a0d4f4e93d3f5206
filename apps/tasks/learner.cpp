#include "heed/apps/tasks/learner.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "heed/base/names.h"
#include "heed/base/unicode.h"

namespace heed {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::vector<Metric> metrics_of(std::span<const MetricKind> kinds, std::span<const double> values) {
  check(values.size() == kinds.size(), "there are ", kinds.size(), " metrics, and ", values.size(),
        " values");
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < values.size(); ++i)
    metrics.push_back({std::string(kinds[i].name), values[i], kinds[i].larger_is_better});
  return metrics;
}

std::string Learner::advice_on_length() const {
  const auto now = settings_.get<std::int64_t>("data.max_tokens");
  const TransformerConfig model = model_config(trained());
  const bool is_limited = model.positions == "learned" ||
                          !std::ranges::all_of(model.encoder_attention, [](const AttentionChoice& choice) {
                            return attention_capabilities(choice.name, choice.options).any_length;
                          });
  std::int64_t most = 2 * now;
  if (is_limited && trained_) most = std::min(most, trained_->get<std::int64_t>("data.max_tokens"));
  if (is_limited && !trained_ && is_fine_tuned()) most = now;  // the limit of the run that it starts from
  if (most <= now) return "; the model reads no more";
  return concat_text("; data.max_tokens=", most, " reads more");
}

std::vector<std::string> Learner::take_remarks() {
  if (const std::string cut = take_truncation_message(); !cut.empty()) remark(cut + advice_on_length());
  const std::lock_guard lock(remarks_mutex_);
  return std::exchange(remarks_, {});
}

void Learner::remark(std::string text) {
  if (text.empty()) return;
  const std::lock_guard lock(remarks_mutex_);
  remarks_.push_back(std::move(text));
}

void Learner::restore_choices(const Settings& before) {
  const std::string kind = "tokenizer.kind", size = "tokenizer.vocabulary";
  if (!settings_.has(kind) || settings_.get<std::string>(kind) != "auto") return;
  settings_.set_json(kind, before.json(kind), "config.json");
  if (settings_.json(size) == settings_.setting(size).initial)
    settings_.set_json(size, before.json(size), "config.json");
}

void Learner::remark_all(std::vector<std::string> texts) {
  for (std::string& text : texts) remark(std::move(text));
}

void Learner::check_settings() {
  trains_ = true;
  kind_.names_data(settings_);
  check_training();
  check_build();
}

void Learner::check_build() {
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
  check_build();
  model_ = make_model();
  model_->to(DType::f32, device);
}

void Learner::remark_on_reading(const ReadReport& report) {
  if (report.replaced > 0)
    remark(concat_text(report.replaced, " invalid bytes in the data were replaced by U+FFFD"));
  if (report.blank > 0) remark(concat_text(report.blank, " blank lines of the data were left out"));
  if (report.missing > 0)
    remark(concat_text(report.missing, " rows without a label or a text were left out (data.missing)"));
  remark_all(report.remarks);
}

void Learner::read_table(const std::string& file, const TakeText& take) {
  ReadReport report;
  read_rows(file, take, report);
  remark_on_reading(report);
}

void Learner::read_rows(const std::string& file, const TakeText& /*take*/, ReadReport& /*report*/) const {
  throw SettingsError(
      concat_text(file, ": a ", kind_.name, " run predicts from lines, not from rows of a table"));
}

Measurement Learner::measurement(std::span<const double> values, std::size_t count, bool round) const {
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

namespace {

/// Returns the number of required columns.
std::size_t required_columns(const ExampleTable& table) {
  return static_cast<std::size_t>(std::ranges::count(table.columns, false, &ExampleColumn::optional));
}

}  // namespace

Measurement Learner::measure_examples(const std::string& file) {
  check(!kind_.examples.empty(), kind_.name, " evaluates on files, not on examples in memory");
  Settings layout = settings_;
  const ExampleTable& table = kind_.examples.front();
  apply_table_layout(table, required_columns(table), layout);
  return measured({"", {&file, 1}, layout});
}

std::vector<std::string> Learner::example_lines(std::size_t count) const {
  std::vector<std::string> lines;
  for (ExampleLine& one : examples(count, false)) lines.push_back(std::move(one.text));
  return lines;
}

std::vector<GeneratedExample> Learner::generated_examples(std::size_t count) {
  std::vector<ExampleLine> asked = examples(count, true);
  std::vector<std::string> lines;
  for (const ExampleLine& one : asked) lines.push_back(one.text);
  const std::vector<Prediction> answers = predict(lines, {});
  std::vector<GeneratedExample> written;
  for (std::size_t i = 0; i < asked.size(); ++i)
    written.push_back({std::move(lines[i]), std::move(asked[i].expected), answers[i].text});
  return written;
}

void Learner::plan_batches(const Lengths& lengths, BatchOptions options) {
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

void Learner::limit_epochs(const EpochLimit& limit) {
  const std::string steps = "training.steps";
  const auto usual = settings_.get<std::int64_t>(steps);
  const auto accumulation = settings_.get<std::int64_t>("training.accumulation");
  const std::int64_t batches_of_passes = checked_product("passes", limit.passes, batches(0));
  const std::int64_t most = std::max(batches_of_passes / accumulation, limit.least_steps);
  const std::int64_t one_pass = (batches(0) + accumulation - 1) / accumulation;
  const std::int64_t fit = most < usual ? most : std::max(usual, std::min(one_pass, limit.most_steps));
  if (settings_.setting(steps).is_given || settings_.get<std::int64_t>("training.epochs") > 0 || fit == usual)
    return;
  settings_.set(steps, std::to_string(fit), "the data");
  for (const std::string name : {"training.schedule.warmup_steps", "training.evaluate_every"})
    if (!settings_.setting(name).is_given)
      settings_.set(name, std::to_string(settings_.get<std::int64_t>(name) * fit / usual), "the data");
  remark(fit < usual ? concat_text("training.steps = ", fit, ": ", limit.passes,
                                   " passes over this little data are enough, and ", usual,
                                   " steps the default for more")
                     : concat_text("training.steps = ", fit,
                                   ": this much data takes more than the default of ", usual));
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

Tensor Learner::line_outputs(std::span<const std::string> /*lines*/, Context& /*context*/) {
  fail("the model of a ", kind_.name,
       " run has no outputs for lines alone: use predict(), or log_probabilities() with targets");
}

std::vector<Prediction> Learner::generate(const std::string& /*prompt*/,
                                          const TextGenerationOptions& /*options*/) {
  fail("a ", kind_.name, " run generates no text; use predict()");
}

Tensor Learner::target_log_probabilities(std::span<const std::string> /*lines*/,
                                         std::span<const std::string> /*targets*/, Context& /*context*/) {
  fail("a ", kind_.name, " run has no targets whose probability could be computed");
}

// --- examples in memory

namespace {

/// Throws for a cell that is not text, or not a name if one is required.
void check_cell(const std::string& cell, const ExampleColumn& column, const auto& at) {
  if (const std::size_t byte = unicode::find_invalid(cell); byte != std::string::npos)
    fail(at(), " is not UTF-8 at byte ", byte + 1);
  if (const std::size_t nul = cell.find('\0'); nul != std::string::npos)
    fail(at(), " holds a NUL at byte ", nul + 1, "; examples are texts");
  if (!column.is_name) return;
  check(cell.find_first_of("\t\n\r") == std::string::npos, at(), " is \"", unicode::shortened(cell, 80),
        "\": a name has neither tabs nor line breaks");
}

/// Returns the content of the file with the rows.
std::string content_of(const TaskKind& kind, const ExampleTable& table, const Examples& examples) {
  const std::size_t given = examples.columns.size();
  std::vector<std::string> names;
  for (const ExampleColumn& column : table.columns)
    names.push_back(concat_text(column.name, column.optional ? " (may be left out)" : ""));
  check(given >= required_columns(table) && given <= table.columns.size(), kind.name, ": the examples of \"",
        examples.part, "\" have ", given, given == 1 ? " column" : " columns", ", but expected are ",
        listed(names));
  const std::size_t rows = examples.columns[0].size();
  for (std::size_t c = 1; c < given; ++c)
    check(examples.columns[c].size() == rows, kind.name, ": the columns of \"", examples.part,
          "\" have different lengths: ", rows, " of ", table.columns[0].name, " and ",
          examples.columns[c].size(), " of ", table.columns[c].name);
  check(rows > 0, kind.name, ": the examples of \"", examples.part, "\" are empty");
  std::string content;
  std::vector<std::string> row(given);
  for (std::size_t i = 0; i < rows; ++i) {
    Json object;
    for (std::size_t c = 0; c < given; ++c) {
      row[c] = examples.columns[c][i];
      check_cell(row[c], table.columns[c], [&] {
        return concat_text(kind.name, ": row ", i, " of \"", examples.part, "\": the ",
                           table.columns[c].name);
      });
      if (!table.line) object[std::string(table.columns[c].name)] = row[c];
    }
    content += table.line ? table.line(row, i + 1) : object.dump();
    content += '\n';
  }
  return content;
}

std::string part_setting(const std::string& part) {
  return part == "train" ? "data.file" : "data." + part;
}

}  // namespace

void rebase_data_paths(Settings& settings, const fs::path& from, const fs::path& to) {
  const std::string begin = from.string() + "/";
  for (const Setting& one : settings.declared()) {
    if (!one.name.starts_with("data.") || one.kind != Setting::Kind::text) continue;
    const auto value = settings.get<std::string>(one.name);
    if (value.starts_with(begin))
      settings.set(one.name, (to / value.substr(begin.size())).string(), "config.json");
  }
}

ExampleFiles::ExampleFiles(const TaskKind& kind, std::span<const Examples> examples) : kind_(kind) {
  check(!kind.examples.empty(), "the task ", kind.name, " accepts no examples from memory; name files");
  for (const Examples& part : examples) {
    check(std::ranges::count(parts_, part.part) == 0, kind.name, ": the examples of \"", part.part,
          "\" are given twice");
    parts_.push_back(part.part);
    if (part.part == "train") train_columns_ = part.columns.size();
    files_[name_of(part.part)] = content_of(kind, find_table(part.part), part);
  }
  for (const auto& [name, content] : files_) write_output(folder_ / name, content, false);
}

const ExampleTable& ExampleFiles::find_table(const std::string& part) const {
  const Settings settings = kind_.settings(true);
  std::vector<std::string> known;
  for (const char* name : {"train", "valid", "test"})
    if (settings.has(part_setting(name))) known.emplace_back(name);
  if (std::ranges::count(known, part) > 0) return kind_.examples.front();
  for (const ExampleTable& table : kind_.examples) {
    if (!table.name.empty() && table.name == part) return table;
    if (!table.name.empty()) known.emplace_back(table.name);
  }
  fail(kind_.name, " has no examples of the name '", part, "'", suggest_name(part, known), "; there are ",
       listed(known));
}

std::string ExampleFiles::name_of(const std::string& part) const {
  return concat_text(part, '.', find_table(part).ending);
}

std::string ExampleFiles::path_of(const Examples& examples) const {
  return (folder_ / name_of(examples.part)).string();
}

void ExampleFiles::set_paths(Settings& settings) const {
  if (std::ranges::count(parts_, "train") == 0)
    throw SettingsError(concat_text(kind_.name, ": there are no training examples: give the part \"train\""));
  for (const Setting& one : settings.declared())
    if (is_layout(one) && settings.json(one.name) != one.initial)
      throw SettingsError(
          concat_text(one.name, " is for files, but the examples are in memory: leave it out"));
  for (const std::string& part : parts_) {
    const std::string setting = part_setting(part);
    if (!settings.get<std::string>(setting).empty())
      throw SettingsError(
          concat_text(setting, " names a file, and examples of \"", part, "\" are in memory: give one"));
  }
  apply_table_layout(kind_.examples.front(), train_columns_, settings);
  for (const std::string& part : parts_)
    settings.set(part_setting(part), (folder_ / name_of(part)).string(), "examples");
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
