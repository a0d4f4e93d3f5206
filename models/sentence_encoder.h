#pragma once

#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"

namespace heed {

/// A sequence encoder that gives a text one vector of length 1: its pooled output, divided by its norm. Texts that belong
/// together are to point the same way (Reimers and Gurevych 2019, arXiv 1908.10084).
class SentenceEncoder : public SequenceEncoder {
 public:
  explicit SentenceEncoder(const TransformerConfig& config);

  /// Unit vectors [B, d] of tokens i32 [B, N].
  Tensor vectors(const PaddedTokens& tokens, Context& context);
  /// The loss of B pairs, each of which has the others' partners for wrong answers (Henderson et al. 2017, arXiv
  /// 1705.00652, section 4.4): sum_i -log softmax_j(scale u_i . v_j)_i, with rows 0 to B-1 of the tokens the first texts
  /// and rows B to 2B-1 the second ones; `smoothing` is the share of each target's probability that is spread over all
  /// partners. Throws an Error for an odd number of rows.
  Loss loss(const PaddedTokens& tokens, double scale, double smoothing, Context& context);

 private:
  SentenceEncoder(const TransformerConfig& config, Initialiser initialiser);
};

}  // namespace heed
