#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/core/ranks.h"
#include "heed/data/large_text.h"
#include "heed/models/language_model.h"
#include "heed/models/loss.h"

namespace heed {

/// A batch of windows of equal length. Throws Error if lengths differ or a window reaches beyond the stream.
LanguageModelBatch window_batch(const TokenStream& tokens, std::span<const Window> windows,
                                Device device = {});

/// How well a language model predicts a text.
struct TextLoss {
  double nats = 0;          ///< negative log-likelihood of all predicted tokens, summed
  std::int64_t tokens = 0;  ///< number of predicted tokens
  /// Unicode characters of the text, which make tokenizers comparable.
  std::int64_t characters = 0;
  std::vector<std::vector<double>> parts = {};  ///< nats and tokens of each batch of windows, in their order

  double nats_per_token() const { return nats / static_cast<double>(tokens); }
  double perplexity() const;  ///< exp(nats_per_token())
  double nats_per_character() const { return nats / static_cast<double>(characters); }
  double bits_per_character() const;
};

struct TextLossOptions {
  std::int64_t window = 256;  ///< tokens the model reads at once
  std::int64_t stride = 128;  ///< tokens from one window to the next (see strided_windows)
  std::int64_t rows = 16;     ///< windows computed at a time
  /// The most tokens that are predicted, in windows side by side that are evenly spread; 0: all.
  std::int64_t sample = 0;
};

/// The loss of every token of a stream but the first, each predicted once. The caller passes
/// `characters`, the number of characters in the text of all these tokens; a sample has its share of them.
/// The batches are split among ranks, if any. Records no gradient.
TextLoss text_loss(LanguageModel& model, const TokenStream& tokens, std::int64_t characters,
                   const TextLossOptions& options, Ranks* ranks = nullptr);

}  // namespace heed
