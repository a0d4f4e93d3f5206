#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heed/models/context.h"
#include "heed/models/module.h"

namespace heed {

/// The loss of one batch.
struct BatchLoss {
  Tensor value;             ///< one element, differentiable
  std::int64_t tokens = 0;  ///< how many tokens (or samples) it runs over; positive
  bool is_mean = true;      ///< the mean over the tokens; false: their sum
};

/// What an evaluation found. Without metrics there is nothing to stop early by or to keep as best.
struct Evaluation {
  std::vector<std::pair<std::string, double>> metrics;
  std::string optimise;  ///< the name of the metric that says which weights are best
  bool larger_is_better = false;
};

/// What a Trainer trains: a model, its data and its loss. Everything must follow from the arguments alone
/// (and the seed in the context), so that a resumed run sees what an uninterrupted one sees.
class Task {
 public:
  virtual ~Task() = default;
  virtual Module& model() = 0;
  /// How many batches an epoch (from 0) has; at least one.
  virtual std::int64_t batches(std::int64_t epoch) = 0;
  /// The loss of a batch of an epoch. The trainer adds the auxiliary losses that layers leave in the context.
  virtual BatchLoss loss(std::int64_t epoch, std::int64_t batch, Context& context) = 0;
  /// Measures the model on validation data; called with recording off.
  virtual Evaluation evaluate() { return {}; }
};

}  // namespace heed
