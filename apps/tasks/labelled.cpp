#include "heed/apps/tasks/labelled.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/ops.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t most_confused = 200;  // classes: a larger confusion matrix is unreadable

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// Returns the number of texts of each class.
std::vector<std::size_t> count_labels(const LabelledText& text, const std::vector<std::string>& classes) {
  std::unordered_map<std::string_view, std::size_t> count_of;
  for (const std::string_view label : text.labels) ++count_of[label];
  std::vector<std::size_t> counts;
  for (const std::string& name : classes) counts.push_back(count_of[name]);
  return counts;
}

std::string in_quotes(std::string_view name) {
  return concat_text('"', unicode::shortened(name, 40), '"');
}

/// Returns "\"good\" 5488, \"bad\" 4512"; of many classes, only the largest.
std::string class_counts(const std::vector<std::size_t>& texts, const std::vector<std::string>& classes) {
  std::vector<std::size_t> order(classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return texts[i]; });
  std::vector<std::string> counts;
  for (const std::size_t i : order) counts.push_back(concat_text(in_quotes(classes[i]), ' ', texts[i]));
  return listed(counts, 10);
}

}  // namespace

void declare_classes(Settings& settings) {
  settings.declare("training", ClassSettings());
  settings.declare("prediction", PredictionSettings{.what = "Examples"});
}

bool names_labelled_data(const Settings& settings) {
  const auto split = settings.read<SplitOptions>("data");
  if (split.folds == 1 || split.fold > split.folds)
    throw SettingsError(concat_text("data.folds must be 0 or at least 2, and data.fold at most as many, not ",
                                    split.folds, " and ", split.fold));
  if (split.folds > 0 && (!settings.read<DataFiles>("data").test.empty() || split.test_fraction > 0))
    throw SettingsError(
        "data.folds makes test parts of data.file: leave out data.test and data.test_fraction ("
        "data.test_fraction)");
  return names_file(settings);
}

LabelledOptions labelled_options(const Settings& settings, const std::string& path, std::string_view help) {
  LabelledOptions options;
  const auto data = settings.read<LabelledFiles>("data");
  options.format = data.format;
  if (options.format.empty() && std::filesystem::is_regular_file(path) && labelled_format(path).empty())
    throw SettingsError(concat_text(path, ": its name does not say how it is laid out; give ", help));
  options.text = data.text;
  options.header = data.header;
  options.delimiter = data.delimiter;
  options.drop_missing = data.missing == LabelledFiles::Missing::drop;
  return options;
}

std::vector<std::string> learned_classes(std::string_view task, const Settings& settings,
                                         const LabelledText& labels) {
  const auto type = settings.get<std::string>("data.label_type");
  const bool is_text = type.empty() || type == "text";
  std::vector<std::string> classes = class_names(labels, type != "text");
  for (const std::string& name : classes)
    if (!is_text && !(type == "boolean" ? name == "false" || name == "true" : is_integer_text(name)))
      throw SettingsError(
          concat_text("data.label_type is ", type, ", but a label is ", in_quotes(name), ", a text"));
  const auto from = settings.get<std::string>("training.from");
  if (from.empty() || !is_text) return classes;
  const std::shared_ptr<const RunFiles> files = open_run(from);
  if (files->task() != task) return classes;
  const std::vector<std::string> its_classes = classes_from_json(files->text("classes.json"));
  return std::ranges::is_permutation(its_classes, classes) ? its_classes : classes;
}

std::string classes_to_json(const std::vector<std::string>& classes) {
  return Json(classes).dump(2) + "\n";
}

std::vector<std::string> classes_from_json(const std::string& text) {
  const Json names = parse_json<Json>(text, "classes.json", 2);
  check(names.is_array() && names.size() >= 2 &&
            std::all_of(names.begin(), names.end(), [](const Json& name) { return name.is_string(); }),
        "classes.json: expected a list of the names of at least two classes");
  auto classes = names.get<std::vector<std::string>>();
  for (const std::string& name : classes) check_label(name, "classes.json");
  std::set<std::string_view> met;
  for (const std::string& name : classes)
    check(met.insert(name).second, "classes.json: two classes are called ", in_quotes(name));
  return classes;
}

