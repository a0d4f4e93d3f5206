// Vectors of texts: an encoder (models/pairs.h) gives each a vector of length 1, and learns from pairs that
// belong together, each with the partners of the others in its batch for wrong answers. It is measured by
// where the partner stands among all second texts. An answer is the vector, its numbers separated by spaces.
// Without data it learns to bring together English and German number words.
//
// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid, test.

#include <charconv>
#include <cmath>

#include "heed/apps/tasks/example_learner.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/data/pairs_by_rule.h"
#include "heed/models/pairs.h"
#include "heed/training/ranking.h"

namespace heed {
namespace {

constexpr MetricKind embed_kinds[] = {{"mrr", true}, {"accuracy", true}};

constexpr const char* for_embedded_texts = R"({
  "model": {"width": 128, "feed_forward": 256, "encoder_layers": 2},
  "training": {"steps": 2000, "evaluate_every": 200, "save_every": 200, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 200, "learning_rate": 0.001}}})";

constexpr const char* for_embedded_numbers = R"({
  "tokenizer": {"vocabulary": 400},
  "model": {"width": 64, "feed_forward": 128, "encoder_layers": 1, "dropout": 0.0},
  "training": {"steps": 500, "batch_tokens": 2048, "evaluate_every": 100, "save_every": 100, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.003}}})";

struct EmbedTextTraining {
  double scale = 20;
};
void for_each_setting(auto&& visit, EmbedTextTraining& training) {
  visit(training.scale, "scale", 1e-3, 1e4,
        "What similarities of -1 to 1 are multiplied by before the softmax over a batch");
}

Settings embed_text_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", PairFiles{.valid_fraction = 0.1});
  settings.declare("data", TextLimits());
  settings.declare("data", NumberSettings{.count = 5000, .held_out = 300});
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {}, Stacks::encoder, {"word_pairs"});  // which tell classes
  declare_training(settings, embed_kinds);
  settings.declare("training", EmbedTextTraining());
  settings.declare("prediction", PredictionSettings());
  settings.change_defaults(own_data ? for_embedded_texts : for_embedded_numbers);
  return settings;
}

using Vectors = std::vector<std::vector<float>>;

Tensor matrix_of(const Vectors& rows) {
  std::vector<float> values;
  for (const std::vector<float>& row : rows) values.insert(values.end(), row.begin(), row.end());
  return Tensor::from(values, {std::ssize(rows), std::ssize(rows.front())});
}

/// How the partner of each first text ranks among all second ones by nearness.
std::vector<ExpectedRank> ranks_of_partners(const Vectors& first, const Vectors& second) {
  const NoGrad no_grad;
  const std::int64_t count = std::ssize(first), most_rows = 256;
  const Tensor u = matrix_of(first), v = transpose(matrix_of(second), 0, 1);
  std::vector<ExpectedRank> ranks;
  for (std::int64_t begin = 0; begin < count; begin += most_rows) {
    const std::int64_t end = std::min(count, begin + most_rows);
    const std::vector<float> all = matmul(slice(u, 0, begin, end), v).to_vector<float>();
    for (const float one : all) check(std::isfinite(one), "texts cannot be ranked: a nearness is ", one);
    for (std::int64_t i = begin; i < end; ++i)
      ranks.push_back(expected_rank({all.data() + (i - begin) * count, static_cast<std::size_t>(count)},
                                    static_cast<std::size_t>(i)));
  }
  return ranks;
}

std::string numbers_text(std::span<const float> values) {
  std::string text;
  for (const float value : values) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    text.append(text.empty() ? "" : " ").append(digits, end);
  }
  return text;
}

/// The input is the first text of a pair, the target the second.
class EmbedTextLearner : public TextExampleLearner<SentenceEncoder, ParallelText, Tokens> {
 public:
  using TextExampleLearner::TextExampleLearner;

  void prepare_training() override {
    remark(concat_text(parts_.train.size(), " pairs to learn from, ", parts_.valid.size(),
                       " to measure with; vocabulary ", vocabulary_size()));
    TextExampleLearner::prepare_training();
  }

  std::string unit() const override { return "pairs"; }

  std::vector<std::string> example_lines(std::size_t count) const override {
    return short_lines(shown_data().source, count);
  }

 protected:
  // --- what it reads

  PairParts read_parts(ReadReport& report) override {
    return names_pairs(settings_) ? read_pair_parts(settings_, report)
                                  : settings_.read<NumberSettings>("data").made_by_rule();
  }
  ParallelText read(std::span<const std::string> files, ReadReport& report) override {
    return read_pairs(settings_, files, report);
  }
  void read_rows(const std::string& file, const TakeText& take, ReadReport& report) const override {
    read_sources(settings_, file, take, report);
  }
  Examples examples_of(const ParallelText& pairs) override {
    return {tokens_of(pairs.source, "first text of pair "), tokens_of(pairs.target, "second text of pair ")};
  }
  Lengths training_lengths(const Examples& pairs) const override {
    return {lengths_of(pairs.inputs), lengths_of(pairs.targets)};
  }

  // --- what it loses and answers

  Loss loss_of(const std::vector<Tokens>& firsts, const std::vector<Tokens>& seconds,
               Context& context) override {
    std::vector<Tokens> texts = firsts;
    texts.insert(texts.end(), seconds.begin(), seconds.end());
    return model_->loss(pad_tokens(texts, model_->device()),
                        settings_.read<EmbedTextTraining>("training").scale, label_smoothing_, context);
  }

  Tensor outputs(const std::vector<Tokens>& texts, Context& context) override {
    return model_->vectors(pad_tokens(texts, model_->device()), context);
  }

  Prediction prediction_of(const Tokens&, const Output& vector) const override {
    return {numbers_text(vector), 1, {}, {}, vector};  // surely: there is no other answer
  }

  Measurement measured(const Examples& pairs, const ParallelText&) override {
    const Vectors first = outputs_of(pairs.inputs), second = outputs_of(pairs.targets);
    const std::vector<ExpectedRank> ranks = ranks_of_partners(first, second);
    double sum = 0, right = 0;
    for (const ExpectedRank& one : ranks) sum += one.reciprocal, right += one.first;
    const auto count = static_cast<double>(ranks.size());
    Measurement measurement =
        this->measurement(std::vector<double>{sum / count, right / count}, ranks.size(), /*round=*/true);
    measurement.examples = {"mrr", "mean", {}};
    for (const ExpectedRank& one : ranks) measurement.examples.rows.push_back({one.reciprocal, 1});
    return measurement;
  }

 private:
  std::vector<Tokens> tokens_of(const TextList& texts, std::string_view what) {
    TextPlaces places;
    for (std::size_t i = 0; i < texts.size(); ++i) places.add(what, i + 1);
    return (*tokenizer_)(texts, places);
  }
};

}  // namespace

const TaskKind& embed_text_task() {
  static const TaskKind kind = task_of<EmbedTextLearner>(
      "embed_text", "Learns vectors of texts from pairs that belong together, measures them, and prints them",
      Stacks::encoder, embed_kinds, embed_text_settings, names_pairs, pair_examples());
  return kind;
}

}  // namespace heed
