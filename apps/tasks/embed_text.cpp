// Vectors of texts: an encoder (models/pairs.h) gives each a vector of length 1, and learns from pairs that
// belong together, each with the partners of the others in its batch for wrong answers. It is measured by
// where the partner stands among all second texts. An answer is the vector, its numbers separated by spaces.
// Without data it learns to bring together English and German number words.
//
// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid, test.

#include <cmath>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/examples.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/plain_numbers.h"
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
        "Factor for similarities (-1 to 1) before the softmax over a batch");
}

struct VectorSettings {
  bool normalise = true;
};
void for_each_setting(auto&& visit, VectorSettings& vectors) {
  visit(vectors.normalise, "normalise", "Divide every vector by its length, so that products are cosines");
}

Settings embed_text_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", PairFiles{.valid_fraction = 0.1});
  settings.declare("data", TextLimits());
  settings.declare("data", NumberSettings{.count = 5000, .held_out = 300});
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", TextPrompt());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {}, Stacks::encoder);
  for (const Setting& setting : transformer_settings())
    if (setting.name == "pooler_width") settings.declare_json("model", setting, "0");
  declare_training(settings, embed_kinds);
  settings.declare("training", EmbedTextTraining());
  settings.declare("prediction", PredictionSettings());
  settings.declare("prediction", VectorSettings());
  settings.change_defaults(own_data ? for_embedded_texts : for_embedded_numbers);
  return settings;
}

using Vectors = std::vector<std::vector<float>>;

Tensor as_matrix(const Vectors& rows) {
  std::vector<float> values;
  for (const std::vector<float>& row : rows) values.insert(values.end(), row.begin(), row.end());
  return Tensor::from(values, {std::ssize(rows), std::ssize(rows.front())});
}

/// Ranks the partner of each first text among all second texts by similarity.
std::vector<ExpectedRank> ranks_of_partners(const Vectors& first, const Vectors& second) {
  const NoGrad no_grad;
  const std::int64_t count = std::ssize(first), most_rows = 256;
  const Tensor u = as_matrix(first), v = transpose(as_matrix(second), 0, 1);
  std::vector<ExpectedRank> ranks;
  for (std::int64_t begin = 0; begin < count; begin += most_rows) {
    const std::int64_t end = std::min(count, begin + most_rows);
    const std::vector<float> all = matmul(slice(u, 0, begin, end), v).to_vector<float>();
    for (const float one : all) check(std::isfinite(one), "texts cannot be ranked: a similarity is ", one);
    for (std::int64_t i = begin; i < end; ++i)
      ranks.push_back(expected_rank({all.data() + (i - begin) * count, static_cast<std::size_t>(count)},
                                    static_cast<std::size_t>(i)));
  }
  return ranks;
}

std::string numbers_text(std::span<const float> values) {
  std::string text;
  for (const float value : values) text.append(text.empty() ? "" : " ").append(number_text(value));
  return text;
}

/// The input is the first text of a pair, the target the second.
class EmbedTextTask : public Task, public HasOutputs {
 public:
  EmbedTextTask(const TaskEntry& entry, Settings given)
      : Task(entry, std::move(given)),
        scale_(settings_.read<EmbedTextTraining>("training").scale),
        batch_size_(settings_.read<PredictionSettings>("prediction").batch_size),
        normalises_(settings_.read<VectorSettings>("prediction").normalise) {
    unit_ = "pairs";
  }

  void prepare_training() override {
    remark(concat_text(parts_.train.size(), " pairs for training, ", parts_.valid.size(),
                       " for validation; vocabulary ", tokenizer_->tokenizer().vocabulary_size()));
    train_ = make_examples(parts_.train);
    valid_ = make_examples(parts_.valid);
    plan_batches({lengths_of(train_.inputs), lengths_of(train_.targets)}, training_batches(settings_));
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.at(epoch, batch);
    std::vector<Tokens> texts = pick(train_.inputs, rows);
    const std::vector<Tokens> seconds = pick(train_.targets, rows);
    texts.insert(texts.end(), seconds.begin(), seconds.end());
    auto& model = model_as<SentenceEncoder>();
    return model.loss(pad_tokens(texts, model.device()), scale_, label_smoothing_, context);
  }