namespace {

/// Stores the column names of the training file in the settings if it has a header, because other
/// files are read with the same columns.
void keep_columns(Settings& settings, const LabelledText& train) {
  if (train.columns.empty()) return;
  const auto keep = [&](const char* setting, const Json& columns) {
    settings.set_json(setting, columns.dump(), "the header");
  };
  keep("data.label_column", train.columns[0]);
  if (train.seconds.empty()) {
    keep("data.text_columns", Json(std::vector(train.columns.begin() + 1, train.columns.end())));
  } else {
    keep("data.second_column", train.columns[1]);
    keep("data.first_column", train.columns[2]);
  }
}

}  // namespace

TextParts read_labelled_parts(
    Settings& settings, Labels labels, const std::function<LabelledText()>& by_rule,
    const std::function<LabelledText(const std::string& path, const Settings& layout)>& read) {
  auto split = settings.read<SplitOptions>("data");
  split.classes = labels == Labels::classes;
  split.stratified = split.stratified && split.classes;
  if (!names_labelled_data(settings)) return split_text(by_rule(), split);
  const auto files = settings.read<DataFiles>("data");
  return parts_of_files(
      files, split.valid_fraction, split.test_fraction,
      [&](const std::string& path) {
        LabelledText text = read(path, settings);
        if (path != files.file) return text;
        if (split.classes) check_labels(text, path);
        keep_columns(settings, text);
        return text;
      },
      [&](const LabelledText& all, double valid_fraction, double test_fraction) {
        split.valid_fraction = valid_fraction, split.test_fraction = test_fraction;
        return split_text(all, split);
      });
}

namespace {

/// Returns a text as a line of input; for a pair, both texts with a tab between.
std::string text_at(const LabelledText& text, std::size_t index) {
  std::string whole(text.texts[index]);
  if (!text.seconds.empty()) whole.append("\t").append(text.seconds[index]);
  return whole;
}

}  // namespace

void check_labels(const LabelledText& text, std::string_view origin) {
  constexpr std::size_t many = 200, few_texts = 3;
  std::unordered_set<std::string_view> labels;
  const auto is_bad = [&] { return labels.size() > many && labels.size() * few_texts > text.size(); };
  for (std::size_t i = 0; i < text.size() && !is_bad(); ++i) labels.insert(text.labels[i]);
  if (!is_bad()) return;
  std::vector<std::string> columns;
  for (const std::string& one : text.first_line)
    columns.push_back(concat_text(columns.size() + 1, " (", in_quotes(one), ')'));
  throw SettingsError(
      concat_text(origin, ": its ", text.size(), " texts have more than ", labels.size() - 1,
                  " different labels, fewer than ", few_texts, " texts each; such as ",
                  in_quotes(text.labels[0]), " and ", in_quotes(text.labels[text.size() - 1]), ". ",
                  columns.empty() ? "Many texts must share a label: is data.format right?"
                                  : "Is the label in another column? data.label_column=N names it; the "
                                    "first line has the columns " +
                                        listed(columns, 20)));
}

std::vector<std::string> labelled_data_remarks(const TextParts& parts, const TextParts& labels,
                                               const std::vector<std::string>& classes,
                                               const std::string& unit, const std::string& description) {
  const std::vector<std::size_t> counts = count_labels(labels.train, classes);
  std::vector<std::string> remarks = {
      concat_text(parts.train.size(), ' ', unit, " of ", classes.size(), " classes for training, ",
                  parts.valid.size(), " for validation, ", parts.test.size(), " for testing; ", description),
      "classes: " + class_counts(counts, classes)};
  for (const LabelledText* const part : {&labels.valid, &labels.test})
    remarks.push_back(other_labels_remark(classes, *part, unit));
  std::vector<std::string> rare;
  for (std::size_t i = 0; i < classes.size(); ++i)
    if (counts[i] < 5) rare.push_back(in_quotes(classes[i]));
  if (!rare.empty())
    remarks.push_back(concat_text(
        rare.size(), rare.size() == 1 ? " class has" : " classes have", " fewer than 5 texts (",
        listed(rare, 5), "): is the label where data.format, data.label_column and data.header say?"));
  return remarks;
}

std::string fit_batches(Settings& settings, std::span<const std::int32_t> lengths, std::size_t classes) {
  const std::string path = "training.batch_tokens";
  if (settings.setting(path).is_given || lengths.empty()) return "";
  const double mean =
      std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
  const std::int64_t tokens = std::min<std::int64_t>(std::llround(mean * static_cast<double>(classes)), 4096);
  if (tokens <= settings.get<std::int64_t>(path)) return "";
  settings.set(path, std::to_string(tokens), "the data");
  return concat_text(path, " = ", tokens, ", for about a text of each class in a batch: the texts have ",
                     std::llround(mean), " tokens on average");
}

