#pragma once

#include <vector>

#include "heed/models/encoder_classifier.h"

namespace heed::programs {

/// The logarithm of the probability of each class.
using ClassScores = std::vector<float>;

/// The scores of each text, in their order; `batch_size` texts of like length are read at a time.
std::vector<ClassScores> classify(EncoderClassifier& model, const std::vector<Tokens>& texts,
                                  std::int64_t batch_size);
/// The likeliest class; of several the first.
std::size_t best_class(const ClassScores& scores);

}  // namespace heed::programs
