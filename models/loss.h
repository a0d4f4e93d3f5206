#pragma once

#include "heed/models/batch.h"
#include "heed/models/context.h"

namespace heed {

/// The loss of one batch.
struct ModelLoss {
  Tensor sum;              ///< rank 0: summed over the targets
  std::int64_t count = 0;  ///< number of targets: real target tokens, or samples of a classifier
  Tensor auxiliary;        ///< rank 0: what layers add, with their weights; undefined when they add nothing

  /// The mean over the targets.
  Tensor mean() const;
  /// mean() plus the auxiliary losses: what training minimises.
  Tensor objective() const;
};

/// Label-smoothed cross entropy of predicting the targets with the logits hidden W^T + b, summed over the
/// targets; hidden [B, T, d], weight [V, d], bias [V] or undefined. Logits exist for real targets only, and
/// some rows at a time.
ModelLoss token_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Targets& targets,
                     double smoothing, const Context& context);

}  // namespace heed
