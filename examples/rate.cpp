// rate: learns a number for a text. A whole task with its program in one file; CONTRIBUTING.md explains it.
//
// With --data it learns from lines "NUMBER TEXT"; without, how large a number is from its English words
// ("seven hundred" -> log10 700 = 2.845). The classifier's encoder has one output y; the loss is the squared
// error.

#include <cmath>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/tasks/examples.h"
#include "heed/apps/tasks/recipe.h"
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

LabelledText read_rated(const std::string& file, const Settings& layout, ReadReport& report) {
  return read_labelled_text(file, {.format = "lines", .text = layout.read<TextOptions>("data")}, &report);
}

class RateLearner : public Learner {
 public:
  RateLearner(const TaskKind& kind, Settings given)
      : Learner(kind, std::move(given)),
        data_(settings_.read<RateData>("data")),
        batch_size_(settings_.read<PredictionSettings>("prediction").batch_size) {
    unit_ = "texts";
    if (label_smoothing_ > 0)
      throw SettingsError("training.label_smoothing needs classes; this task predicts a number");
  }

  // --- what it loses: sum_i (y_i - t_i)^2
  void prepare_training() override {
    train_ = examples_of(parts_.train);
    valid_ = examples_of(parts_.valid);
    plan_batches({lengths_of(train_.inputs), {}}, training_batches(settings_));
  }
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.at(epoch, batch);
    const Tensor rates = outputs(pick(train_.inputs, rows), context),
                 targets = Tensor::from(pick(train_.targets, rows), rates.shape(), rates.device());
    return {sum(square(rates - targets)), rates.size(0)};
  }
  Evaluation evaluate() override {
    if (valid_.inputs.empty()) return {};
    const Batch rows = spread_over(valid_.inputs.size(), sample());  // all, where it chooses weights
    return evaluation(errors_of(picked(valid_, rows)).metrics, rows.size(), valid_.inputs.size());
  }

  // --- what it answers
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    const auto answers_to = [&](const std::vector<Tokens>& texts) {
      std::vector<Prediction> answers;
      for (const Output& rate : rates_of(texts)) answers.push_back({std::to_string(rate[0]), 1});
      return answers;
    };
    return answer_texts(lines, options, *tokenizer_, answers_to,
                        [&](const auto& texts, Context& context) { return outputs(texts, context); });
  }
  Tensor outputs_of_lines(std::span<const std::string> lines, Context& context) override {
    return outputs(inputs_of_lines(lines, [&](const std::string& line) { return (*tokenizer_)(line); }),
                   context);
  }

 protected:
  // --- what it reads: texts with their numbers
  std::map<std::string, std::string> read_parts() override {
    const LabelledText text = reported([&](ReadReport& report) {
      return data_.file.empty() ? number_words_by_rule() : read_rated(data_.file, settings_, report);
    });
    parts_ = split_text(text, {.valid_fraction = data_.valid_fraction});
    return digests_of(parts_, [](const LabelledText& part) { return digest_of(part); });
  }
  NamedFiles learned_files() override { return learned_tokenizer(all_texts(parts_.train)); }
  std::string take_cut_message() override { return tokenizer_ ? tokenizer_->take_cut_message() : ""; }
  void open(const ReadFile& read) override {
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
  }
  std::unique_ptr<Module> make_model() override {
    const std::int64_t vocabulary = tokenizer_ ? tokenizer_->tokenizer().vocabulary_size() : 300;
    return model_of<EncoderClassifier>(encoder_config(vocabulary, 1), batch_tokens());
  }

  // --- how it is measured
  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
      return read_rated(files.front(), layout, report);
    };
    return measured_data(parts_, source, read,
                         [&](const LabelledText& text) { return errors_of(examples_of(text)); });
  }

 private:
  using Examples = TaskExamples<Tokens, float>;

  Examples examples_of(const LabelledText& text) {
    Examples examples{(*tokenizer_)(text.texts, text.places), {}};
    for (std::size_t i = 0; i < text.size(); ++i)
      examples.targets.push_back(number_in(std::string(text.labels[i]), text.places[i]));
    return examples;
  }
  Tensor outputs(const std::vector<Tokens>& texts, Context& context) {
    auto& model = model_as<EncoderClassifier>();
    return model.logits(pad_tokens(texts, model.device()), context);  // [B, 1]
  }
  std::vector<Output> rates_of(const std::vector<Tokens>& texts) {
    return outputs_of(
        texts, {lengths_of(texts), {}}, batch_size_, ranks(),
        [&](const std::vector<Tokens>& batch, Context& context) { return outputs(batch, context); });
  }
  Measurement errors_of(const Examples& examples) {
    const std::vector<Output> rates = rates_of(examples.inputs);
    const auto count = static_cast<double>(rates.size());
    std::vector<double> means(2);
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const double error = double{rates[i][0]} - double{examples.targets[i]};
      means[0] += error * error / count, means[1] += std::abs(error) / count;
    }
    return measurement(means, rates.size());
  }

  const RateData data_;
  const std::int64_t batch_size_;
  TextParts parts_;
  std::optional<BoundedTokenizer> tokenizer_;
  Examples train_, valid_;
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
  program.files = "Lines to measure on; default: what was held out";
  return programs::run_task_program(program, argc, argv);
}
