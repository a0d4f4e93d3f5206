#pragma once

#include "../common/batches.h"
#include "heed/training/task.h"
#include "quality.h"

namespace heed::programs {

/// What the trainer trains.
class ClassificationTask : public Task {
 public:
  ClassificationTask(EncoderClassifier& model, LabelledTokens train, LabelledTokens valid,
                     const Settings& settings);

  Module& model() override { return model_; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(plan_, epoch).size());
  }
  BatchLoss loss(std::int64_t epoch, std::int64_t batch, Context& context) override;
  Evaluation evaluate() override;

  const BatchPlan& plan() const { return plan_; }

 private:
  EncoderClassifier& model_;
  LabelledTokens train_, valid_;
  BatchPlan plan_;
  EpochBatches batches_;
  std::string keep_best_by_;
  double label_smoothing_;
  std::int64_t batch_size_;
};

}  // namespace heed::programs
