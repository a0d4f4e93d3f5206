#pragma once

#include "heed/models/loss.h"
#include "heed/models/positions.h"
#include "heed/models/transformer.h"

namespace heed {

/// The data that a pointer needs of B sources.
struct PointerSource {
  Tensor keys;  ///< [B, M, d]
  Tensor ids;   ///< i32 [B, M], padding -1
  Tensor mask;  ///< i32 [B, M]; undefined: all real
};

/// Lets a decoder copy tokens of its source: the pointer-generator of See, Liu and Manning 2017
/// (arXiv 1704.04368, eq. 8 and 9), with dot products instead of additive attention:
///
///   P(w) = g P_vocabulary(w) + (1 - g) sum_{i: source_i = w} a_i
///   a = softmax(q K^T / sqrt(d)),  q = Wq h + bq,  K_i = Wk [m_i; e_{i-1}] + bk
///   g = sigmoid(wg h + bg)
///
/// h is the decoder's output, m the memory, and e_{i-1} the (scaled) embedding of the token before
/// token i, which makes the successor of the last written token easy to find. Parts: "query",
/// "key", "gate".
class Pointer : public Module {
 public:
  Pointer(const TransformerConfig& config, Initialiser& initialiser);

  /// Prepares the source to copy from: memory [B, M, d], ids i32 [B, M] with their mask, the source
  /// embedding.
  PointerSource source(const Tensor& memory, const PaddedTokens& tokens, const Embedding& embedding) const;
  /// Returns log P [B, T, V] for hidden states [B, T, d] and vocabulary logits [B, T, V].
  Tensor log_probabilities(const Tensor& hidden, const Tensor& logits, const PointerSource& source,
                           Context& context) const;
  /// Returns the loss of hidden states [B, T, d]: -log P of the targets; `smoothing` applies to
  /// P_vocabulary only.
  Loss loss(const Tensor& hidden, const VocabularyHead& head, const PointerSource& source,
            const Targets& targets, double smoothing, Context& context) const;

 private:
  /// a [B, T, M]
  Tensor weights(const Tensor& hidden, const PointerSource& source, Context& context) const;
  /// The logit of g [..., 1] for hidden states [..., d] and attention over the source `copied`
  /// [..., M].
  Tensor gate(const Tensor& hidden, const Tensor& copied) const;

  double embedding_scale_;
  Part<Linear> query_, key_, gate_;
};

/// The Transformer of Vaswani et al. 2017 (arXiv 1706.03762) for translation and other
/// sequence-to-sequence tasks. Its parts are "source_embedding" and "target_embedding" (a single
/// "embedding" when all are tied), "source" and "target" (positions), "encoder", "decoder",
/// "output" unless it is the target embedding, and "pointer" when config.pointer is set.
class EncoderDecoder : public Module {
 public:
  explicit EncoderDecoder(const TransformerConfig& config);

  /// Returns the memory [B, M, d] of source tokens i32 [B, M] with their mask (undefined: all
  /// real).
  Tensor encode(const PaddedTokens& source, Context& context);
  /// Returns hidden states [B, T, d] for target tokens i32 [B, T] (teacher forcing). Each position
  /// sees itself and earlier ones.
  Tensor decode(const PaddedTokens& target, const Tensor& memory, const Tensor& memory_mask,
                Context& context);
  /// Returns the log-probabilities of all tokens [B, T, V] for hidden states [B, T, d].
  Tensor log_probabilities(const Tensor& hidden, const Tensor& memory, const PaddedTokens& source,
                           Context& context) const;
  /// Returns the label-smoothed cross entropy over the real target tokens. Auxiliary losses of
  /// layers are in the context.
  Loss loss(const TranslationBatch& batch, double smoothing, Context& context);

  /// Returns the state before the first decoding step.
  DecoderState start(const Tensor& memory, const PaddedTokens& source) const;
  /// Reads one more token per hypothesis, i32 [R], and returns the logits [R, V] of the next one.
  /// With a pointer they are log-probabilities.
  Tensor step(const Tensor& tokens, DecoderState& state, Context& context);
  /// The maximum number of target tokens, the begin token included; 0: no limit.
  std::int64_t target_limit() const;

  const TransformerConfig& config() const { return config_; }
  DType dtype() const { return target_embedding_.weight.dtype(); }
  Device device() const { return target_embedding_.weight.device(); }

 private:
  EncoderDecoder(const TransformerConfig& config, Initialiser initialiser);
  const Embedding& source_embedding() const;

  TransformerConfig config_;
  std::unique_ptr<Embedding> source_embedding_;  // null when all embeddings are tied
  Part<Embedding> target_embedding_;
  Part<TokenInput> source_, target_;
  Part<Encoder> encoder_;
  Part<Decoder> decoder_;
  Part<VocabularyHead> output_;
  std::unique_ptr<Pointer> pointer_;  // null: no copying
};

/// True when a stack or its positions cannot handle lengths beyond config.max_length.
bool is_length_limited(const TransformerConfig& config, const AttentionChoices& choices);

}  // namespace heed
