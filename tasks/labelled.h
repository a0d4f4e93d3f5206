#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heed/data/labelled_text.h"
#include "heed/tasks/learner.h"

// What tasks that tell classes apart have in common, before and behind the model: their data and how they are measured.

namespace heed {

// --- data

/// "data.file", "data.valid", "data.test", "data.format" (one of `formats`, "" for the name's), how texts are read, and
/// "data.header".
void declare_labelled_files(Settings& settings, std::vector<std::string> formats,
                            std::string_view formats_help);
/// "data.valid_fraction", "data.test_fraction", "data.split_seed", "data.stratified", "data.folds", "data.fold".
void declare_parts(Settings& settings);
/// True when the settings name data; throws a SettingsError when they name validation or test data alone, or folds
/// that make no sense.
bool names_labelled_data(const Settings& settings);
/// The options of the files, but for their columns. Throws a SettingsError when neither the settings nor the name of
/// `path` say how it is laid out; `help` ends the message.
LabelledOptions labelled_options(const Settings& settings, const std::string& path, std::string_view help);
/// The parts of the data: what `read` reads of the files of the settings, or what `draw` makes where they name none.
TextParts labelled_parts(const Settings& settings,
                         const std::function<LabelledText(const std::string& path)>& read,
                         const std::function<LabelledText()>& draw);
std::map<std::string, std::string> digests_of(const TextParts& parts);

/// The classes as a file of a run, and back. Throws an Error for a file that is damaged.
std::string classes_to_json(const std::vector<std::string>& classes);
std::vector<std::string> classes_from_json(const std::string& text);
/// What there is to say about the classes of the training texts: their counts, and which are rare.
std::vector<std::string> remarks_on_classes(const LabelledText& train,
                                            const std::vector<std::string>& classes);
/// The weight of each class: texts / (classes * texts of it), so that the mean over the texts is 1.
std::vector<float> balanced_weights(const std::vector<std::int32_t>& labels, std::size_t classes);

// --- answers

/// The logarithm of the probability of each class.
using ClassScores = std::vector<float>;
std::size_t best_class(const ClassScores& scores);
/// The best class with its probability, and all others behind it.
Prediction prediction_of(const ClassScores& scores, const std::vector<std::string>& classes);

/// How well classes are told apart.
struct ClassQuality {
  double accuracy = 0, loss = 0, macro_f1 = 0;
  struct One {
    std::int64_t texts = 0, predicted = 0, right = 0;
    double precision() const;
    double recall() const;
    double f1() const;
  };
  std::vector<One> classes;
  std::vector<std::vector<std::int64_t>>
      confusion;  ///< [expected][predicted]; of more than 200 classes empty
};
ClassQuality quality_of(const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                        std::size_t classes);
/// What `evaluate` says: the metrics, and as JSON behind them "texts", "classes" with precision, recall and F1 of each, and
/// "confusion", the rows expected and the columns predicted, in the order of the classes; and the wrong answers.
Measurement class_measurement(std::vector<Metric> metrics, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes);

}  // namespace heed
