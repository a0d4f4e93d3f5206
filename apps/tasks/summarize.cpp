// Summaries and headlines: an encoder-decoder Transformer (apps/tasks/text_to_text.h) that learns from texts
// with their summaries, a table or two files of lines (apps/tasks/data.h), and writes summaries by beam
// search; without data it learns headlines of reports made by rule. Measured by ROUGE (training/rouge.h),
// beside the first words of each text.
//
// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid, test.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/text_to_text.h"
#include "heed/training/text_metrics.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr MetricKind summary_metrics[] = {
    {"rouge1", true}, {"rouge2", true}, {"rougeL", true}, {"loss", false}};

/// Defaults for a few thousand pairs, from which a model learns to copy sooner than to spell: a
/// pointer, and whole words as tokens.
constexpr const char* for_documents = R"({
  "tokenizer": {"kind": "words", "vocabulary": 20000}, "data": {"long_sources": "cut", "valid_fraction": 0.02},
  "model": {"width": 128, "feed_forward": 256, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.3, "norm": "pre",
    "pointer": true},
  "training": {"steps": 3000, "batch_tokens": 8192, "evaluate_every": 500, "shown_sample": 128, "save_every": 500,
    "schedule": {"warmup_steps": 300, "learning_rate": 0.002}},
  "evaluation": {"pairs": 500}})";

constexpr const char* for_reports = R"({
  "tokenizer": {"vocabulary": 400},
  "model": {"width": 96, "feed_forward": 192, "encoder_layers": 2, "decoder_layers": 2},
  "training": {"steps": 600, "evaluate_every": 120, "shown_sample": 128, "save_every": 200, "label_smoothing": 0.05,
    "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.003}}})";

struct ReportSettings {
  std::int64_t count = 5000, held_out = 200;
};
void for_each_setting(auto&& visit, ReportSettings& reports) {
  visit(reports.count, "reports", 1, 1e6, "Without data: number of generated training reports");
  visit(reports.held_out, "held_out_reports", 1, 1e6, "Without data: number of generated held-out examples");
}

struct SummaryEvaluation {
  bool stemming = true;
  std::int64_t first_words = 0;
};
void for_each_setting(auto&& visit, SummaryEvaluation& evaluation) {
  visit(evaluation.stemming, "stemming", "Compare word stems in ROUGE");
  visit(evaluation.first_words, "first_words", 0, 1e6,
        "Baseline: number of first words of a text that are taken as its summary; 0: the mean length of the "
        "training summaries, found by train");
}

Settings summarize_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", PairFiles{.valid_fraction = 0.1});
  settings.declare("data", ReportSettings());
  declare_text_to_text(settings, summary_metrics);
  settings.declare("evaluation", SummaryEvaluation());
  settings.change_defaults(own_data ? for_documents : for_reports);
  return settings;
}

/// Returns the first words as ROUGE counts them, in any script.
std::string first_words(std::string_view text, std::int64_t count, RougeWords kind) {
  std::string first;
  for (const std::string& word : rouge_words(text, /*stemming=*/false, kind)) {
    if (count-- == 0) break;
    first += (first.empty() ? "" : " ") + word;
  }
  return first;
}

class SummarizeTask : public TextToTextTask {
 public:
  SummarizeTask(const TaskEntry& entry, Settings settings) : TextToTextTask(entry, std::move(settings), {}) {}
  static constexpr auto read_rows = read_sources;

 protected:
  /// Generates reports. They do not depend on the seed, so that runs with different seeds are
  /// compared on the same reports.
  PairParts parts_made_by_rule() const override {
    const auto wanted = settings_.read<ReportSettings>("data");
    Reports reports = headline_reports(1, wanted.count, wanted.held_out);
    return {std::move(reports.train), std::move(reports.held_out), {}};
  }

  /// Sets the mean length of the training summaries, unless evaluation.first_words is given.
  void choose_measures(const ParallelText& train, const ParallelText& /*evaluated*/) override {
    if (settings_.read<SummaryEvaluation>("evaluation").first_words > 0) return;
    RougeWords kind = RougeWords::ascii;
    for (const std::string_view target : train.target)
      if (kind == RougeWords::ascii) kind = rouge_words_for(std::vector{std::string(target)});
    double words = 0;
    for (const std::string_view target : train.target)
      words += static_cast<double>(rouge_words(target, /*stemming=*/false, kind).size());
    const auto mean = std::llround(words / static_cast<double>(train.size()));
    settings_.set("evaluation.first_words", std::to_string(std::max(mean, 1LL)), "the mean summary");
  }

  Measurement quality(std::span<const std::string> answers, const ParallelText& pairs,
                      double loss) const override {
    const auto [stemming, first_words_wanted] = settings_.read<SummaryEvaluation>("evaluation");
    const std::int64_t words = std::max<std::int64_t>(first_words_wanted, 1);
    const std::vector<std::string> expected = pairs.target.strings();
    const RougeWords kind = rouge_words_for(expected);
    std::vector<std::string> beginnings;
    for (const std::string_view text : pairs.source) beginnings.push_back(first_words(text, words, kind));
    const std::vector<RougeScore> scores = rouge_scores(answers, expected, stemming);
    const RougeScore found = mean_of(scores), simple = mean_rouge(beginnings, expected, stemming);
    const auto json_of = [](const RougeScore& score) {
      return Json{{"rouge1", rounded(score.rouge1)},
                  {"rouge2", rounded(score.rouge2)},
                  {"rougeL", rounded(score.rougeL)}};
    };
    Json json = json_of(found);
    json["loss"] = loss;
    json["texts"] = pairs.size();
    json["stemming"] = stemming;
    json["signature"] = rouge_signature(kind, stemming);
    json["first_words"] = json_of(simple);
    json["first_words"]["words"] = words;
    ExampleStatistics examples{"rouge1", "mean", {}};
    for (const RougeScore& one : scores) examples.rows.push_back({one.rouge1, 1});
    const std::vector<double> values = {found.rouge1, found.rouge2, found.rougeL, loss};
    return {.metrics = metrics(values), .json = json.dump(), .examples = std::move(examples)};
  }
};

}  // namespace

const TaskEntry& summarize_task() {
  static const TaskEntry entry = make_task_entry<SummarizeTask>(
      {"summarize", "Trains, evaluates and uses a model that writes summaries and headlines",
       Stacks::encoder_decoder, summary_metrics, summarize_settings, names_pairs, pair_examples()});
  return entry;
}

}  // namespace heed
