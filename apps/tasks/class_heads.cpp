#include "heed/apps/tasks/class_heads.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "heed/autograd/ops.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the classes in the order of a run, if that is of the same task and classes.
std::vector<std::string> ordered_as_in(const std::string& run, std::string_view task,
                                       const std::vector<std::string>& classes) {
  if (run.empty()) return classes;
  const std::shared_ptr<const RunFiles> files = open_run(run);
  if (files->task() != task) return classes;
  const std::vector<std::string> known = classes_from_json(files->text("classes.json"));
  return std::ranges::is_permutation(known, classes) ? known : classes;
}

}  // namespace

std::string classes_to_json(const std::vector<std::string>& classes) {
  return Json(classes).dump(2) + "\n";
}

std::vector<std::string> classes_from_json(const std::string& text) {
  const Json names = parse_json<Json>(text, "classes.json", 2);
  check(names.is_array() && names.size() >= 2 &&
            std::all_of(names.begin(), names.end(), [](const Json& name) { return name.is_string(); }),
        "classes.json: expected a list of the names of at least two classes");
  auto classes = names.get<std::vector<std::string>>();
  std::set<std::string_view> seen;
  for (const std::string& name : classes) {
    check_label(name, "classes.json");
    check(seen.insert(name).second, "classes.json: two classes are called ", quoted_label(name));
  }
  return classes;
}

std::vector<Confusion> confusions_in(const std::vector<std::vector<std::int64_t>>& matrix) {
  std::vector<Confusion> found;
  for (std::size_t i = 0; i < matrix.size(); ++i)
    for (std::size_t j = 0; j < matrix[i].size(); ++j)
      if (i != j && matrix[i][j] > 0) found.push_back({matrix[i][j], i, j});
  std::ranges::stable_sort(found, std::ranges::greater(), &Confusion::count);
  return found;
}

// --- one class for each example

std::vector<std::string> ClassHead::review(const TextParts& parts, const std::string& unit,
                                           const std::string& input) const {
  const LabelledText rows = with_single_labels(parts.train);
  std::unordered_map<std::string, std::size_t> counts;
  for (const std::string_view label : rows.labels) ++counts[std::string(label)];
  std::vector<std::string> classes = classes_, largest, rare;
  for (const std::string& name : classes)
    if (counts[name] < 5) rare.push_back(quoted_label(name));
  std::ranges::stable_sort(classes, std::ranges::greater(),
                           [&](const std::string& name) { return counts[name]; });
  for (const std::string& name : classes)
    largest.push_back(concat_text(quoted_label(name), ' ', counts[name]));
  return {concat_text(parts.train.size(), ' ', unit, " of ", classes_.size(), " classes for training, ",
                      parts.valid.size(), " for validation, ", parts.test.size(), " for testing; ", input),
          "classes: " + listed(largest, 10), ClassHead::remark_on(parts.valid, unit),
          ClassHead::remark_on(parts.test, unit),
          rare.empty() ? ""
                       : concat_text(rare.size(), rare.size() == 1 ? " class has" : " classes have",
                                     " fewer than 5 texts (", listed(rare, 5),
                                     "): is the label where data.format, data.label_column and data.header "
                                     "say?")};
}

NamedFiles ClassHead::learned_files(const LabelledText& train) const {
  const auto type = settings_.read<LabelledData>("data").label_type;
  const bool is_text = type.empty() || type == "text";
  std::vector<std::string> classes = class_names(with_single_labels(train), type != "text");
  for (const std::string& name : classes)
    if (!is_text && !(type == "boolean" ? name == "false" || name == "true" : is_integer_text(name)))
      throw SettingsError(
          concat_text("data.label_type is ", type, ", but a label is ", quoted_label(name), ", a text"));
  if (is_text)
    classes = ordered_as_in(settings_.read<TrainingSettings>("training").from, entry_.name, classes);
  return {{"classes.json", classes_to_json(classes)}};
}

std::vector<ClassSet> ClassHead::targets(const LabelledText& text) const {
  std::vector<ClassSet> targets;
  for (const std::int32_t label : classes_of(text, all_classes(text))) targets.push_back({label});
  return targets;
}