std::string steps_remark(const Settings& settings, std::int64_t batches) {
  const auto steps = settings.get<std::int64_t>("training.steps");
  if (settings.get<std::int64_t>("training.epochs") > 0 || steps >= batches) return "";
  return concat_text("training.steps = ", steps, " end before all ", batches,
                     " batches were read once: train for more steps on this much data");
}

namespace {

std::vector<float> with_mean_1(std::vector<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  check(sum > 0, "all ", weights.size(), " examples have the weight 0 (data.weight_column), so none counts");
  std::vector<float> scaled;
  for (const double weight : weights)
    scaled.push_back(static_cast<float>(weight / sum * static_cast<double>(weights.size())));
  return scaled;
}

}  // namespace

std::vector<float> example_weights(const LabelledText& text) {
  if (text.weights.empty()) return {};
  return with_mean_1({text.weights.begin(), text.weights.end()});
}

std::vector<float> example_weights(const Settings& settings, const LabelledText& text,
                                   const std::vector<std::int32_t>& labels, std::size_t classes) {
  if (settings.read<ClassSettings>("training").weights == ClassSettings::Weights::equal)
    return example_weights(text);
  std::vector<double> counts(classes, 0), weights;
  for (const std::int32_t label : labels) ++counts[static_cast<std::size_t>(label)];
  for (std::size_t i = 0; i < labels.size(); ++i)
    weights.push_back((text.weights.empty() ? 1 : static_cast<double>(text.weights[i])) /
                      counts[static_cast<std::size_t>(labels[i])]);
  return with_mean_1(std::move(weights));
}

Loss class_loss(const ClassLogits& logits, const std::vector<std::int32_t>& labels,
                const std::vector<float>& weights, double label_smoothing) {
  const auto count = static_cast<std::int64_t>(labels.size());
  const Device device = logits.deep.device();
  return logits.loss(Tensor::from(labels, {count}, device), label_smoothing,
                     weights.empty() ? Tensor() : Tensor::from(weights, {count}, device));
}

SparseBatch sparse_batch(const std::vector<TextFeatures>& features, Device device) {
  std::vector<Tokens> ids;
  for (const TextFeatures& one : features) ids.push_back(one.ids);
  SparseBatch batch = {pad_tokens(ids, device).ids, {}};
  std::vector<float> values;
  const auto width = static_cast<std::size_t>(batch.ids.size(1));
  for (std::size_t row = 0; row < features.size(); ++row) {
    values.insert(values.end(), features[row].values.begin(), features[row].values.end());
    values.resize((row + 1) * width, 0);
  }
  batch.values = Tensor::from(values, batch.ids.shape(), device);
  return batch;
}

ClassLogits logits_of_texts(EncoderClassifier& model, const std::vector<TokenizedText>& texts,
                            Context& context) {
  std::vector<Tokens> tokens;
  for (const TokenizedText& one : texts) tokens.push_back(one.tokens);
  const SparseBatch sparse = make_sparse_batch(
      texts, model,
      [](const TokenizedText& one, std::int64_t count) { return text_features(one.text, count); });
  return model.part_logits(pad_tokens(tokens, model.device()), context, sparse);
}

LabelledText expand_labels(const LabelledText& text, std::string_view separator) {
  LabelledText rows;
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const std::string_view label : split_at(text.labels[i], separator)) {
      check(!label.empty(), text.places[i], ": the labels ", in_quotes(text.labels[i]), " have an empty one");
      rows.add(text.texts[i], label, text.places[i]);
    }
  return rows;
}

std::vector<ClassSet> parse_class_sets(const LabelledText& text, std::string_view separator,
                                       std::span<const std::string> classes) {
  std::vector<ClassSet> sets(text.size());
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const std::string_view label : split_at(text.labels[i], separator)) {
      const auto found = std::ranges::find(classes, label);
      check(found != classes.end(), text.places[i], ": the label ", in_quotes(label), " is none of the ",
            classes.size(), " classes");
      const auto place = static_cast<std::int32_t>(found - classes.begin());
      if (std::ranges::count(sets[i], place) == 0) sets[i].push_back(place);
    }
  return sets;
}

