#pragma once

#include "../common/batches.h"
#include "heed/data/text_windows.h"
#include "heed/training/task.h"
#include "settings.h"

namespace heed::programs {

/// What the trainer trains.
class LanguageModelTask : public Task {
 public:
  /// Throws an Error when a text is shorter than a window or has characters without a token.
  LanguageModelTask(LanguageModel& model, const Tokenizer& tokenizer, const Corpus& corpus,
                    const Settings& settings);

  Module& model() override { return model_; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(plan_, epoch).size());
  }
  BatchLoss loss(std::int64_t epoch, std::int64_t batch, Context& context) override;
  Evaluation evaluate() override;

 private:
  LanguageModel& model_;
  Tokens train_, valid_;  // streams; nothing to measure with: empty
  std::int64_t valid_characters_;
  WindowPlan plan_;
  TextLossOptions evaluation_;
  double label_smoothing_;
  EpochBatchesOf<WindowPlan> batches_;
};

}  // namespace heed::programs
