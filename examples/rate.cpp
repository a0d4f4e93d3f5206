// rate: learns a number for a text. A whole task with its program in one file; CONTRIBUTING.md explains it.
//
// With --data it learns from lines "NUMBER TEXT"; without, how large a number is from its English words
// ("seven hundred" -> log10 700 = 2.845). The classifier's encoder has one output y; the loss is the squared
// error.

#include <cmath>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/tasks/example_learner.h"
#include "heed/autograd/ops.h"
#include "heed/data/pairs_by_rule.h"
#include "heed/models/classifier.h"

namespace {

using namespace heed;

constexpr MetricKind errors[] = {{"mean_squared_error", false}, {"mean_error", false}};

struct RateData {
  std::string file = {};
  double valid_fraction = 0.1;
  TextOptions text = {};
  TextLimits limits = {};
};

void for_each_setting(auto&& visit, RateData& data) {
  visit(data.file, "file", "Lines to learn from: a number, a space, a text");
  visit(data.valid_fraction, "valid_fraction", 0.001, 0.999, "Share of the texts that is held out");
  for_each_setting(visit, data.text);
  for_each_setting(visit, data.limits);
}

Settings rate_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", RateData());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings{.vocabulary = own_data ? 4000 : 300});
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1}, Stacks::encoder);
  declare_training(settings, errors);
  settings.declare("prediction", PredictionSettings());
  settings.change_defaults(R"({"training": {"steps": 400, "evaluate_every": 80, "save_every": 100,
    "label_smoothing": 0, "schedule": {"warmup_steps": 50, "learning_rate": 0.003}}})");
  return settings;
}

LabelledText number_words_by_rule() {
  LabelledText text;
  const std::vector<std::int32_t> numbers = draw_numbers(1, 3000, 1).train;
  const TextList words = number_words(numbers).source;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text.add(words[i], std::to_string(std::log10(numbers[i] + 1.0)), words[i]);
  return text;
}

float number_in(const std::string& text, const std::string& place) {
  char* end = nullptr;
  const float number = std::strtof(text.c_str(), &end);
  check(end == text.c_str() + text.size() && !text.empty() && std::isfinite(number), place, ": \"", text,
        "\" is no number, or too large for f32");
  return number;
}

class RateLearner : public TextExampleLearner<EncoderClassifier, LabelledText, float> {
 public:
  using TextExampleLearner::TextExampleLearner;

  void check_settings() const override {
    TextExampleLearner::check_settings();
    if (settings_.get<double>("training.label_smoothing") > 0)
      throw SettingsError("training.label_smoothing needs classes; this task predicts a number");
  }

 protected:
  // --- what it reads: texts with their numbers
  TextParts read_parts(ReadReport& report) override {
    const auto data = settings_.read<RateData>("data");
    const LabelledText text =
        data.file.empty() ? number_words_by_rule() : read(std::vector{data.file}, report);
    return split_text(text, {.valid_fraction = data.valid_fraction});
  }
  LabelledText read(std::span<const std::string> files, ReadReport& report) override {
    return read_labelled_text(files.front(), {.format = "lines", .text = settings_.read<TextOptions>("data")},
                              &report);
  }
  Examples examples_of(const LabelledText& text) override {
    Examples examples{(*tokenizer_)(text.texts, text.places), {}};
    for (std::size_t i = 0; i < text.size(); ++i)
      examples.targets.push_back(number_in(std::string(text.labels[i]), text.places[i]));
    return examples;
  }

  // --- what it loses: sum_i (y_i - t_i)^2
  Loss loss_of(const std::vector<Tokens>& texts, const std::vector<float>& rates, Context& context) override {
    const Tensor targets = Tensor::from(rates, {std::ssize(rates), 1}, model_->device());
    return {sum(square(outputs(texts, context) - targets)), std::ssize(rates)};
  }

  // --- what it answers
  std::int64_t classes() const override { return 1; }
  Tensor outputs(const std::vector<Tokens>& texts, Context& context) override {
    return model_->logits(pad_tokens(texts, model_->device()), context);  // [B, 1]
  }
  Prediction prediction_of(const Tokens&, const Output& output) const override {
    return {std::to_string(output[0]), 1, {}, ""};
  }
  Measurement measured(const Examples& examples, const LabelledText&) override {
    const std::vector<Output> outputs = outputs_of(examples.inputs);
    const auto count = static_cast<double>(outputs.size());
    std::vector<double> means(2);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const double error = double{outputs[i][0]} - double{examples.targets[i]};
      means[0] += error * error / count, means[1] += std::abs(error) / count;
    }
    return measurement(means, outputs.size());
  }
};

}  // namespace

int main(int argc, char** argv) {
  const TaskKind kind =
      task_of<RateLearner>("rate", "Learns a number for a text, measures it, and rates texts with it",
                           Stacks::encoder, errors, rate_settings, names_file);
  programs::TaskProgram program{.kind = kind,
                                .by_rule = "how large a number is from its English words",
                                .suits = "a few thousand short texts",
                                .example = "--data rated.txt --out runs/rated",
                                .answer = "number"};
  program.train_flags = {"data.file"};
  program.files = {{{"Lines to measure on; default: what was held out"}, "--data"}};
  return programs::run_task_program(program, argc, argv);
}