Loss multi_label_loss(const ClassLogits& logits, const std::vector<ClassSet>& labels,
                      const std::vector<float>& weights, double label_smoothing) {
  const Device device = logits.deep.device();
  const std::int64_t classes = logits.deep.size(1);
  std::vector<float> targets(labels.size() * static_cast<std::size_t>(classes), 0);
  for (std::size_t i = 0; i < labels.size(); ++i)
    for (const std::int32_t one : labels[i])
      targets[i * static_cast<std::size_t>(classes) + static_cast<std::size_t>(one)] = 1;
  const auto count = static_cast<std::int64_t>(labels.size());
  return logits.multilabel_loss(Tensor::from(targets, {count, classes}, device), label_smoothing,
                                weights.empty() ? Tensor() : Tensor::from(weights, {count}, device));
}

std::vector<std::string> labelled_lines(const LabelledText& text, std::size_t count) {
  TextList lines;
  for (std::size_t i = 0; i < text.size(); ++i) lines.push_back(text_at(text, i));
  return short_lines(lines, count);
}

namespace {

std::size_t best_class(const ClassScores& scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

/// Returns every class with its probability, the likeliest first.
std::vector<Prediction::Alternative> rank_alternatives(const ClassScores& scores,
                                                       const std::vector<std::string>& classes) {
  std::vector<Prediction::Alternative> alternatives;
  for (std::size_t i = 0; i < scores.size(); ++i)
    alternatives.push_back({classes[i], std::exp(static_cast<double>(scores[i]))});
  std::ranges::stable_sort(alternatives, std::ranges::greater(), &Prediction::Alternative::probability);
  return alternatives;
}

Prediction make_prediction(const ClassScores& scores, const std::vector<std::string>& classes) {
  Prediction prediction;
  prediction.alternatives = rank_alternatives(scores, classes);
  prediction.text = prediction.alternatives.front().text;
  prediction.probability = prediction.alternatives.front().probability;
  return prediction;
}

/// Whether a class is predicted for a text that may have several.
bool is_chosen(float log_probability) {
  return log_probability >= static_cast<float>(std::log(0.5));
}

Prediction set_prediction(const ClassScores& scores, const std::vector<std::string>& classes,
                          std::string_view separator) {
  Prediction prediction;
  prediction.alternatives = rank_alternatives(scores, classes);
  double log_probability = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto its = static_cast<double>(scores[i]);
    log_probability += is_chosen(scores[i]) ? its : std::log1p(-std::exp(its));
    if (is_chosen(scores[i]))
      prediction.text.append(prediction.text.empty() ? "" : separator).append(classes[i]);
  }
  prediction.probability = std::exp(log_probability);
  return prediction;
}

}  // namespace

namespace {

/// Fits the shares, and returns the scores of the same samples.
template <class Label>
std::vector<ClassScores> scores_after_fit(SparseLinear& sparse, const std::vector<std::vector<float>>& logits,
                                          const std::vector<Label>& labels,
                                          Tensor (ClassLogits::*log_probabilities)() const) {
  sparse.fit_shares(logits, labels);
  std::vector<float> all;
  for (const std::vector<float>& one : logits) all.insert(all.end(), one.begin(), one.end());
  const auto rows = std::ssize(logits), classes = std::ssize(logits.front()) / 2;
  const Tensor parts =
      Tensor::from(all, {rows, 2 * classes}).to(sparse.shares.dtype()).to(sparse.shares.device());
  const ClassLogits both{slice(parts, 1, 0, classes), slice(parts, 1, classes, 2 * classes), sparse.shares};
  const std::vector<float> found = (both.*log_probabilities)().to_vector<float>();
  std::vector<ClassScores> scores;
  for (auto next = found.begin(); next != found.end(); next += classes)
    scores.emplace_back(next, next + classes);
  return scores;
}

}  // namespace

std::vector<ClassScores> fitted_scores(SparseLinear& sparse, const std::vector<std::vector<float>>& logits,
                                       const std::vector<std::int32_t>& labels) {
  return scores_after_fit(sparse, logits, labels, &ClassLogits::log_probabilities);
}

