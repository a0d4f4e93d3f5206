// Rating: learns a number for a text, such as the stars of a review, or for a pair of texts, such as how
// alike they are. An encoder with one output and, beside it, a linear part over words and parts of words
// (models/classifier.h) each learn the number by the squared error. Rated texts come from files
// (apps/data/labelled_text.h); without them it learns how large a number is from its English words.
//
// Files of a run beside the weights: tokenizer.json and scale.json. Numbers of the data and answers are
// f64. Parts of the data: train, valid, test.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/tasks/labelled.h"
#include "heed/apps/tasks/pair_input.h"
#include "heed/autograd/ops.h"
#include "heed/base/json.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr MetricKind error_metrics[] = {
    {"root_mean_squared_error", false}, {"mean_absolute_error", false}, {"r2", true}};

// --- settings

constexpr const char* for_numbers = R"({
  "tokenizer": {"vocabulary": 300}, "model": {"width": 64, "feed_forward": 128, "encoder_layers": 1},
  "training": {"steps": 400, "evaluate_every": 80, "save_every": 100,
    "schedule": {"warmup_steps": 50, "learning_rate": 0.003}}})";

Settings rate_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare(
      "data", LabelledData{.formats = labelled_formats(),
                           .formats_help = "lines: a number, a space and a text; csv; tsv; jsonl; folders: "
                                           "for each number a folder of documents, or a file with a text on "
                                           "each line",
                           .label_help = "Tables: column of the number to predict, a number from 1 or a "
                                         "name; empty: \"label\", or the column of numbers",
                           .split = {.valid_fraction = 0.1, .classes = false}});
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", PairMarks());
  settings.declare("tokenizer", VocabularySettings());
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1}, Stacks::encoder,
                /*has_sparse_features=*/true);
  settings.declare("model", PairModel());
  declare_training(settings, error_metrics, /*smooths=*/false);
  settings.declare("training", ExportableTraining());
  settings.declare("training", StaticVectorSettings());
  settings.declare("prediction", PredictionSettings());
  settings.change_defaults(own_data ? for_labelled_texts : for_numbers);
  return settings;
}

/// Generates number words rated by log10(n + 1).
LabelledText number_sizes(const Settings& settings) {
  LabelledText text;
  const std::vector<std::int32_t> numbers =
      draw_numbers(settings.read<SplitOptions>("data").seed, 3000, 1).train;
  const TextList words = number_words(numbers).source;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text.add(words[i], formatted("%.6f", std::log10(numbers[i] + 1.0)), words[i]);
  return text;
}

// --- numbers

/// Returns the root of the mean square of numbers of any magnitude, whose squares may not exist.
double root_mean_square(const std::vector<double>& numbers) {
  double largest = 0, squares = 0;
  for (const double number : numbers) largest = std::max(largest, std::abs(number));
  for (const double number : numbers)
    squares += std::pow(number / largest, 2) / static_cast<double>(numbers.size());
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
    const Json json = parse_json<Json>(text, "scale.json", 2);
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
  std::string json() const { return Json({{"mean", mean}, {"deviation", deviation}}).dump(2) + "\n"; }
  /// If all numbers are equal, each is 0 and every answer is their mean.
  float scaled(double number) const {
    return deviation > 0 ? static_cast<float>((number - mean) / deviation) : 0;
  }
  double unscaled(double output) const { return mean + deviation * output; }
  /// Returns an answer with the digits that the model tells: nine of those of the deviation.
  std::string text(double answer) const {
    if (!(deviation > 0)) return number_text(answer);
    const double more = std::min(std::log10(std::max(1.0, std::abs(answer) / deviation)), 8.0);
    return number_text(*parsed_number(formatted("%.*g", 9 + static_cast<int>(more), answer)));
  }
};

/// A number for each example; the output is in units of the deviation. The file is "scale.json": the mean
/// and the standard deviation of the numbers to learn from, by which targets are standardised.
class NumberHead {
 public:
  using Target = double;
  static constexpr bool has_classes = false;

  NumberHead(const TaskEntry& entry, const Settings& /*settings*/) : metrics_(entry.metrics) {}

  static void check_training(const Settings& settings) {
    if (!reads_pairs(settings) && !settings.read<PairModel>("model").is_joint())
      throw SettingsError(
          "model.kind is for pairs: name their columns (data.first_column, data.second_column)");
  }
  std::vector<std::string> review(const TextParts& parts, const std::string& unit,
                                  const std::string& input) const {
    return {concat_text(parts.train.size(), ' ', unit, " for training, ", parts.valid.size(),
                        " for validation, ", parts.test.size(), " for testing; their numbers have the mean ",
                        scale_.mean, " and the standard deviation ", scale_.deviation, "; ", input)};
  }
  std::string remark_on(const LabelledText& /*text*/, const std::string& /*unit*/) const { return ""; }

  NamedFiles learned_files(const LabelledText& train) const {
    return {{"scale.json", Scale::of(targets(train)).json()}};
  }
  std::vector<std::string> open(const ReadFile& read) {
    scale_ = Scale::from_json(read("scale.json"));
    return {};  // no classes
  }
  std::int64_t size() const { return 1; }

