// rate: learns a number for a text. A task of its own in one file, with its program: what CONTRIBUTING.md explains.
//
// Without data it learns how large a number is from its English words ("seven hundred" -> log10 700 = 2.845), with
// --data from lines "NUMBER TEXT". The model is the classifier's encoder with one output y, its loss the squared error.

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/task_program.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/data/labelled_text.h"
#include "heed/data/pairs_by_rule.h"
#include "heed/models/classifier.h"
#include "heed/tasks/data.h"
#include "heed/tasks/recipe.h"

namespace {

using namespace heed;

const TaskKind& rate_task();
constexpr MetricKind metrics_of_rate[] = {{"mean_squared_error", false}, {"mean_error", false}};

Settings rate_settings(bool own_data) {
  Settings settings;
  declare_runtime(settings);
  settings.text("data.file", "", "Lines to learn from: a number, a space, a text");
  settings.number("data.valid_fraction", 0.1, 0.001, 0.999, "Share of the texts that is held out");
  declare_text(settings);
  declare_long_texts(settings);
  declare_tokenizer(settings, own_data ? 4000 : 300);
  TransformerConfig model;
  model.width = 64;
  model.feed_forward = 128;
  model.encoder_layers = 1;
  declare_model(settings, model, Stacks::encoder);
  declare_training(settings, metrics_of_rate);
  settings.change_defaults(
      R"({"training": {"steps": 400, "evaluate_every": 100, "save_every": 100, "label_smoothing": 0,
                                            "schedule": {"warmup_steps": 50, "learning_rate": 0.003}}})");
  return settings;
}

double number_in(const std::string& text, const std::string& place) {
  char* end = nullptr;
  const float number = std::strtof(text.c_str(), &end);
  check(end == text.c_str() + text.size() && !text.empty() && std::isfinite(number), place, ": \"", text,
        "\" is no number, or too large for f32");
  return number;
}

class RateLearner : public Learner {
 public:
  using Learner::Learner;

  void check_settings() const override {
    if (settings_.get<double>("training.label_smoothing") > 0)
      throw SettingsError(
          "training.label_smoothing spreads probability over classes, which a number has not");
    check_model<EncoderClassifier>(config(300), settings_.get<std::int64_t>("training.batch_tokens"));
  }

  void read_data() override {
    LabelledText text;
    if (const auto file = settings_.get<std::string>("data.file"); !file.empty()) {
      text = read_labelled_text(file, {.format = "lines", .text = text_options(settings_)});
    } else {
      const std::vector<std::int32_t> numbers = draw_numbers(1, 3000, 1).train;
      const ParallelText words = number_words(numbers);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        text.add(words.source[i], std::to_string(std::log10(numbers[i] + 1.0)), words.source[i]);
    }
    parts_ = split_text(text, {.valid_fraction = settings_.get<double>("data.valid_fraction")});
  }

  std::map<std::string, std::string> data_digests() const override {
    return {{"train", digest_of_texts({&parts_.train.texts, &parts_.train.labels})},
            {"valid", digest_of_texts({&parts_.valid.texts, &parts_.valid.labels})}};
  }

  void learn_vocabulary() override {
    tokenizer_.emplace(learn_tokenizer(settings_, source_of({&parts_.train.texts})), settings_);
  }
  std::map<std::string, std::string> files() const override {
    return {{"tokenizer.json", tokenizer_->tokenizer().to_json()}};
  }
  void open_files(const std::function<std::string(std::string_view)>& read) override {
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
  }

  void build(Device device) override {
    model_ = make_model<EncoderClassifier>(config(tokenizer_->tokenizer().vocabulary_size()),
                                           settings_.get<std::int64_t>("training.batch_tokens"), device);
  }

  void prepare_training() override {
    train_ = examples_of(parts_.train);
    valid_ = examples_of(parts_.valid);
    plan_.emplace(lengths_of(train_.texts), std::span<const std::int32_t>(), training_batches(settings_));
  }

  Module& model() override { return *model_; }
  std::string unit() const override { return "texts"; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
  }

