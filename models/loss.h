#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/core/tensor.h"
#include "heed/models/config.h"
#include "heed/models/layers.h"

namespace heed {

/// The sequences of one batch, padded on the right to the longest. Padding has the id -1, whose
/// embedding is zero.
struct PaddedTokens {
  Tensor ids;        ///< i32 [B, N]
  Tensor mask = {};  ///< i32 [B, N], 1 = real; undefined when there is no padding
  /// i32 [B, N], the types of the tokens for models with token_types (-1: padding); undefined: all
  /// 0.
  Tensor types = {};
};
/// Pads sequences. A batch of empty sequences has N = 1, all padding. Throws when there are no
/// sequences.
PaddedTokens pad_tokens(std::span<const Tokens> sequences, Device device = {});

/// The tokens that a model must predict. Padding is not among them, so no vocabulary logits are
/// computed for it.
struct Targets {
  Tensor ids;   ///< i32 [count]
  Tensor rows;  ///< i32 [count]: positions in the flattened [B * T] outputs; undefined: all
  std::int64_t count = 0;
};
/// Makes targets of all tokens. Throws when there is no token at all.
Targets make_targets(std::span<const Tokens> sequences, Device device = {});

/// A batch for an encoder-decoder. The decoder reads begin, y1, ... and must predict y1, ..., end.
struct TranslationBatch {
  PaddedTokens source, target;  ///< target: what the decoder reads
  Targets targets;
};
/// Makes a batch; sources are used unchanged. Throws when the numbers of sources and targets
/// differ.
TranslationBatch make_translation_batch(std::span<const Tokens> sources, std::span<const Tokens> targets,
                                        std::int32_t begin, std::int32_t end, Device device = {});

/// A batch for a language model, which reads all but the last token of each sequence and must
/// predict all but the first.
struct LanguageModelBatch {
  PaddedTokens input;
  Targets targets;
};
/// Makes a batch. Throws when a sequence has fewer than two tokens.
LanguageModelBatch make_language_model_batch(std::span<const Tokens> sequences, Device device = {});

/// Sparse vectors of a batch, padded to the one with the most entries.
struct SparseBatch {
  Tensor ids = {};     ///< i32 [B, F]: which features row b has; -1: padding
  Tensor values = {};  ///< f32 [B, F]: their values
};

/// A batch for a classifier.
struct ClassificationBatch {
  PaddedTokens input;
  Tensor labels;            ///< i32 [B]
  SparseBatch sparse = {};  ///< for models with `sparse_features`
};
/// Makes a batch. Throws when the numbers of sequences and labels differ.
ClassificationBatch make_classification_batch(std::span<const Tokens> sequences,
                                              std::span<const std::int32_t> labels, Device device = {});

/// The loss of one batch, without the auxiliary losses of layers, which are in the context of the
/// pass.
struct Loss {
  Tensor sum;              ///< rank 0: summed over the targets
  std::int64_t count = 0;  ///< number of targets: real target tokens, or samples of a classifier

  /// The mean over the targets.
  Tensor mean() const { return sum / static_cast<double>(count); }
};

/// Returns the value that training minimises: the mean over the targets plus the context's weighted
/// auxiliary losses.
Tensor objective(const Loss& loss, const Context& context);

/// Returns the rows of x [B, T, n] that predict the targets: [count, n]. Throws an Error when there
/// are more or fewer rows than targets.
Tensor target_rows(const Tensor& x, const Targets& targets);

/// Returns the label-smoothed cross entropy of the targets under the logits hidden W^T + b, summed
/// over the targets; hidden [B, T, d], weight [V, d], bias [V] or undefined. Logits are computed
/// for real targets only, in chunks of rows.
Loss token_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Targets& targets,
                double smoothing);

/// The output of a language model: logits hidden W^T + b over a vocabulary. W [V, d] is the
/// embedding, or the parameter "weight" when tie_embeddings is "none". With the setting
/// output_bias, b is the parameter "bias"; otherwise it is undefined unless the owner sets it. With
/// the setting output_cap c, logits z become c tanh(z / c) (Gemma 2: arXiv 2408.00118, section 2.3).
class VocabularyHead : public Module {
 public:
  /// The embedding must outlive the head.
  VocabularyHead(const TransformerConfig& config, const Embedding& embedding, Initialiser& initialiser);
  /// Returns the logits [..., V] of hidden states [..., d].
  Tensor operator()(const Tensor& hidden) const;
  /// Returns token_loss() with these logits.
  Loss loss(const Tensor& hidden, const Targets& targets, double smoothing) const;

  Tensor bias;  ///< [V], or undefined

 private:
  const Tensor& weight() const { return own_.defined() ? own_ : embedding_.weight; }

  const Embedding& embedding_;
  double cap_;  // 0: none
  Tensor own_;  // undefined when tied
};

}  // namespace heed
