// Rating: learns a number for a text, such as the stars of a review. An encoder with one output and, beside
// it, a linear part over words and parts of words (models/classifier.h) each learn the number by the squared
// error. Rated texts come from files (apps/data/labelled_text.h); without them it learns how large a number is
// from its English words.
//
// Files of a run beside the weights: tokenizer.json, and scale.json with the mean and the standard deviation
// of the numbers to learn from, by which targets are standardised. Numbers of the data and answers are f64.
// Parts of the data: train, valid, test.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/apps/data/synthetic_pairs.h"
#include "heed/apps/tasks/labelled.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/ops.h"
#include "heed/base/json.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/models/classifier.h"

namespace heed {
namespace {

constexpr MetricKind error_metrics[] = {
    {"root_mean_squared_error", false}, {"mean_absolute_error", false}, {"r2", true}};

// --- settings

struct RateData {
  LabelledFiles files = {
      .formats = labelled_formats(),
      .formats_help =
          "lines: a number, a space and a text; csv; tsv; jsonl; folders: for each number a "
          "folder of documents, or a file with a text on each line"};
  std::string label_column = {}, weight_column = {};
  std::vector<std::string> text_columns = {};
  SplitOptions split = {.valid_fraction = 0.1};
  TextLimits limits = {};
};

void for_each_setting(auto&& visit, RateData& data) {
  for_each_setting(visit, data.files);
  visit(data.label_column, "label_column",
        "Tables: column of the number to predict, a number from 1 or a name; empty: \"label\", or the column "
        "of numbers",
        {.kind = Setting::Kind::column});
  visit_weight_column(visit, data.weight_column);
  visit_text_columns(visit, data.text_columns);
  visit_split(visit, data.split, /*of_classes=*/false);
  for_each_setting(visit, data.limits);
}

/// Defaults for rated texts: fitting the shares of the parts takes more held-out texts than for
/// classes.
constexpr const char* for_ratings = R"({"data": {"valid_fraction": 0.1}})";

constexpr const char* for_numbers = R"({
  "tokenizer": {"vocabulary": 300}, "model": {"width": 64, "feed_forward": 128, "encoder_layers": 1},
  "training": {"steps": 400, "evaluate_every": 80, "save_every": 100,
    "schedule": {"warmup_steps": 50, "learning_rate": 0.003}}})";

Settings rate_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", RateData());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1}, Stacks::encoder,
                /*has_sparse_features=*/true);
  declare_training(settings, error_metrics, /*smooths=*/false);
  settings.declare("prediction", PredictionSettings());
  if (own_data) settings.change_defaults(for_labelled_texts);
  settings.change_defaults(own_data ? for_ratings : for_numbers);
  return settings;
}

// --- data

/// Generates number words rated by log10(n + 1).
LabelledText number_sizes(std::uint64_t seed) {
  LabelledText text;
  const std::vector<std::int32_t> numbers = draw_numbers(seed, 3000, 1).train;
  const TextList words = number_words(numbers).source;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text.add(words[i], formatted("%.6f", std::log10(numbers[i] + 1.0)), words[i]);
  return text;
}

double number_in(std::string_view text, const std::string& place) {
  const std::optional<double> number = parsed_number(text);
  check(number && std::abs(*number) <= most_in_f32, place, ": \"", unicode::shortened(text, 40),
        "\" is not a number in the range of f32");
  return *number;
}

double largest_magnitude(const std::vector<double>& numbers) {
  double largest = 0;
  for (const double number : numbers) largest = std::max(largest, std::abs(number));
  return largest;
}

/// Returns the root of the mean square of numbers of any magnitude, whose squares may not exist.
double root_mean_square(const std::vector<double>& numbers) {
  const double largest = largest_magnitude(numbers), count = static_cast<double>(numbers.size());
  double squares = 0;
  for (const double number : numbers) squares += std::pow(number / largest, 2) / count;
  return largest > 0 ? largest * std::sqrt(squares) : 0;
}