  Evaluation evaluate() override {
    if (valid_.inputs.empty()) return {};
    const Batch rows = spread_over(valid_.inputs.size(), sample());
    return evaluation(measured_pairs(picked(valid_, rows)).metrics, rows.size(), valid_.inputs.size());
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    const auto answers_to = [&](const std::vector<Tokens>& texts) {
      std::vector<Prediction> answers;
      for (Output& vector : embed_texts(texts, normalises_))
        answers.push_back({numbers_text(vector), 1, {}, {}, vector});  // surely: there is no other answer
      return answers;
    };
    return answer_texts(lines, options, *tokenizer_, answers_to, [&](const auto& texts, Context& context) {
      return vectors(texts, normalises_, context);
    });
  }

  TextReader reader(bool /*of_outputs*/) const override { return tokenizer_->reader(); }

  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    return vectors(inputs_of_lines(lines, [&](const std::string& line) { return (*tokenizer_)(line); }),
                   normalises_, context);
  }

  static constexpr auto read_rows = read_sources;

 protected:
  std::map<std::string, std::string> read_parts() override {
    parts_ = reported([&](ReadReport& report) {
      return names_pairs(settings_) ? read_pair_parts(settings_, report)
                                    : settings_.read<NumberSettings>("data").made_by_rule();
    });
    return digests_of(parts_, [](const ParallelText& pairs) { return compute_digest(pairs); });
  }

  NamedFiles learned_files() override { return learned_tokenizer(all_texts(parts_.train)); }

  void open(const ReadFile& read) override {
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
    truncation_message_ = [this] { return tokenizer_->take_truncation_message(); };
  }

  std::unique_ptr<Module> make_model() override {
    const std::int64_t vocabulary = tokenizer_ ? tokenizer_->tokenizer().vocabulary_size() : 300;
    return model_of<SentenceEncoder>(encoder_config(vocabulary), batch_tokens());
  }

  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
      return read_pairs(layout, files, report);
    };
    return measured_data(parts_, source, read,
                         [&](const ParallelText& pairs) { return measured_pairs(make_examples(pairs)); });
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    return short_lines(shown_part(parts_).source, count);
  }

 private:
  using Examples = TaskExamples<Tokens, Tokens>;

  Examples make_examples(const ParallelText& pairs) {
    return {tokens_of(pairs.source, "first text of pair "), tokens_of(pairs.target, "second text of pair ")};
  }

  std::vector<Tokens> tokens_of(const TextList& texts, std::string_view what) {
    TextPlaces places;
    for (std::size_t i = 0; i < texts.size(); ++i) places.add(what, i + 1);
    return (*tokenizer_)(texts, places);
  }

  Tensor vectors(const std::vector<Tokens>& texts, bool normalised, Context& context) {
    auto& model = model_as<SentenceEncoder>();
    const PaddedTokens tokens = pad_tokens(texts, model.device());
    return normalised ? model.vectors(tokens, context) : model.pooled_outputs(tokens, context);
  }

  Vectors embed_texts(const std::vector<Tokens>& texts, bool normalised) {
    return outputs_of(*this, texts, {lengths_of(texts), {}}, batch_size_,
                      [&](const std::vector<Tokens>& batch, Context& context) {
                        return vectors(batch, normalised, context);
                      });
  }

  Measurement measured_pairs(const Examples& pairs) {
    const Vectors first = embed_texts(pairs.inputs, true), second = embed_texts(pairs.targets, true);
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

  const double scale_;
  const std::int64_t batch_size_;
  const bool normalises_;
  PairParts parts_;
  std::optional<BoundedTokenizer> tokenizer_;
  Examples train_, valid_;
};

}  // namespace

const TaskEntry& embed_text_task() {
  static const TaskEntry entry = make_task_entry<EmbedTextTask>(
      {"embed_text",
       "Trains, evaluates and uses a model that embeds texts as vectors, from pairs that belong together",
       Stacks::encoder, embed_kinds, embed_text_settings, names_pairs, pair_examples()});
  return entry;
}

}  // namespace heed
