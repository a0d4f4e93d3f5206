#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/core/ranks.h"
#include "heed/models/loss.h"
#include "heed/models/module.h"

namespace heed {

struct Metric {
  std::string name;
  double value = 0;
  bool larger_is_better = false;
};

/// What an evaluation found. Without metrics there is nothing to stop early by or to keep as best.
/// A metric "loss" is compared with the loss of training, and has to be the same mean.
struct Evaluation {
  std::vector<Metric> metrics;
  std::string keep_best_by;  ///< the name of the metric that says which weights are best
};

/// What a Trainer trains: a model, its data and its loss. Everything must follow from the arguments alone
/// (and the seed in the context), so that a resumed run sees what an uninterrupted one sees.
class Task {
 public:
  virtual ~Task() = default;
  virtual Module& model() = 0;
  /// How many batches an epoch (from 0) has; at least one.
  virtual std::int64_t batches(std::int64_t epoch) = 0;
  /// The loss of a batch of an epoch, without auxiliary losses: the trainer adds those that layers leave in
  /// the context.
  virtual Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) = 0;
  /// Measures the model on validation data; called with recording off. Where several ranks train, all are
  /// called, with the same weights, and what rank 0 finds counts; work that goes through deal_out(ranks(),
  /// ...) is shared among them.
  virtual Evaluation evaluate() { return {}; }
  /// Those who share the evaluation under way; null: this process is alone.
  Ranks* ranks() const { return ranks_; }
  void share_evaluation(Ranks* ranks) { ranks_ = ranks; }
  /// What a batch's count counts, as the progress line shows it: "1.2k texts/s".
  virtual std::string unit() const { return "tokens"; }

 private:
  Ranks* ranks_ = nullptr;
};

}  // namespace heed