/// Maps numbers to a mean of 0 and a standard deviation of 1, and back.
struct Scale {
  double mean = 0, deviation = 0;

  /// Sums distances from the first number: a constant that all have in common does not matter.
  static Scale of(std::vector<double> numbers) {
    if (numbers.empty()) return {};
    const double first = numbers.front(), count = static_cast<double>(numbers.size());
    double mean = 0;
    for (double& number : numbers) mean += (number -= first) / count;
    for (double& number : numbers) number -= mean;
    return {first + mean, root_mean_square(numbers)};
  }
  static Scale from_json(const std::string& text) {
    const auto json = parse_json<nlohmann::json>(text, "scale.json", 2);
    const auto member = [&](const char* name) {
      check(json.is_object() && json.contains(name) && json.at(name).is_number(), "scale.json: expected \"",
            name, "\", a number");
      return json.at(name).get<double>();
    };
    const Scale scale{member("mean"), member("deviation")};
    check(std::isfinite(scale.mean) && std::isfinite(scale.deviation) && scale.deviation >= 0,
          "scale.json: the mean is ", scale.mean, " and the deviation ", scale.deviation,
          "; expected finite numbers, and a deviation from 0");
    return scale;
  }
  std::string json() const {
    return nlohmann::ordered_json({{"mean", mean}, {"deviation", deviation}}).dump(2) + "\n";
  }
  /// If all numbers are equal, each is 0 and every answer is their mean.
  float scaled(double number) const {
    return deviation > 0 ? static_cast<float>((number - mean) / deviation) : 0;
  }
  double unscaled(double output) const { return mean + deviation * output; }
  /// Returns an answer with the digits that the model tells: nine of those of the deviation.
  std::string text_of(double answer) const {
    if (!(deviation > 0)) return number_text(answer);
    const double more = std::min(std::log10(std::max(1.0, std::abs(answer) / deviation)), 8.0);
    return number_text(*parsed_number(formatted("%.*g", 9 + static_cast<int>(more), answer)));
  }
};

class RateLearner : public Learner, public HasOutputs {
 public:
  RateLearner(const TaskKind& kind, Settings given)
      : Learner(kind, std::move(given)),
        data_(settings_.read<RateData>("data")),
        batch_size_(settings_.read<PredictionSettings>("prediction").batch_size) {
    unit_ = "texts";
  }

  void prepare_training() override {
    train_ = make_examples(parts_.train);
    valid_ = make_examples(parts_.valid);
    weights_ = example_weights(parts_.train);
    remark(concat_text(parts_.train.size(), " texts for training, ", parts_.valid.size(), " for validation, ",
                       parts_.test.size(), " for testing; their numbers have the mean ", scale_.mean,
                       " and the standard deviation ", scale_.deviation, "; vocabulary ",
                       tokenizer_->tokenizer().vocabulary_size()));
    plan_batches(lengths(train_.inputs), training_batches(settings_));
    limit_epochs(is_fine_tuned() ? fine_tuning_epoch_limit : text_epoch_limit);
    remark(steps_remark(settings_, batches(0)));
  }

