#pragma once

#include "heed/models/batch.h"
#include "heed/models/layers.h"
#include "heed/models/transformer_config.h"

namespace heed {

/// The loss of one batch. What layers add to it is in the context of the pass.
struct Loss {
  Tensor sum;              ///< rank 0: summed over the targets
  std::int64_t count = 0;  ///< number of targets: real target tokens, or samples of a classifier

  /// The mean over the targets.
  Tensor mean() const;
};

/// What training minimises: the mean over the targets plus the context's weighted auxiliary losses.
Tensor objective(const Loss& loss, const Context& context);

/// The rows of x [B, T, n] that predict the targets: [count, n]. Throws an Error when there are others than targets.
Tensor target_rows(const Tensor& x, const Targets& targets);

/// Label-smoothed cross entropy of predicting the targets with the logits hidden W^T + b, summed over the
/// targets; hidden [B, T, d], weight [V, d], bias [V] or undefined. Logits exist for real targets only, and
/// some rows at a time.
Loss token_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Targets& targets,
                double smoothing);

/// The output of a language model: logits hidden W^T + b over a vocabulary. W [V, d] is the embedding unless
/// tie_embeddings is "none"; then it is the parameter "weight". The bias is the parameter "bias" with the setting
/// output_bias; else it is there where its owner adds it.
class VocabularyHead : public Module {
 public:
  /// The embedding must outlive the head.
  VocabularyHead(const TransformerConfig& config, const Embedding& embedding, Initialiser& initialiser);
  /// Logits [..., V] of hidden states [..., d].
  Tensor operator()(const Tensor& hidden) const;
  /// token_loss() with these logits.
  Loss loss(const Tensor& hidden, const Targets& targets, double smoothing) const;

  Tensor bias;  ///< [V], or undefined

 private:
  const Tensor& weight() const { return own_.defined() ? own_ : embedding_.weight; }

  const Embedding& embedding_;
  Tensor own_;  // undefined when tied
};

}  // namespace heed
