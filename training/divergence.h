#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heed/training/task.h"

// When a training is said to have diverged: judged by its loss against that of its first step, which is the loss of the
// untrained model. All of it is rough, so that no ordinary training is blamed.

namespace heed {

/// The metric "loss", a mean like the loss of training, where the evaluation has one.
std::optional<double> loss_of(const Evaluation& evaluation);

/// Whether a loss is out of proportion to that of the first step.
bool is_far_above(double loss, double first_loss);

/// Whether weights are of no use, whatever a metric that stays finite says of them (an accuracy does): some metric is
/// infinite, or the loss is a thousand times that of the first step and so large that its exponential is infinite.
bool has_diverged(const Evaluation& evaluation, std::optional<double> first_loss);

/// The best evaluation of a run.
struct BestEvaluation {
  std::int64_t step = 0;
  double loss = 0;
  bool chosen_by_loss = false;  ///< or by another metric of which less is better
};
/// A remark on a best evaluation that is worse than the model was before its first step; "" for one that is not.
/// Weights that were chosen by their accuracy, say, may well have a larger loss: only one far above is worth a word.
std::string remark_on_best(const BestEvaluation& best, double first_loss);

}  // namespace heed
