#pragma once

#include <optional>

#include "../common/batches.h"
#include "heed/training/task.h"
#include "settings.h"
#include "translator.h"

namespace heed::programs {

/// How well a model translates a text.
struct TranslationQuality {
  double loss = 0;        ///< mean cross entropy of a target token, in nats
  double bleu = 0;        ///< 0 to 100
  double exact = 0;       ///< share of lines that are exactly the reference, 0 to 1
  std::string signature;  ///< of BLEU
};

/// Sentence pairs as tokens, in batches of like length.
class TokenizedText {
 public:
  TokenizedText(const Tokenizer& tokenizer, const ParallelText& text, const BatchOptions& options);
  const BatchPlan& plan() const { return plan_; }
  TranslationBatch batch(const Batch& rows, std::int32_t begin, std::int32_t end, Device device) const;

 private:
  std::vector<Tokens> sources_, targets_;
  BatchPlan plan_;
};

/// The loss of a text, without label smoothing: the mean over all target tokens.
double translation_loss(EncoderDecoder& model, const Tokenizer& tokenizer, const ParallelText& text);
/// Translates a text and compares the result with its target side.
TranslationQuality measure(EncoderDecoder& model, const Tokenizer& tokenizer, const ParallelText& text,
                           Translator& translator);

/// What the trainer trains.
class TranslationTask : public Task {
 public:
  TranslationTask(EncoderDecoder& model, Tokenizer tokenizer, Corpus corpus, const Settings& settings);

  Module& model() override { return model_; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(train_.plan(), epoch).size());
  }
  BatchLoss loss(std::int64_t epoch, std::int64_t batch, Context& context) override;
  Evaluation evaluate() override;

  const BatchPlan& plan() const { return train_.plan(); }

 private:
  EncoderDecoder& model_;
  Tokenizer tokenizer_;
  ParallelText valid_;
  TokenizedText train_;
  Translator translator_;
  std::string keep_best_by_;
  double label_smoothing_;
  EpochBatches batches_;
};

}  // namespace heed::programs