Loss ClassHead::loss(const ClassLogits& logits, const std::vector<ClassSet>& targets, const Tensor& weights,
                     double label_smoothing) const {
  const Tensor labels = Tensor::from(single_classes(targets), {std::ssize(targets)}, logits.deep.device());
  return logits.loss(labels, label_smoothing, weights);
}

std::vector<Prediction> ClassHead::predictions(const std::vector<Output>& scores) const {
  std::vector<Prediction> predictions;
  for (const Output& example : scores) {
    Prediction& prediction = predictions.emplace_back();
    for (std::size_t i = 0; i < example.size(); ++i)
      prediction.alternatives.push_back({classes_[i], std::exp(static_cast<double>(example[i]))});
    std::ranges::stable_sort(prediction.alternatives, std::ranges::greater(),
                             &Prediction::Alternative::probability);
    const ClassSet chosen = choose(example);
    for (const std::int32_t label : chosen)
      prediction.text.append(prediction.text.empty() ? "" : separator_)
          .append(classes_[static_cast<std::size_t>(label)]);
    double loss = 0;
    for (const double term : losses(example, chosen)) loss += term;
    prediction.probability = std::exp(-loss);
  }
  return predictions;
}

std::vector<std::string> ClassHead::all_classes(const LabelledText& text) const {
  const std::unordered_set<std::string_view> known(classes_.begin(), classes_.end());
  const LabelledText rows = with_single_labels(text);
  std::set<std::string_view> others;
  bool any_known = false;
  for (const std::string_view label : rows.labels) {
    const bool is_known = known.contains(label);
    if (!is_known) others.insert(label);
    any_known |= is_known;
  }
  std::vector<std::string> all = classes_;
  if (any_known) all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::string ClassHead::remark_on(const LabelledText& text, const std::string& unit) const {
  std::vector<std::string> others = all_classes(text);
  others.erase(others.begin(), others.begin() + std::ssize(classes_));
  if (others.empty()) return "";
  const LabelledText rows = with_single_labels(text);
  const auto count = std::ranges::count_if(
      rows.labels, [&](std::string_view label) { return std::ranges::binary_search(others, label); });
  std::ranges::transform(others, others.begin(), quoted_label);
  return concat_text(count, " of ", rows.size(), ' ', unit, count == 1 ? " has a label" : " have labels",
                     " that training lacks, ", listed(others, 5), ": ",
                     count == 1 ? "it counts as a wrong answer" : "they count as wrong answers",
                     ", and the loss leaves ", count == 1 ? "it" : "them", " out");
}

ClassQuality ClassHead::quality(const std::vector<Output>& scores, const std::vector<ClassSet>& targets,
                                std::size_t classes) const {
  ClassQuality quality;
  quality.classes.resize(classes);
  if (classes <= most_confused()) quality.confusion.assign(classes, std::vector<std::int64_t>(classes, 0));
  double all_right = 0, known = 0;
  const auto at = [](auto& list, std::int32_t label) -> auto& {
    return list[static_cast<std::size_t>(label)];
  };
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const ClassSet chosen = choose(scores[i]);
    for (const std::int32_t label : targets[i]) ++at(quality.classes, label).texts;
    for (const std::int32_t label : chosen) {
      ++at(quality.classes, label).predicted;
      at(quality.classes, label).right += std::ranges::count(targets[i], label);
    }
    all_right += std::ranges::is_permutation(chosen, targets[i]) ? 1 : 0;
    if (!quality.confusion.empty()) ++at(at(quality.confusion, targets[i].front()), chosen.front());
    const std::vector<double> terms = losses(scores[i], targets[i]);
    for (const double term : terms) quality.loss += term;
    known += terms.empty() ? 0 : 1;
  }
  quality.loss /= std::max(known, 1.);
  quality.accuracy = all_right / static_cast<double>(scores.size());
  ClassQuality::Counts all;
  double occurring = 0;
  for (const ClassQuality::Counts& counts : quality.classes) {
    occurring += counts.texts + counts.predicted > 0 ? 1 : 0;
    all.texts += counts.texts, all.predicted += counts.predicted, all.right += counts.right;
  }
  for (const ClassQuality::Counts& counts : quality.classes)
    quality.macro_f1 += counts.f1() / std::max(occurring, 1.);
  quality.micro_f1 = all.f1();
  return quality;
}

