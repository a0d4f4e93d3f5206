#pragma once

#include <cstdint>
#include <functional>
#include <numbers>
#include <span>
#include <vector>

#include "heed/models/language_model.h"
#include "heed/models/loss.h"
#include "heed/text/token_stream.h"

namespace heed {

/// Returns a batch of windows of equal length. Throws Error if lengths differ or a window reaches
/// beyond the stream.
LanguageModelBatch window_batch(const TokenStream& tokens, std::span<const Window> windows,
                                Device device = {});

/// The loss of a language model on a text.
struct TextLoss {
  double nats = 0;          ///< negative log-likelihood of all predicted tokens, summed
  std::int64_t tokens = 0;  ///< number of predicted tokens
  /// Unicode characters of the text; losses per character are comparable across tokenizers.
  std::int64_t characters = 0;
  /// Nats and tokens of each batch of windows, in their order.
  std::vector<std::vector<double>> parts = {};

  double nats_per_token() const { return nats / static_cast<double>(tokens); }
  double perplexity() const;  ///< exp(nats_per_token())
  double nats_per_character() const { return nats / static_cast<double>(characters); }
  double bits_per_character() const { return nats_per_character() / std::numbers::ln2; }
};

struct TextLossOptions {
  std::int64_t window = 256;  ///< tokens the model reads at once
  std::int64_t stride = 128;  ///< tokens from one window to the next (see strided_windows)
  std::int64_t rows = 16;     ///< windows computed at a time
  /// The most predicted tokens, in non-overlapping windows that are evenly spread; 0: all.
  std::int64_t sample = 0;
};

using ComputeNumbers = std::function<std::vector<double>(std::size_t piece)>;
/// Returns compute(piece) for each piece of work, in order.
using ShareNumbers =
    std::function<std::vector<std::vector<double>>(std::size_t pieces, const ComputeNumbers& compute)>;

/// Returns the loss of every token of a stream except the first, each predicted once. The caller
/// passes `characters`, the number of characters in the text of all these tokens; a sample gets its
/// share of them. `share`, unless null, has the batches computed. Records no gradient.
TextLoss text_loss(LanguageModel& model, const TokenStream& tokens, std::int64_t characters,
                   const TextLossOptions& options, const ShareNumbers& share = nullptr);

}  // namespace heed