  std::vector<double> targets(const LabelledText& text) const {
    std::vector<double> numbers;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::optional<double> number = parsed_number(text.labels[i]);
      check(number && std::abs(*number) <= most_in_f32, text.places[i], ": \"",
            unicode::shortened(text.labels[i], 40), "\" is not a number in the range of f32");
      numbers.push_back(*number);
    }
    return numbers;
  }
  std::vector<std::int32_t> balanced_classes(const std::vector<double>& /*targets*/) const { return {}; }

  /// Returns the sum of w_i (y_i - t_i)^2 over the texts, in units of the deviation, of the encoder.
  Loss loss(const ClassLogits& logits, const std::vector<double>& targets, const Tensor& weights,
            double /*label_smoothing*/) const {
    const Tensor expected = Tensor::from(scaled(targets), logits.deep.shape(), logits.deep.device());
    const Tensor squares = square(logits.deep - expected);
    return {sum(weights.defined() ? squares * reshape(weights, squares.shape()) : squares),
            std::ssize(targets)};
  }

  /// Returns the answers in the units of the labels; on the CPU in f64.
  Tensor outputs(const ClassLogits& logits) const {
    const Tensor found = logits.together();
    return (found.device() == Device() ? cast(found, DType::f64) : found) * scale_.deviation + scale_.mean;
  }
  Tensor scores(const ClassLogits& logits) const { return logits.together(); }
  static constexpr OutputKind output_kind = OutputKind::numbers;
  std::vector<float> sparse_targets(const std::vector<double>& targets) const { return scaled(targets); }
  void fit_shares(SparseLinear& sparse, const std::vector<Output>& parts,
                  const std::vector<double>& targets) const {
    sparse.fit_shares(parts, scaled(targets));
  }

  std::vector<Prediction> predictions(const std::vector<Output>& scores) const {
    std::vector<Prediction> answers;
    for (const double number : numbers(scores))  // one that is none is an error of Run::predict()
      answers.push_back({scale_.text(number), std::isfinite(number) ? 1 : number});
    return answers;
  }

  /// Computes R^2 = 1 - squared errors / squares around the mean. If all numbers are equal, it is 1
  /// for answers without an error, otherwise 0, as in scikit-learn.
  Measurement measurement(const std::vector<Output>& scores, const std::vector<double>& targets,
                          const LabelledText& text) const {
    std::vector<double> errors = numbers(scores);
    Measurement found;
    found.examples = {"mean_absolute_error", "mean", {}};
    double absolutes = 0;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      errors[i] -= targets[i];
      found.examples.rows.push_back({std::abs(errors[i]), 1});
      absolutes += std::abs(errors[i]) / static_cast<double>(errors.size());
    }
    const double error = root_mean_square(errors), deviation = Scale::of(targets).deviation;
    const double r2 = deviation > 0 ? 1 - std::pow(error / deviation, 2) : error > 0 ? 0 : 1;
    found.metrics = metrics_of(metrics_, std::vector<double>{error, absolutes, r2});
    found.count = std::ssize(targets);
    Json json;
    for (const Metric& metric : found.metrics) json[metric.name] = metric.value;
    json[text.seconds.empty() ? "texts" : "pairs"] = targets.size();
    found.json = json.dump();
    return found;
  }

 private:
  std::vector<double> numbers(const std::vector<Output>& scores) const {
    std::vector<double> numbers;
    for (const Output& score : scores) numbers.push_back(scale_.unscaled(static_cast<double>(score.front())));
    return numbers;
  }
  std::vector<float> scaled(const std::vector<double>& numbers) const {
    std::vector<float> scaled;
    for (const double number : numbers) scaled.push_back(scale_.scaled(number));
    return scaled;
  }

  const std::span<const MetricKind> metrics_;
  Scale scale_;
};

/// Pairs for an encoder that reads them as one text (PairMarks), such as a published cross-encoder.
class JoinedPairInput : public SingleTextInput {
 public:
  static constexpr const char* unit = "pairs";
  using SingleTextInput::SingleTextInput;
  LabelledText read(const std::string& path, const Settings& layout, ReadReport& report) const {
    LabelledText pairs = SingleTextInput::read(path, layout, report);
    TextList joined;
    for (std::size_t i = 0; i < pairs.size(); ++i) joined.push_back(text_at(pairs, i));
    pairs.texts = std::move(joined);
    pairs.seconds = {};
    return pairs;
  }
};

template <class Input>
using Rater = LabelledTask<Input, NumberHead, number_sizes>;

std::unique_ptr<Task> make_rater(const TaskEntry& entry, Settings settings) {
  if (!reads_pairs(settings)) return std::make_unique<Rater<SingleTextInput>>(entry, std::move(settings));
  if (!settings.read<PairMarks>("tokenizer").between.empty())
    return std::make_unique<Rater<JoinedPairInput>>(entry, std::move(settings));
  if (!vectors_folder(settings).empty())
    throw SettingsError(
        "training.vectors are for single texts, not for data.first_column and data.second_column");
  if (settings.read<TrainingSettings>("training").from.empty()) settings.change_defaults(for_pairs);
  return std::make_unique<Rater<TextPairInput>>(entry, std::move(settings));
}

}  // namespace

const TaskEntry& rate_task() {
  static const TaskEntry entry = {
      "rate",
      "Trains, evaluates and uses a model that predicts a number for a text or a pair of texts",
      Stacks::encoder,
      error_metrics,
      rate_settings,
      names_labelled_data,
      {{"",
        {{"text", "A text"}, {.name = "label", .help = "Its number", .is_number = true}, weight_of_example}}},
      for_fine_tuning,
      make_rater,
      NumberHead::check_training,
      SingleTextInput::read_rows};
  return entry;
}

}  // namespace heed