std::vector<ClassScores> fitted_scores(SparseLinear& sparse, const std::vector<std::vector<float>>& logits,
                                       const std::vector<ClassSet>& labels) {
  return scores_after_fit(sparse, logits, labels, &ClassLogits::multilabel_log_probabilities);
}

std::vector<Prediction> class_predictions(const std::vector<ClassScores>& scores,
                                          const std::vector<std::string>& classes) {
  std::vector<Prediction> predictions;
  for (const ClassScores& one : scores) predictions.push_back(make_prediction(one, classes));
  return predictions;
}

std::vector<Prediction> multi_label_predictions(const std::vector<ClassScores>& scores,
                                                const std::vector<std::string>& classes,
                                                std::string_view separator) {
  std::vector<Prediction> predictions;
  for (const ClassScores& one : scores) predictions.push_back(set_prediction(one, classes, separator));
  return predictions;
}

double ClassQuality::One::precision() const {
  return share(right, predicted);
}
double ClassQuality::One::recall() const {
  return share(right, texts);
}
double ClassQuality::One::f1() const {
  return share(2 * right, texts + predicted);
}

namespace {

void set_f1(ClassQuality& quality) {
  const auto occurring = std::ranges::count_if(quality.classes, &ClassQuality::One::occurs);
  ClassQuality::One all;
  for (const ClassQuality::One& one : quality.classes) {
    if (one.occurs()) quality.macro_f1 += one.f1() / static_cast<double>(occurring);
    all.texts += one.texts, all.predicted += one.predicted, all.right += one.right;
  }
  quality.micro_f1 = all.f1();
}

}  // namespace

ClassQuality measure_quality(const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                             std::size_t classes) {
  ClassQuality quality;
  quality.classes.resize(classes);
  if (classes <= most_confused) quality.confusion.assign(classes, std::vector<std::int64_t>(classes, 0));
  std::int64_t all_right = 0, known = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto label = static_cast<std::size_t>(labels[i]);
    const std::size_t best = best_class(scores[i]);
    const std::int64_t right = best == label ? 1 : 0;
    ++quality.classes[label].texts;
    ++quality.classes[best].predicted;
    quality.classes[best].right += right;
    if (!quality.confusion.empty()) ++quality.confusion[label][best];
    all_right += right;
    if (label >= scores[i].size()) continue;
    ++known;
    quality.loss -= static_cast<double>(scores[i][label]);
  }
  quality.loss /= static_cast<double>(std::max<std::int64_t>(known, 1));
  quality.accuracy = static_cast<double>(all_right) / static_cast<double>(scores.size());
  set_f1(quality);
  return quality;
}

ClassQuality multi_label_quality(const std::vector<ClassScores>& scores, const std::vector<ClassSet>& labels,
                                 std::size_t classes) {
  ClassQuality quality;
  quality.classes.resize(classes);
  double all_right = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    bool is_right = true;
    for (std::size_t c = 0; c < classes; ++c) {
      const bool has = std::ranges::count(labels[i], static_cast<std::int32_t>(c)) > 0;
      const bool known = c < scores[i].size(), chosen = known && is_chosen(scores[i][c]);
      ClassQuality::One& one = quality.classes[c];
      one.texts += has ? 1 : 0;
      one.predicted += chosen ? 1 : 0;
      one.right += has && chosen ? 1 : 0;
      is_right = is_right && has == chosen;
      if (!known) continue;
      const auto log_p = static_cast<double>(scores[i][c]);
      quality.loss -= has ? log_p : std::log1p(-std::min(std::exp(log_p), 1 - 1e-12));
    }
    all_right += is_right ? 1 : 0;
  }
  quality.loss /= static_cast<double>(scores.size());
  quality.accuracy = all_right / static_cast<double>(scores.size());
  set_f1(quality);
  return quality;
}