  /// Returns the sum of w_i (y_i - t_i)^2 over the texts, in units of the deviation; with two
  /// parts, their mean.
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.at(epoch, batch);
    const ClassLogits found = outputs(pick(train_.inputs, rows), context);
    const std::vector<float> weights = batch_weights(weights_, rows);
    std::vector<float> targets;
    for (const double number : pick(train_.targets, rows)) targets.push_back(scale_.scaled(number));
    const auto column = [&](const std::vector<float>& values) {
      return Tensor::from(values, found.deep.shape(), found.deep.device());
    };
    const auto summed = [&](const Tensor& numbers) {
      const Tensor squares = square(numbers - column(targets));
      return sum(weights.empty() ? squares : squares * column(weights));
    };
    const Tensor deep = summed(found.deep);
    return {found.sparse.defined() ? (deep + summed(found.sparse)) / 2 : deep, found.deep.size(0)};
  }

  Evaluation evaluate() override {
    if (valid_.inputs.empty()) return {};
    const Batch rows = spread_over(valid_.inputs.size(), sample());  // all, where it chooses weights
    const Examples read = picked(valid_, rows);
    if (SparseLinear* const sparse = model_as<EncoderClassifier>().sparse()) fit_shares(*sparse, read);
    return evaluation(measure_errors(read).metrics, rows.size(), valid_.inputs.size());
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    return answer_lines(
        lines, options, [&](const std::string& line) { return input_of(line); },
        [&](const Inputs& inputs) {
          std::vector<Prediction> answers;
          for (const double number :
               predict_numbers(inputs))  // one that is none is an error of Run::predict()
            answers.push_back({scale_.text_of(number), std::isfinite(number) ? 1 : number});
          return answers;
        },
        [&](const TokenizedText& input, const std::string& name, CaptureFile& file) {
          add_pass(file, name, captured([&](Context& context) { outputs({input}, context); }), {input.tokens},
                   tokenizer_->tokenizer());
        });
  }

  /// Returns the answers in the units of the labels; on the CPU in f64.
  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    const auto inputs = inputs_of_lines(lines, [&](const std::string& line) { return input_of(line); });
    const Tensor found = outputs(inputs, context).together();
    return (found.device() == Device() ? cast(found, DType::f64) : found) * scale_.deviation + scale_.mean;
  }

  static void read_rows(const Settings& settings, const std::string& file, const TakeText& take,
                        ReadReport& report) {
    read_texts_of_table(file, text_options(file, settings), take, &report);
  }

 protected:
  std::map<std::string, std::string> read_parts() override {
    parts_ = reported([&](ReadReport& report) {
      return read_labelled_parts(
          settings_, Labels::numbers, [&] { return number_sizes(data_.split.seed); },
          [&](const std::string& path, const Settings& layout) { return read_file(path, layout, report); });
    });
    return digests_of(parts_, [](const LabelledText& text) { return compute_digest(text); });
  }

  NamedFiles learned_files() override {
    NamedFiles files = learned_tokenizer(all_texts(parts_.train));
    files["scale.json"] = Scale::of(numbers_in(parts_.train)).json();
    return files;
  }

  void open(const ReadFile& read) override {
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
    truncation_message_ = [this] { return tokenizer_->take_truncation_message(); };
    scale_ = Scale::from_json(read("scale.json"));
  }

  std::unique_ptr<Module> make_model() override {
    const std::int64_t vocabulary = tokenizer_ ? tokenizer_->tokenizer().vocabulary_size() : 300;
    return model_of<EncoderClassifier>(encoder_config(vocabulary, 1), batch_tokens());
  }

  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
      return read_file(files.front(), layout, report);
    };
    return measured_data(parts_, source, read,
                         [&](const LabelledText& text) { return measure_errors(make_examples(text)); });
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    return labelled_lines(shown_part(parts_), count);
  }

 private:
  using Inputs = std::vector<TokenizedText>;
  using Examples = TaskExamples<TokenizedText, double>;

  // --- input

  static LabelledText read_file(const std::string& path, const Settings& layout, ReadReport& report) {
    return read_labelled_text(path, text_options(path, layout), &report);
  }

  static LabelledOptions text_options(const std::string& path, const Settings& layout) {
    const auto data = layout.read<RateData>("data");
    LabelledOptions options = labelled_options(
        layout, path,
        "data.format=lines (a number, a space and a text on each line), data.format=csv, tsv or jsonl");
    options.label_column = data.label_column;
    options.text_columns = data.text_columns;
    if (path == data.files.files.file) options.weight_column = data.weight_column;
    options.numbers = true;
    return options;
  }

  /// The line must outlive the input.
  TokenizedText input_of(const std::string& line) { return {(*tokenizer_)(line), line}; }

  static std::vector<double> numbers_in(const LabelledText& text) {
    std::vector<double> numbers;
    for (std::size_t i = 0; i < text.size(); ++i)
      numbers.push_back(number_in(text.labels[i], text.places[i]));
    return numbers;
  }

  Examples make_examples(const LabelledText& text) {
    Examples examples{{}, numbers_in(text)};
    std::vector<Tokens> tokens = (*tokenizer_)(text.texts, text.places);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      examples.inputs.push_back({std::move(tokens[i]), text.texts[i]});
    return examples;
  }

  static Lengths lengths(const Inputs& inputs) {
    Lengths lengths;
    for (const TokenizedText& input : inputs)
      lengths[0].push_back(static_cast<std::int32_t>(input.tokens.size()));
    return lengths;
  }

  // --- predictions

  /// Returns the outputs [B, 1] of each part, in units of the deviation.
  ClassLogits outputs(const Inputs& inputs, Context& context) {
    return logits_of_texts(model_as<EncoderClassifier>(), inputs, context);
  }

  std::vector<Output> outputs(const Inputs& inputs, Tensor (ClassLogits::*of_outputs)() const) {
    return outputs_of(
        *this, inputs, lengths(inputs), batch_size_,
        [&](const Inputs& batch, Context& context) { return (outputs(batch, context).*of_outputs)(); });
  }

  std::vector<double> predict_numbers(const Inputs& inputs) {
    std::vector<double> numbers;
    for (const Output& one : outputs(inputs, &ClassLogits::together))
      numbers.push_back(scale_.unscaled(static_cast<double>(one[0])));
    return numbers;
  }

  void fit_shares(SparseLinear& sparse, const Examples& read) {
    std::vector<float> targets;
    for (const double number : read.targets) targets.push_back(scale_.scaled(number));
    sparse.fit_shares(outputs(read.inputs, &ClassLogits::side_by_side), targets);
  }

  /// Computes R^2 = 1 - squared errors / squares around the mean. If all numbers are equal, it is 1
  /// for answers without an error, otherwise 0, as in scikit-learn.
  Measurement measure_errors(const Examples& examples) {
    const std::vector<double> numbers = predict_numbers(examples.inputs);
    std::vector<double> errors;
    std::vector<std::vector<double>> rows;
    double absolutes = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      errors.push_back(numbers[i] - examples.targets[i]);
      rows.push_back({std::abs(errors[i]), 1});
      absolutes += std::abs(errors[i]) / static_cast<double>(numbers.size());
    }
    const double error = root_mean_square(errors), deviation = Scale::of(examples.targets).deviation;
    const double r2 = deviation > 0 ? 1 - std::pow(error / deviation, 2) : error > 0 ? 0 : 1;
    Measurement found = measurement(std::vector<double>{error, absolutes, r2}, numbers.size());
    found.examples = {"mean_absolute_error", "mean", std::move(rows)};
    return found;
  }

  const RateData data_;
  const std::int64_t batch_size_;
  TextParts parts_;
  std::optional<BoundedTokenizer> tokenizer_;
  Scale scale_;
  Examples train_, valid_;
  std::vector<float> weights_;  // of the texts to learn from; empty: all alike
};

}  // namespace

const TaskKind& rate_task() {
  static const TaskKind kind =
      make_task_kind<RateLearner>({"rate",
                                   "Trains, evaluates and uses a model that predicts a number for a text",
                                   Stacks::encoder,
                                   error_metrics,
                                   rate_settings,
                                   names_labelled_data,
                                   {{"",
                                     {{"text", "A text"},
                                      {.name = "label", .help = "Its number", .is_number = true},
                                      weight_of_example}}},
                                   for_fine_tuning});
  return kind;
}

}  // namespace heed
