// Translation: an encoder-decoder Transformer (apps/tasks/text_to_text.h) that learns from pairs of sentences
// and translates by beam search. Pairs come from a table or from two files, line by line (apps/tasks/data.h);
// without them it learns English number words to German ones, made by rule.
//
// Files of a run beside the weights: tokenizer.json, one vocabulary for both languages. Parts of the data:
// train, valid, test.

#include <nlohmann/json.hpp>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/text_to_text.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr MetricKind translation_metrics[] = {{"bleu", true}, {"loss", false}, {"exact", true}};

/// Defaults for sentences, which need a larger vocabulary and model than number words; those are
/// learned by a small model within a minute.
constexpr const char* for_sentences = R"({
  "data": {"valid_fraction": 0.02}, "tokenizer": {"vocabulary": 8000}, "model": {"dropout": 0.3, "norm": "pre"},
  "training": {"steps": 6000, "batch_tokens": 8192, "evaluate_every": 1000, "shown_sample": 128, "save_every": 500,
    "schedule": {"warmup_steps": 1000, "learning_rate": 0.002}}})";

constexpr const char* for_number_words = R"({
  "tokenizer": {"vocabulary": 400},
  "model": {"width": 128, "feed_forward": 256, "encoder_layers": 2, "decoder_layers": 2},
  "training": {"steps": 800, "evaluate_every": 160, "shown_sample": 128, "save_every": 200, "label_smoothing": 0.05,
    "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.003}, "keep_best_by": "exact"}})";

Settings translate_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", PairFiles());
  settings.declare("data", NumberSettings());
  declare_text_to_text(settings, translation_metrics);
  settings.change_defaults(own_data ? for_sentences : for_number_words);
  return settings;
}

class TranslateTask : public TextToTextTask {
 public:
  TranslateTask(const TaskEntry& entry, Settings settings)
      : TextToTextTask(entry, std::move(settings), {.max_epochs = 60}) {}
  static constexpr auto read_rows = read_sources;

 protected:
  PairParts parts_made_by_rule() const override {
    return settings_.read<NumberSettings>("data").made_by_rule();
  }

  void choose_measures(const ParallelText& /*train*/, const ParallelText& evaluated) override {
    if (evaluated.size() == 0) return;
    if (const BleuTokens tokens = bleu_tokens_for(evaluated.target.strings());
        tokens != BleuTokens::mteval_13a)
      remark(concat_text("BLEU counts the tokens of sacreBLEU's \"", name_of(tokens),
                         "\", chosen by the script of the validation data"));
    if (training().keep_best_by != "bleu" || has_four_words(evaluated.target)) return;
    settings_.set("training.keep_best_by", "exact", "the validation data");
    remark(
        "the best weights are those with the most exact translations (training.keep_best_by=exact): no "
        "target "
        "of the validation data has four words, which BLEU counts");
  }

  Measurement quality(std::span<const std::string> answers, const ParallelText& pairs,
                      double loss) const override {
    const auto [bleu, of_bleu] = bleu_of_answers(answers, pairs.target.strings());
    double right = 0;
    ExampleStatistics of_exact{"exact", "mean", {}};
    for (std::size_t i = 0; i < answers.size(); ++i) {
      of_exact.rows.push_back({answers[i] == pairs.target[i] ? 1.0 : 0.0, 1});
      right += of_exact.rows.back()[0];
    }
    const double exact = right / static_cast<double>(pairs.size());
    // Of number words, one a line, BLEU has nothing to count.
    const bool counts = has_four_words(pairs.target);
    const bool by_exact = !counts || training().keep_best_by == "exact";
    Json json = {{"bleu", rounded(bleu.score)},
                 {"loss", loss},
                 {"exact", exact},
                 {"sentences", pairs.size()},
                 {"signature", bleu.signature}};
    std::vector<Metric> found = metrics(std::vector<double>{bleu.score, loss, exact});
    if (!counts) {
      json.erase("bleu");
      json.erase("signature");
      found.erase(found.begin());
    }
    return {.metrics = std::move(found), .json = json.dump(), .examples = by_exact ? of_exact : of_bleu};
  }
};

}  // namespace

const TaskEntry& translate_task() {
  static const TaskEntry entry = make_task_entry<TranslateTask>(
      {"translate", "Trains, evaluates and uses a translation model, from pairs of sentences",
       Stacks::encoder_decoder, translation_metrics, translate_settings, names_pairs, pair_examples()});
  return entry;
}

}  // namespace heed
