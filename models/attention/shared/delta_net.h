#pragma once

#include <memory>
#include <vector>

#include "heed/models/attention/shared/token_sums.h"

namespace heed {

/// How the rule of a mechanism differs from that of DeltaNet.
struct DeltaRule {
  std::int64_t steps = 1;  ///< rules per token, applied one after the other, each with its k, v and beta
  bool reflects = false;   ///< beta is twice the sigmoid, so that a rule may reflect at the key
  /// Two rates for beta, of each feature of the keys and of the values: S_t = (I - k_t^T (b_t *
  /// k_t)) diag(alpha_t) S_{t-1} + k_t^T (w_t * v_t). Only b reflects.
  bool by_feature = false;
  /// A factor f and a correction c for each head: S_t = (I - f beta_t k_t^T k_t) diag(alpha_t)
  /// S_{t-1} + beta_t k_t^T v_t, o_t = (q_t - c k_t) S_t, and a sigmoid in the gate.
  bool controlled = false;
};

/// Shared by the delta-rule mechanisms, which add their decay and gates:
///
///   q, k = unit( silu( conv(X Wq) ) ), unit( silu( conv(X Wk) ) ),   v = silu( conv(X Wv) )
///   beta_t = sigmoid(x_t Wb)
///   S_t = (I - beta_t k_t^T k_t) diag(alpha_t) S_{t-1} + beta_t k_t^T v_t,   o_t = q_t S_t
///   merge(RMSNorm(o))        one vector of gains for all heads
///
/// unit(x) = x / sqrt(|x|^2 + 1e-6). Settings: "value_width" e, the width of v relative to q;
/// "convolution", its taps; "scale", whether q is divided by sqrt(dk).
class DeltaNet : public RecurrentAttention {
 protected:
  explicit DeltaNet(const AttentionConfig& config, const DeltaRule& rule = {});

  /// merge(RMSNorm(o)) [B, N, e d]; maps are those of X by Wq, Wk, Wv and Wb (by feature: Wb has
  /// the columns of b, then of w). log alpha is [B, N, H], or [B, N, d] with a number for each
  /// feature of the keys; undefined: 0. Padded tokens write nothing, fade nothing and are 0 for
  /// conv. Dropout drops tokens from what is written. Without `causal`, o is the sum of both
  /// directions'. The cache holds S in `key`, and in `value` the last inputs of conv.
  Tensor recurred(const std::vector<Tensor>& maps, const Tensor& log_alpha, const Tensor& mask,
                  AttentionCache* cache, Context& context) const;

  DeltaRule rule_;
  std::int64_t value_width_;  // e d
  Part<Linear> query_, key_, value_, strength_, output_;

 private:
  struct Parts;
  bool scales_;
  Tensor one_way(const Parts& parts, AttentionCache* cache) const;

  Part<ShortConvolution> convolution_;
  Tensor gains_;                // [e dh]
  Tensor factor_, correction_;  // f before its sigmoid, and c [H]; undefined if not controlled
};

/// The delta rule with one decay for each head and a gate:
///
///   alpha_t = e^( -e^A softplus(x_t Wa + ba) ),   O = ( silu(X Wg) * merge(RMSNorm(o)) ) Wo
///
/// Setting: "gated"; false: alpha = 1 and O = merge(RMSNorm(o)) Wo.
class GatedDelta : public DeltaNet {
 protected:
  explicit GatedDelta(const AttentionConfig& config, const DeltaRule& rule = {});
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override;

 private:
  std::unique_ptr<Linear> decay_, gate_;  // null if not gated
  Tensor rate_, step_;                    // A, ba [H]
};

}  // namespace heed