  /// sum_i (y_i - t_i)^2
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)];
    const auto count = static_cast<std::int64_t>(rows.size());
    const Tensor targets = Tensor::from(pick(train_.targets, rows), {count, 1}, model_->device());
    const Tensor outputs = model_->logits(pad_tokens(pick(train_.texts, rows), model_->device()), context);
    return {sum(square(outputs - targets)), count};
  }

  Evaluation evaluate() override {
    return valid_.texts.empty() ? Evaluation() : evaluation(errors_of(valid_));
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    const auto read = [&](const std::string& line) { return (*tokenizer_)(line); };
    const auto answer = [&](const std::vector<Tokens>& texts) {
      std::vector<Prediction> predictions;
      for (const float output : outputs_of(texts)) predictions.push_back({std::to_string(output), 1, {}, ""});
      return predictions;
    };
    const auto show = [&](const Tokens& text, std::int64_t line, CaptureFile& file) {
      const std::string name = "lines." + std::to_string(line);
      const PaddedTokens batch = pad_tokens(std::vector<Tokens>{text}, model_->device());
      file.add_tokens(name, "tokens", batch.ids, token_texts(tokenizer_->tokenizer(), text));
      file.add(name, captured([&](Context& context) { model_->logits(batch, context); }));
    };
    return answer_lines(lines, options, read, answer, show);
  }

  Measurement measure(std::string_view part) override {
    return measurement_of(part == "valid" ? parts_.valid : parts_.train);
  }
  Measurement measure_files(std::span<const std::string> files) override {
    return measurement_of(
        read_labelled_text(files.front(), {.format = "lines", .text = text_options(settings_)}));
  }

 private:
  struct Examples {
    std::vector<Tokens> texts;
    std::vector<float> targets;
  };

  TransformerConfig config(std::int64_t vocabulary) const {
    TransformerConfig config = model_config(trained());
    config.source_vocabulary = vocabulary;
    config.classes = 1;
    return config;
  }

  Examples examples_of(const LabelledText& text) {
    Examples examples{(*tokenizer_)(text.texts, text.places), {}};
    for (std::size_t i = 0; i < text.size(); ++i)
      examples.targets.push_back(static_cast<float>(number_in(std::string(text.labels[i]), text.places[i])));
    return examples;
  }

  std::vector<float> outputs_of(const std::vector<Tokens>& texts) {
    const NoGrad no_grad;
    std::vector<float> outputs(texts.size());
    if (texts.empty()) return outputs;
    for (const Batch& rows : BatchPlan(lengths_of(texts), {}, evaluation_batches(64)).epoch(0)) {
      Context context = Context::inference();
      const Tensor found = model_->logits(pad_tokens(pick(texts, rows), model_->device()), context);
      const std::vector<float> values = found.to_vector<float>();
      for (std::size_t i = 0; i < rows.size(); ++i) outputs[static_cast<std::size_t>(rows[i])] = values[i];
    }
    return outputs;
  }

  std::vector<double> errors_of(const Examples& examples) {
    const std::vector<float> outputs = outputs_of(examples.texts);
    double squared = 0, absolute = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const double error = static_cast<double>(outputs[i]) - static_cast<double>(examples.targets[i]);
      squared += error * error / static_cast<double>(outputs.size());
      absolute += std::abs(error) / static_cast<double>(outputs.size());
    }
    return {squared, absolute};
  }

  Measurement measurement_of(const LabelledText& text) {
    check(text.size() > 0, "there are no texts to measure on");
    nlohmann::ordered_json json;
    Measurement measurement{metrics(errors_of(examples_of(text))), "", {}};
    for (const Metric& metric : measurement.metrics) json[metric.name] = metric.value;
    json["texts"] = text.size();
    measurement.json = json.dump();
    return measurement;
  }

  TextParts parts_;
  std::optional<BoundedTokenizer> tokenizer_;
  std::unique_ptr<EncoderClassifier> model_;
  Examples train_, valid_;
  std::optional<BatchPlan> plan_;
  EpochBatches<BatchPlan> batches_;
};

const TaskKind& rate_task() {
  static const TaskKind kind{
      "rate",
      "Learns a number for a text, measures it, and rates texts with it",
      Stacks::encoder,
      metrics_of_rate,
      rate_settings,
      [](const Settings& settings) { return !settings.get<std::string>("data.file").empty(); },
      make_learner<RateLearner>};
  return kind;
}

}  // namespace

int main(int argc, char** argv) {
  programs::TaskProgram program{.kind = rate_task(),
                                .by_rule = "how large a number is from its English words"};
  program.train_flags = {{"--data", "data.file", "FILE"}};
  program.files = {{{"Lines to measure on; default: what was held out"}, "--data"}};
  return programs::run_task_program(program, argc, argv);
}
