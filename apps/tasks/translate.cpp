// Translation: an encoder-decoder Transformer (apps/tasks/text_to_text.h) that learns from pairs of sentences
// and translates by beam search. Pairs come from a table or from two files, line by line (apps/tasks/data.h);
// without them it learns English number words to German ones, made by rule.
//
// Files of a run beside the weights: tokenizer.json, one vocabulary for both languages. Parts of the data:
// train, valid, test.

#include <nlohmann/json.hpp>

#include "heed/apps/data/synthetic_pairs.h"
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
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.tie_embeddings = "all"}, Stacks::encoder_decoder);
  declare_training(settings, translation_metrics);
  declare_text_to_text(settings);
  settings.change_defaults(own_data ? for_sentences : for_number_words);
  return settings;
}

/// Generates number words. They do not depend on the seed, so that runs with different seeds are
/// compared on the same numbers.
PairParts number_parts(const Settings& settings) {
  return settings.read<NumberSettings>("data").made_by_rule();
}

Measurement translation_quality(const Settings& settings, std::span<const std::string> answers,
                                const ParallelText& pairs, double loss) {
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
  const bool by_exact = !counts || settings.get<std::string>("training.keep_best_by") == "exact";
  Json json = {{"bleu", rounded(bleu.score)},
               {"loss", loss},
               {"exact", exact},
               {"sentences", pairs.size()},
               {"signature", bleu.signature}};
  std::vector<Metric> found = metrics_of(translation_metrics, std::vector<double>{bleu.score, loss, exact});
  if (!counts) {
    json.erase("bleu");
    json.erase("signature");
    found.erase(found.begin());
  }
  return {.metrics = std::move(found), .json = json.dump(), .examples = by_exact ? of_exact : of_bleu};
}

std::vector<std::string> choose_translation_metric(Settings& settings, const ParallelText& valid) {
  const std::string name = "training.keep_best_by";
  std::vector<std::string> remarks;
  if (const BleuTokens tokens = bleu_tokens_for(valid.target.strings()); tokens != BleuTokens::mteval_13a)
    remarks.push_back(concat_text("BLEU counts the tokens of sacreBLEU's \"", name_of(tokens),
                                  "\", chosen by the script of the validation data"));
  if (settings.get<std::string>(name) != "bleu" || has_four_words(valid.target)) return remarks;
  settings.set(name, "exact", "the validation data");
  remarks.emplace_back(
      "the best weights are those with the most exact translations (training.keep_best_by=exact): no target "
      "of the validation data has four words, which BLEU counts");
  return remarks;
}

}  // namespace

const TaskKind& translate_task() {
  static const TaskKind kind{"translate",
                             "Trains, evaluates and uses a translation model, from pairs of sentences",
                             Stacks::encoder_decoder,
                             translation_metrics,
                             translate_settings,
                             names_pairs,
                             [](const TaskKind& its_kind, Settings settings) {
                               return text_to_text_learner(its_kind, std::move(settings),
                                                           {.made_by_rule = number_parts,
                                                            .quality = translation_quality,
                                                            .max_epochs = 60,
                                                            .choose_metric = choose_translation_metric});
                             },
                             pair_examples()};
  return kind;
}

}  // namespace heed