Measurement ClassHead::measurement(const std::vector<Output>& scores, const std::vector<ClassSet>& targets,
                                   const LabelledText& text) const {
  const std::vector<std::string> classes = all_classes(text);
  const ClassQuality quality = this->quality(scores, targets, classes.size());
  const Figures figures = this->figures(quality, scores, text);
  Measurement measurement;
  measurement.metrics = metrics_of(entry_.metrics.first(figures.values.size()), figures.values);
  measurement.count = static_cast<std::int64_t>(scores.size());
  Json json;
  for (const Metric& metric : measurement.metrics)
    json[metric.name] = metric.name == "loss" ? metric.value : rounded(metric.value);
  json["texts"] = text.size();
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const ClassQuality::Counts& counts = quality.classes[i];
    json["classes"][classes[i]] = {{"texts", counts.texts},
                                   {"precision", rounded(counts.precision())},
                                   {"recall", rounded(counts.recall())},
                                   {"f1", rounded(counts.f1())}};
  }
  if (!quality.confusion.empty()) json["confusion"] = quality.confusion;
  if (!figures.groups.empty()) json["groups"] = figures.groups;
  measurement.json = json.dump();
  measurement.examples = {"accuracy", "mean", {}};
  const std::vector<Prediction> answers = predictions(scores);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const bool right = std::ranges::is_permutation(choose(scores[i]), targets[i]);
    measurement.examples.rows.push_back({right ? 1.0 : 0.0, 1});
    if (!right)
      measurement.mistakes.push_back({text.places[i], text_at(text, i), std::string(text.labels[i]),
                                      answers[i].text, answers[i].probability});
  }
  std::ranges::stable_sort(measurement.mistakes, std::ranges::greater(), &Mistake::probability);
  return measurement;
}

// --- any number of classes for each example

LabelledText ClassSetHead::with_single_labels(const LabelledText& text) const {
  LabelledText rows;
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const std::string_view label : split_at(text.labels[i], separator_)) {
      check(!label.empty(), text.places[i], ": the labels ", quoted_label(text.labels[i]),
            " have an empty one");
      rows.add(text.texts[i], label, text.places[i]);
    }
  return rows;
}

std::vector<ClassSet> ClassSetHead::targets(const LabelledText& text) const {
  const std::vector<std::string> classes = all_classes(text);
  std::vector<ClassSet> sets(text.size());
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const std::string_view label : split_at(text.labels[i], separator_)) {
      const auto found = std::ranges::find(classes, label);
      check(found != classes.end(), text.places[i], ": the label ", quoted_label(label), " is none of the ",
            classes.size(), " classes");
      const auto place = static_cast<std::int32_t>(found - classes.begin());
      if (std::ranges::count(sets[i], place) == 0) sets[i].push_back(place);
    }
  return sets;
}

Loss ClassSetHead::loss(const ClassLogits& logits, const std::vector<ClassSet>& targets,
                        const Tensor& weights, double label_smoothing) const {
  const std::int64_t count = std::ssize(targets), classes = logits.deep.size(1);
  std::vector<float> has_class(static_cast<std::size_t>(count * classes), 0);
  for (std::int64_t i = 0; i < count; ++i)
    for (const std::int32_t label : targets[static_cast<std::size_t>(i)])
      has_class[static_cast<std::size_t>(i * classes + label)] = 1;
  return logits.multilabel_loss(Tensor::from(has_class, {count, classes}, logits.deep.device()),
                                label_smoothing, weights);
}

/// Returns the classes whose probability is at least one half.
ClassSet ClassSetHead::choose(const Output& scores) const {
  ClassSet chosen;
  for (std::size_t c = 0; c < scores.size(); ++c)
    if (scores[c] >= static_cast<float>(std::log(0.5))) chosen.push_back(static_cast<std::int32_t>(c));
  return chosen;
}

std::vector<double> ClassSetHead::losses(const Output& scores, const ClassSet& classes) const {
  std::vector<double> terms;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    const bool has = std::ranges::count(classes, static_cast<std::int32_t>(c)) > 0;
    const auto log_p = static_cast<double>(scores[c]);
    terms.push_back(has ? -log_p : -std::log1p(-std::min(std::exp(log_p), 1 - 1e-12)));
  }
  return terms;
}

}  // namespace heed
