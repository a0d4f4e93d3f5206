#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heed/apps/tasks/labelled.h"

// Heads whose outputs are a logit for each class: loss, answers and figures.

namespace heed {

/// Converts class names to the text of a run's file, and back. Throws an Error for a damaged file.
std::string classes_to_json(const std::vector<std::string>& classes);
std::vector<std::string> classes_from_json(const std::string& text);

/// The number of texts of one class that were predicted as another.
struct Confusion {
  std::int64_t count = 0;
  std::size_t expected = 0, predicted = 0;
};
/// Returns the confusions in a matrix [expected][predicted], the most frequent first.
std::vector<Confusion> confusions_in(const std::vector<std::vector<std::int64_t>>& matrix);

struct ClassSettings {
  enum class Weights { equal, balanced } weights = Weights::equal;
};
void for_each_setting(auto&& visit, ClassSettings& classes) {
  visit(classes.weights, "class_weights", {"equal", "balanced"},
        "balanced: examples of rare classes count more, so that all classes have the same total weight");
}

/// The classes that an example has, each once.
using ClassSet = std::vector<std::int32_t>;

/// Quality of a classifier's predictions.
struct ClassQuality {
  double accuracy = 0;  ///< the share of examples whose classes are all right
  double loss = 0;      ///< of an example the sum over its classes; labels that training lacks are left out
  /// The mean F1 of the classes that occur among the labels or the predictions, as in scikit-learn.
  double macro_f1 = 0;
  double micro_f1 = 0;  ///< over all decisions; equals the accuracy if each example has one class
  struct Counts {
    std::int64_t texts = 0, predicted = 0, right = 0;
    double precision() const { return share(right, predicted); }
    double recall() const { return share(right, texts); }
    double f1() const { return share(2 * right, texts + predicted); }
    static double share(std::int64_t part, std::int64_t whole) {
      return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    }
  };
  std::vector<Counts> classes;
  /// [expected][predicted]; empty for more classes than a reader can take in.
  std::vector<std::vector<std::int64_t>> confusion = {};
};

/// One class for each example. Scores are the logarithms of the probabilities of the classes. The file is
/// "classes.json", the names of the classes in the order of the outputs.
class ClassHead {
 public:
  using Target = ClassSet;
  static constexpr bool has_classes = true;

  ClassHead(const TaskEntry& entry, const Settings& settings)
      : entry_(entry),
        settings_(settings),
        separator_(settings.read<LabelledData>("data").reading.label_separator) {}
  virtual ~ClassHead() = default;

  /// Throws a SettingsError for settings of training that contradict each other.
  static void check_training(const Settings& settings) {
    if (settings.read<TrainingSettings>("training").keep_best_by == "micro_f1")
      throw SettingsError(
          "training.keep_best_by=micro_f1 is for texts with several labels (data.label_separator); with one "
          "label each it equals the accuracy");
  }
  /// Returns remarks to print before training; `input` describes what the model reads. Throws a
  /// SettingsError if the data does not suit the settings.
  virtual std::vector<std::string> review(const TextParts& parts, const std::string& unit,
                                          const std::string& input) const;
  /// Learns class_names(); if training starts from a run of the same task and classes, in its order.
  /// Throws a SettingsError for a label that is not of "data.label_type".
  NamedFiles learned_files(const LabelledText& train) const;
  /// Returns the names of the classes.
  virtual std::vector<std::string> open(const ReadFile& read) {
    return classes_ = classes_from_json(read("classes.json"));
  }
  /// The number of outputs; two before there are classes.
  std::int64_t size() const { return classes_.empty() ? 2 : static_cast<std::int64_t>(classes_.size()); }

  /// Returns the classes of each example. Throws an Error with the place of the first label that is none.
  virtual std::vector<ClassSet> targets(const LabelledText& text) const;
  /// Returns the class of each example if examples of rare classes count more, else nothing.
  virtual std::vector<std::int32_t> balanced_classes(const std::vector<ClassSet>& targets) const {
    const auto weights = settings_.read<ClassSettings>("training").weights;
    return weights == ClassSettings::Weights::equal ? std::vector<std::int32_t>() : single_classes(targets);
  }
  /// `weights`: of the examples; undefined: all are equal.
  virtual Loss loss(const ClassLogits& logits, const std::vector<ClassSet>& targets, const Tensor& weights,
                    double label_smoothing) const;

