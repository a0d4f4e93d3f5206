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

/// The result of an evaluation. Without metrics there is no early stopping and no best checkpoint. A metric
/// "loss" is compared with the training loss and must be the same kind of mean.
struct Evaluation {
  std::vector<Metric> metrics;
  std::string keep_best_by;  ///< name of the metric that decides which weights are best
};

/// What a Trainer trains: a model, its data and its loss. Results must depend only on the arguments (and
/// the seed in the context), so that a resumed run sees the same data as an uninterrupted one.
class Task {
 public:
  virtual ~Task() = default;
  virtual Module& model() = 0;
  /// The number of batches in an epoch (counted from 0); at least one.
  virtual std::int64_t batches(std::int64_t epoch) = 0;
  /// The loss of a batch of an epoch, without auxiliary losses: the trainer adds those that layers put in
  /// the context.
  virtual Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) = 0;
  /// Measures the model on validation data; called with recording off. With several ranks, it is
  /// called on all of them with the same weights, and the result of rank 0 counts; deal_out(ranks(),
  /// ...) shares work among them.
  virtual Evaluation evaluate() { return {}; }
  /// The ranks sharing the current evaluation; null: only this process.
  Ranks* ranks() const { return ranks_; }
  void share_evaluation(Ranks* ranks) { ranks_ = ranks; }
  /// The unit of a batch's count, as the progress line shows it: "1.2k texts/s".
  virtual std::string unit() const { return "tokens"; }

 private:
  Ranks* ranks_ = nullptr;
};

}  // namespace heed