std::vector<std::string> with_other_labels(const std::vector<std::string>& classes,
                                           const LabelledText& text) {
  const std::unordered_set<std::string_view> all_known(classes.begin(), classes.end());
  std::set<std::string_view> others;
  bool any_known = false;
  for (const std::string_view label : text.labels) {
    const bool known = all_known.contains(label);
    if (!known) others.insert(label);
    any_known |= known;
  }
  std::vector<std::string> all = classes;
  if (any_known) all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::vector<std::size_t> sampled_rows(const LabelledText& text, std::int64_t most) {
  std::vector<std::size_t> rows(text.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  const auto all = static_cast<std::int64_t>(rows.size());
  if (most == 0 || all <= most) return rows;
  const std::vector<std::size_t> groups = group_by_first_text(text);
  const auto count = static_cast<std::int64_t>(groups.back()) + 1;
  const Batch chosen =
      spread_over(static_cast<std::size_t>(count), std::max<std::int64_t>(count * most / all, 1));
  std::erase_if(rows, [&](std::size_t row) {
    return !std::ranges::binary_search(chosen, static_cast<std::int32_t>(groups[row]));
  });
  return rows;
}

std::string other_labels_remark(const std::vector<std::string>& classes, const LabelledText& text,
                                const std::string& unit) {
  std::vector<std::string> others = with_other_labels(classes, text);
  others.erase(others.begin(), others.begin() + std::ssize(classes));
  if (others.empty()) return "";
  const auto count = std::ranges::count_if(
      text.labels, [&](std::string_view label) { return std::ranges::binary_search(others, label); });
  std::ranges::transform(others, others.begin(), in_quotes);
  return concat_text(count, " of ", text.size(), ' ', unit, count == 1 ? " has a label" : " have labels",
                     " that training lacks, ", listed(others, 5), ": ",
                     count == 1 ? "it counts as a wrong answer" : "they count as wrong answers",
                     ", and the loss leaves ", count == 1 ? "it" : "them", " out");
}

std::vector<Confusion> confusions_in(const std::vector<std::vector<std::int64_t>>& matrix) {
  std::vector<Confusion> found;
  for (std::size_t i = 0; i < matrix.size(); ++i)
    for (std::size_t j = 0; j < matrix[i].size(); ++j)
      if (i != j && matrix[i][j] > 0) found.push_back({matrix[i][j], i, j});
  std::ranges::stable_sort(found, std::ranges::greater(), &Confusion::count);
  return found;
}

namespace {

/// `right`: whether each answer is.
Measurement make_measurement(ClassFigures figures, const ClassQuality& quality,
                             const std::vector<Prediction>& answers, const std::vector<bool>& right,
                             const LabelledText& text, const std::vector<std::string>& classes) {
  Measurement measurement;
  Json json;
  for (const Metric& metric : figures.metrics)
    json[metric.name] = metric.name == "loss" ? metric.value : rounded(metric.value);
  json["texts"] = text.size();
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const ClassQuality::One& one = quality.classes[i];
    json["classes"][classes[i]] = {{"texts", one.texts},
                                   {"precision", rounded(one.precision())},
                                   {"recall", rounded(one.recall())},
                                   {"f1", rounded(one.f1())}};
  }
  if (!quality.confusion.empty()) json["confusion"] = quality.confusion;
  if (!figures.groups.empty()) json["groups"] = figures.groups;
  measurement.json = json.dump();
  measurement.metrics = std::move(figures.metrics);
  measurement.count = static_cast<std::int64_t>(answers.size());
  measurement.examples = {"accuracy", "mean", {}};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    measurement.examples.rows.push_back({right[i] ? 1.0 : 0.0, 1});
    if (!right[i])
      measurement.mistakes.push_back({text.places[i], text_at(text, i), std::string(text.labels[i]),
                                      answers[i].text, answers[i].probability});
  }
  std::stable_sort(measurement.mistakes.begin(), measurement.mistakes.end(),
                   [](const Mistake& a, const Mistake& b) { return a.probability > b.probability; });
  return measurement;
}

}  // namespace

Measurement class_measurement(ClassFigures figures, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes) {
  std::vector<bool> right;
  for (std::size_t i = 0; i < scores.size(); ++i)
    right.push_back(static_cast<std::int32_t>(best_class(scores[i])) == labels[i]);
  return make_measurement(std::move(figures), quality, class_predictions(scores, classes), right, text,
                          classes);
}

Measurement class_measurement(ClassFigures figures, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<ClassSet>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes,
                              std::string_view separator) {
  std::vector<bool> right;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    ClassSet chosen;
    for (std::size_t c = 0; c < scores[i].size(); ++c)
      if (is_chosen(scores[i][c])) chosen.push_back(static_cast<std::int32_t>(c));
    right.push_back(std::ranges::is_permutation(chosen, labels[i]));
  }
  return make_measurement(std::move(figures), quality, multi_label_predictions(scores, classes, separator),
                          right, text, classes);
}

}  // namespace heed
