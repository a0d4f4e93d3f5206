// Vectors of texts: an encoder (models/pairs.h) gives each a vector of length 1, and learns from pairs that
// belong together, each with the partners of the others in its batch for wrong answers. It is measured by where the
// partner stands among all second texts. An answer is the vector, its numbers separated by spaces. Without data it learns
// to bring together English and German number words.
//
// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid, test.

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/data/pairs_by_rule.h"
#include "heed/models/pairs.h"
#include "heed/tasks/data.h"
#include "heed/tasks/learner.h"
#include "heed/tasks/recipe.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

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

Settings embed_text_settings(bool own_data) {
  Settings settings;
  declare_runtime(settings);
  declare_pairs(settings, /*valid_fraction=*/0.1);
  declare_long_texts(settings);
  settings.integer("data.numbers", 5000, 1, 999'999, "Without data: how many number words to learn from");
  settings.integer("data.held_out_numbers", 300, 1, 999'999, "Without data: how many to measure with");
  declare_tokenizer(settings, 8000);
  declare_model(settings, {}, Stacks::encoder, {"word_pairs"});  // which tell classes
  declare_training(settings, embed_kinds);
  settings.number("training.scale", 20, 1e-3, 1e4,
                  "What similarities of -1 to 1 are multiplied by before the softmax over a batch");
  settings.integer("prediction.batch_size", 64, 1, 1'000'000, "Texts that are read at a time");
  settings.change_defaults(own_data ? for_embedded_texts : for_embedded_numbers);
  return settings;
}

/// 1 / rank of the partner of each first text among all second ones: those that are strictly nearer stand before it.
std::vector<double> reciprocal_ranks(const std::vector<float>& first, const std::vector<float>& second,
                                     std::int64_t width) {
  const NoGrad no_grad;
  const std::int64_t count = std::ssize(first) / width, most_rows = 256;
  const Tensor u = Tensor::from(first, {count, width}),
               v = transpose(Tensor::from(second, {count, width}), 0, 1);
  std::vector<double> ranks;
  for (std::int64_t begin = 0; begin < count; begin += most_rows) {
    const std::int64_t end = std::min(count, begin + most_rows);
    const std::vector<float> all = matmul(slice(u, 0, begin, end), v).to_vector<float>();
    for (std::int64_t i = begin; i < end; ++i) {
      const auto row = all.begin() + (i - begin) * count;
      const float own = row[i];
      ranks.push_back(
          1.0 / static_cast<double>(1 + std::count_if(row, row + count, [&](float x) { return x > own; })));
    }
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

class EmbedTextLearner : public Learner {
 public:
  using Learner::Learner;

  void check_settings() const override {
    names_pairs(settings_);
    check_model<SentenceEncoder>(config(300), settings_.get<std::int64_t>("training.batch_tokens"));
  }

  /// The sets do not follow the seed: runs with other seeds are compared on the same numbers.
  void read_data() override {
    if (!names_pairs(settings_)) {
      const NumberSets sets = draw_numbers(1, settings_.get<std::int64_t>("data.numbers"),
                                           settings_.get<std::int64_t>("data.held_out_numbers"));
      parts_ = {number_words(sets.train), number_words(sets.held_out), {}};
      return;
    }
    ReadReport report;
    parts_ = read_pair_parts(settings_, report);
    remark_on_reading(report);
  }

  std::map<std::string, std::string> data_digests() const override {
    std::map<std::string, std::string> digests;
    for (const auto& [name, part] :
         {std::pair{"train", &parts_.train}, {"valid", &parts_.valid}, {"test", &parts_.test}})
      if (part->size() > 0) digests[name] = digest_of_texts({&part->source, &part->target});
    return digests;
  }

  void learn_vocabulary() override {
    tokenizer_.emplace(learn_tokenizer(settings_, source_of({&parts_.train.source, &parts_.train.target})),
                       settings_);
  }

  std::map<std::string, std::string> files() const override {
    return {{"tokenizer.json", tokenizer_->tokenizer().to_json()}};
  }

  void open_files(const std::function<std::string(std::string_view)>& read) override {
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
  }

  void build(Device device) override {
    model_ = make_model<SentenceEncoder>(config(tokenizer_->tokenizer().vocabulary_size()),
                                         settings_.get<std::int64_t>("training.batch_tokens"), device);
  }

  void prepare_training() override {
    remark(concat_text(parts_.train.size(), " pairs to learn from, ", parts_.valid.size(),
                       " to measure with; vocabulary ", tokenizer_->tokenizer().vocabulary_size()));
    first_ = tokens_of(parts_.train.source, "first text of pair ");
    second_ = tokens_of(parts_.train.target, "second text of pair ");
    say_what_was_cut();
    plan_.emplace(lengths_of(first_), lengths_of(second_), training_batches(settings_));
    if (const std::string left_out = plan_->left_out_message(); !left_out.empty()) remark(left_out);
  }

  Module& model() override { return *model_; }
  std::string unit() const override { return "pairs"; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)];
    std::vector<Tokens> texts = pick(first_, rows), seconds = pick(second_, rows);
    texts.insert(texts.end(), seconds.begin(), seconds.end());
    return model_->loss(pad_tokens(texts, model_->device()), settings_.get<double>("training.scale"),
                        settings_.get<double>("training.label_smoothing"), context);
  }

  Evaluation evaluate() override {
    if (parts_.valid.size() == 0) return {};
    return evaluation(values_of(ranks_in(parts_.valid)));
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    return short_lines(parts_.valid.size() > 0 ? parts_.valid.source : parts_.train.source, count);
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    const auto read = [&](const std::string& line) { return (*tokenizer_)(line); };
    const auto answer = [&](const std::vector<Tokens>& texts) {
      say_what_was_cut();
      const std::vector<float> all = vectors_of(texts);
      const auto width = static_cast<std::size_t>(model_->config().width);
      std::vector<Prediction> answers;  // surely: there is no other answer
      for (std::size_t i = 0; i < texts.size(); ++i)
        answers.push_back({numbers_text(std::span(all).subspan(i * width, width)), 1, {}, {}});
      return answers;
    };
    const auto show = [&](const Tokens& example, std::int64_t line, CaptureFile& file) {
      show_inside(example, line, file);
    };
    return answer_lines(lines, options, read, answer, show);
  }

  Measurement measure(std::string_view part) override {
    const ParallelText& pairs = part == "valid" ? parts_.valid : part == "test" ? parts_.test : parts_.train;
    check(pairs.size() > 0, "the ", part, " part of the run's data is empty: name files to measure on");
    return measurement_of(pairs);
  }

  Measurement measure_files(std::span<const std::string> files) override {
    ReadReport report;
    const ParallelText pairs = read_pairs(settings_, files, report);
    remark_on_reading(report);
    return measurement_of(pairs);
  }

 private:
  TransformerConfig config(std::int64_t vocabulary) const {
    TransformerConfig config = model_config(trained());
    config.source_vocabulary = vocabulary;
    return config;
  }

  std::vector<Tokens> tokens_of(const TextList& texts, std::string_view what) {
    TextPlaces places;
    for (std::size_t i = 0; i < texts.size(); ++i) places.add(what, i + 1);
    return (*tokenizer_)(texts, places);
  }

  void say_what_was_cut() {
    if (std::string cut = tokenizer_->take_cut_message(); !cut.empty()) remark(std::move(cut));
  }

  /// The vectors of texts, one after the other; texts of like length are read together.
  std::vector<float> vectors_of(const std::vector<Tokens>& texts) {
    const NoGrad no_grad;
    const auto width = static_cast<std::size_t>(model_->config().width);
    std::vector<float> all(texts.size() * width);
    if (texts.empty()) return all;
    const BatchPlan plan(lengths_of(texts), {},
                         evaluation_batches(settings_.get<std::int64_t>("prediction.batch_size")));
    const std::vector<Batch> batches = plan.epoch(0);
    const auto found = deal_out_numbers<float>(ranks(), batches.size(), [&](std::size_t batch) {
      Context context = Context::inference();
      return model_->vectors(pad_tokens(pick(texts, batches[batch]), model_->device()), context)
          .template to_vector<float>();
    });
    for (std::size_t batch = 0; batch < batches.size(); ++batch)
      for (std::size_t i = 0; i < batches[batch].size(); ++i)
        std::copy_n(found[batch].begin() + static_cast<std::ptrdiff_t>(i * width), width,
                    all.begin() +
                        static_cast<std::ptrdiff_t>(batches[batch][i]) * static_cast<std::ptrdiff_t>(width));
    return all;
  }

  std::vector<double> ranks_in(const ParallelText& pairs) {
    const std::vector<float> first = vectors_of(tokens_of(pairs.source, "first text of pair ")),
                             second = vectors_of(tokens_of(pairs.target, "second text of pair "));
    say_what_was_cut();
    return reciprocal_ranks(first, second, model_->config().width);
  }

  /// In the order of `embed_kinds`.
  static std::vector<double> values_of(const std::vector<double>& ranks) {
    double sum = 0, right = 0;
    for (const double one : ranks) sum += one, right += one == 1 ? 1 : 0;
    const auto count = static_cast<double>(ranks.size());
    return {sum / count, right / count};
  }

  Measurement measurement_of(const ParallelText& pairs) {
    const std::vector<double> ranks = ranks_in(pairs);
    Measurement measurement;
    measurement.metrics = metrics(values_of(ranks));
    measurement.count = static_cast<std::int64_t>(ranks.size());
    measurement.examples = {"mrr", "mean", {}};
    for (const double one : ranks) measurement.examples.rows.push_back({one, 1});
    Json json = Json::object();
    for (const Metric& metric : measurement.metrics) json[metric.name] = rounded(metric.value);
    json["pairs"] = pairs.size();
    measurement.json = json.dump();
    return measurement;
  }

  /// One pass over a text in which the model shows its inside.
  void show_inside(const Tokens& tokens, std::int64_t line, CaptureFile& file) {
    const PaddedTokens input = pad_tokens({&tokens, 1}, model_->device());
    const Capture capture = captured([&](Context& context) { model_->vectors(input, context); });
    const std::string name = "lines." + std::to_string(line);
    file.add_tokens(name, "tokens", input.ids, token_texts(tokenizer_->tokenizer(), tokens));
    file.add(name, capture);
  }

  PairParts parts_;
  std::optional<BoundedTokenizer> tokenizer_;
  std::unique_ptr<SentenceEncoder> model_;
  std::vector<Tokens> first_, second_;
  std::optional<BatchPlan> plan_;
  EpochBatches<BatchPlan> batches_;
};

}  // namespace

const TaskKind& embed_text_task() {
  static const TaskKind kind{
      "embed_text",
      "Learns vectors of texts from pairs that belong together, measures them, and prints them",
      Stacks::encoder,
      embed_kinds,
      embed_text_settings,
      names_pairs,
      make_learner<EmbedTextLearner>};
  return kind;
}

}  // namespace heed
