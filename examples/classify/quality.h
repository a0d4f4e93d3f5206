#pragma once

#include <span>
#include <string>
#include <vector>

#include "../common/settings.h"
#include "classifier.h"

namespace heed::programs {

/// Texts as tokens with their classes.
struct LabelledTokens {
  std::vector<Tokens> texts;
  std::vector<std::int32_t> labels;
};

/// How well one class is found.
struct ClassQuality {
  std::int64_t texts = 0, predicted = 0, right = 0;
  double precision() const;  ///< share of the texts predicted to be of it that are; 0 when there are none
  double recall() const;     ///< share of its texts that were found
  double f1() const;         ///< the harmonic mean of both
};

/// How well a model labels a text.
struct ClassificationQuality {
  double loss = 0;      ///< mean cross entropy of a text, in nats, without label smoothing
  double accuracy = 0;  ///< 0 to 1
  double macro_f1 = 0;  ///< the mean over the classes
  std::vector<ClassQuality> classes;
};

ClassificationQuality measure(EncoderClassifier& model, const LabelledTokens& text, std::int64_t batch_size);
/// The same as the result of a command, with the name of each class.
Json to_json(const ClassificationQuality& quality, std::span<const std::string> names);

}  // namespace heed::programs
