#pragma once

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"

// Options of attention by dot products.

namespace heed {

/// Somewhere for a query to look that holds nothing, so that it need not look at tokens that do not
/// matter ("Efficient streaming language models with attention sinks", Xiao et al. 2023, arXiv
/// 2309.17453, section 3.3): one more logit s_h in the denominator of every softmax,
///
///   O_i = sum_j e^(l_ij) v_j / ( e^(s_h) + sum_j e^(l_ij) )
///
/// "sink": "none", "zero" (s = 0, the paper's "zero sink", SoftMax-off-by-one), or "learned": a
/// number for each head, "logit" [H] from 0, as in gpt-oss. The paper's learned sink is a token at
/// the beginning of every sequence, with a value of its own; here the sink has none.
class AttentionSink : public Module {
 public:
  explicit AttentionSink(const AttentionConfig& config);

  bool has_parameters() const { return logit_.defined(); }
  /// attention(query, key, value, options) with the sink. The rows of H heads may be regrouped as
  /// [B, G, n, dh].
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionOptions& options) const;
  /// The weights [B, H, N, M] without the sink.
  Tensor weights(const Tensor& query, const Tensor& key, const AttentionOptions& options) const;

 private:
  /// The share of each row's softmax that the keys keep, from its log_sum_exp without the sink [B,
  /// G, n].
  Tensor share(const Tensor& log_sum_exp) const;

  std::int64_t heads_;
  bool active_;
  Tensor logit_;  // s [H]; undefined: 0
};

/// A sigmoid gate on what attention gives, before Wo ("Gated attention for large language models",
/// Qiu et al. 2025, arXiv 2505.06708, section 2.2, position G1):
///
///   O = ( merge(A v) * sigmoid( X Wg ) ) Wo
///
/// "gate": "none", "elementwise", with Wg [d, H dh], the paper's best, or "headwise", with Wg [d,
/// H] and one number for all elements of a head. X is the input of the queries. The authors' code
/// has Wg among the columns of Wq, without a bias of its own; here it is "gate", with a bias where
/// projections have one.
class OutputGate {
 public:
  OutputGate(const AttentionConfig& config, Initialiser& initialiser);

  /// The module; null without a gate.
  Linear* map() { return map_.get(); }
  /// attended [B, N, H dh], gated by x [B, N, d].
  Tensor operator()(const Tensor& attended, const Tensor& x) const;

 private:
  std::int64_t heads_;
  std::unique_ptr<Linear> map_;  // Wg
};

/// Options of queries, keys and values, before positions turn them.
///
/// "qk_norm" (false; Dehghani et al. 2023, arXiv 2302.05442, section 2, there by layer normalisation;
/// Qwen3: arXiv 2505.09388, section 2, as here): the queries and the keys of every head are divided by
/// their root mean square and multiplied by a vector [dh] that all heads share, the weights of the parts
/// "query_norm" and "key_norm".
///
/// "value_residual" (false; "Value residual learning", Zhou et al. 2024, arXiv 2410.17897, section 3:
/// ResFormer, learnable): the values of a layer become a V_1 + b V, where V_1 are those of the first layer
/// of the stack with the same mechanism and the parameter "value_residual" [2] is a and b, from 1/2. Only
/// in self-attention. Caches hold the mixed values, so decoding keeps nothing more.
class ProjectionOptions {
 public:
  struct Taken {
    bool normalised = false, residual = false;
  };
  static Taken take(const AttentionConfig& config, bool can_normalise = true);

  ProjectionOptions() = default;
  ProjectionOptions(Attention& owner, const Taken& taken);
  /// Leaves alone what is undefined.
  Projections::Projected operator()(Projections::Projected x, Context& context) const;

 private:
  const Attention* owner_ = nullptr;
  std::unique_ptr<Norm> query_norm_, key_norm_;  // null: none
  bool residual_ = false;
  std::unique_ptr<Parameter> shares_;  // a and b; null: none, or the first layer
};

}  // namespace heed