  Tensor outputs(const ClassLogits& logits) const { return logits.together(); }
  virtual Tensor scores(const ClassLogits& logits) const { return logits.log_probabilities(); }
  /// Fits the weights that combine a model's two parts to samples, given their logits.
  static constexpr OutputKind output_kind = OutputKind::classes;
  /// Returns the targets of SparseLinear::fit().
  std::vector<float> sparse_targets(const std::vector<ClassSet>& targets) const {
    const auto classes = static_cast<std::size_t>(size());
    std::vector<float> matrix(targets.size() * classes);
    for (std::size_t i = 0; i < targets.size(); ++i)
      for (const std::int32_t one : targets[i]) matrix[i * classes + static_cast<std::size_t>(one)] = 1;
    return matrix;
  }
  virtual void fit_shares(SparseLinear& sparse, const std::vector<Output>& logits,
                          const std::vector<ClassSet>& targets) const {
    sparse.fit_shares(logits, single_classes(targets));
  }
  /// Returns the chosen classes with the probability that exactly these are right, and all classes as
  /// alternatives.
  std::vector<Prediction> predictions(const std::vector<Output>& scores) const;
  /// Returns "5 of 893 texts have labels that training lacks, ...", or "" if there are none.
  virtual std::string remark_on(const LabelledText& text, const std::string& unit) const;
  /// `classes`: the number of classes that the targets name, also of those that training lacks.
  ClassQuality quality(const std::vector<Output>& scores, const std::vector<ClassSet>& targets,
                       std::size_t classes) const;
  /// Returns the result of `evaluate`: the metrics and the wrong answers. The JSON adds "texts",
  /// "classes" with precision, recall and F1 of each, "confusion" (a row for each expected class, a
  /// column for each predicted one, in class order) and "groups".
  Measurement measurement(const std::vector<Output>& scores, const std::vector<ClassSet>& targets,
                          const LabelledText& text) const;

 protected:
  /// The metrics that apply to the data, and the number of ranked groups of each kind.
  struct Figures {
    std::vector<double> values;  ///< of the first metrics of the task
    std::map<std::string, std::int64_t> groups = {};
  };
  virtual Figures figures(const ClassQuality& quality, const std::vector<Output>& /*scores*/,
                          const LabelledText& /*text*/) const {
    return {{quality.accuracy, quality.loss, quality.macro_f1}};
  }
  /// Returns a row for each label of each text.
  virtual LabelledText with_single_labels(const LabelledText& text) const { return text; }
  virtual ClassSet choose(const Output& scores) const {
    return {static_cast<std::int32_t>(std::ranges::max_element(scores) - scores.begin())};
  }
  /// Returns the terms of the loss of an example, which sum to -log p(classes).
  virtual std::vector<double> losses(const Output& scores, const ClassSet& classes) const {
    const auto label = static_cast<std::size_t>(classes.front());
    if (label >= scores.size()) return {};
    return {-static_cast<double>(scores[label])};
  }
  /// The most classes of a confusion matrix: a larger one is unreadable.
  virtual std::size_t most_confused() const { return 200; }
  /// Returns the classes, followed in byte order by labels of the text that training did not have. If no
  /// label is one of the classes, none is added, because the column is probably wrong: see targets().
  std::vector<std::string> all_classes(const LabelledText& text) const;
  static std::vector<std::int32_t> single_classes(const std::vector<ClassSet>& sets) {
    std::vector<std::int32_t> classes;
    for (const ClassSet& set : sets) classes.push_back(set.front());
    return classes;
  }

  const TaskEntry& entry_;
  const Settings& settings_;
  const std::string separator_;  // between the names of a set of classes
  std::vector<std::string> classes_;
};

/// Any number of classes for each example, a yes-no decision about each.
class ClassSetHead : public ClassHead {
 public:
  using ClassHead::ClassHead;
  static constexpr OutputKind output_kind = OutputKind::decisions;

  static void check_training(const Settings& settings) {
    if (settings.read<ClassSettings>("training").weights != ClassSettings::Weights::equal)
      throw SettingsError(
          "training.class_weights is for texts with one label each, not for data.label_separator");
  }
  std::vector<ClassSet> targets(const LabelledText& text) const override;
  std::vector<std::int32_t> balanced_classes(const std::vector<ClassSet>&) const override { return {}; }
  Loss loss(const ClassLogits& logits, const std::vector<ClassSet>& targets, const Tensor& weights,
            double label_smoothing) const override;
  Tensor scores(const ClassLogits& logits) const override { return logits.multilabel_log_probabilities(); }
  void fit_shares(SparseLinear& sparse, const std::vector<Output>& logits,
                  const std::vector<ClassSet>& targets) const override {
    sparse.fit_shares(logits, targets);
  }
  std::string remark_on(const LabelledText& text, const std::string& /*unit*/) const override {
    return ClassHead::remark_on(text, "labels");
  }

 protected:
  Figures figures(const ClassQuality& quality, const std::vector<Output>&,
                  const LabelledText&) const override {
    return {{quality.accuracy, quality.loss, quality.macro_f1, quality.micro_f1}};
  }
  LabelledText with_single_labels(const LabelledText& text) const override;
  /// Returns the classes whose probability is at least one half.
  ClassSet choose(const Output& scores) const override;
  std::vector<double> losses(const Output& scores, const ClassSet& classes) const override;
  std::size_t most_confused() const override { return 0; }  // no class is taken for another
};

}  // namespace heed
