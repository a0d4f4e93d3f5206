#pragma once

#include "heed/models/loss.h"

namespace heed {

/// What a pointer knows of the sources while it writes, one row for each hypothesis.
struct PointerSource {
  Tensor keys;  ///< [R, M, d]
  Tensor ids;   ///< i32 [R, M], padding -1
  Tensor mask;  ///< i32 [R, M]; undefined: all real
};

/// Lets a decoder copy tokens of its source (the pointer-generator of See, Liu and Manning 2017, arXiv 1704.04368, eq. 8
/// and 9, with dot products for its additive attention):
///
///   P(w) = g P_vocabulary(w) + (1 - g) sum_{i: source_i = w} a_i
///   a = softmax(q K^T / sqrt(d)),  q = Wq h + bq,  K_i = Wk [m_i; e_{i-1}] + bk,  g = sigmoid(wg h + bg)
///
/// h: the decoder's output, m: the memory, e_{i-1}: the (scaled) embedding of the token before token i, so that what
/// follows the token written last is found easily. Parts: "query", "key", "gate".
class Pointer : public Module {
 public:
  Pointer(const TransformerConfig& config, Initialiser& initialiser);

  /// What can be copied: memory [B, M, d], ids i32 [B, M] with their mask, the embedding of the source.
  PointerSource source(const Tensor& memory, const PaddedTokens& tokens, const Embedding& embedding) const;
  /// log P [B, T, V] for hidden states [B, T, d] and vocabulary logits [B, T, V].
  Tensor log_probabilities(const Tensor& hidden, const Tensor& logits, const PointerSource& source,
                           Context& context) const;
  /// The loss of hidden states [B, T, d]: -log P of the targets; `smoothing` is of P_vocabulary alone.
  Loss loss(const Tensor& hidden, const VocabularyHead& head, const PointerSource& source,
            const Targets& targets, double smoothing, Context& context) const;

 private:
  /// a [B, T, M]
  Tensor weights(const Tensor& hidden, const PointerSource& source, Context& context) const;
  /// The logit of g [..., 1] for hidden states [..., d] and what they would copy [..., M].
  Tensor gate(const Tensor& hidden, const Tensor& copied) const;

  double embedding_scale_;
  Linear query_, key_, gate_;
};

}  // namespace heed
