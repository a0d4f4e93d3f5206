#pragma once

#include <functional>

#include "heed/models/attention/attention.h"

namespace heed {

/// Attention with weights that are products of positive features phi, so that the sums over the
/// keys are formed once for all queries, in linear time:
///
///   O_i = phi(q_i) S / (phi(q_i) z)        S = sum_j phi(k_j)^T v_j,  z = sum_j phi(k_j)^T
///
/// over the keys that are not padding and, in the causal form, j <= i. There S and z are carried
/// over tokens, and they are all that decoding keeps. Dropout drops tokens from S. Sums are f32
/// where inputs are f16 or bf16. Where no key is seen the output is 0.
///
/// Features are given as logarithms, so they may have any size: with c_m the largest log phi_m of
/// the keys seen, phi_m(k) is divided by e^{c_m}, and phi_m(q) multiplied. Then phi(q) is divided by
/// its largest element, which makes the denominator at least 1.
class FeatureAttention : public Attention {
 public:
  explicit FeatureAttention(const AttentionConfig& config);
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override;

 protected:
  /// log phi(x) = logs + log_scale; -infinity where phi is 0.
  struct Features {
    Tensor logs;            ///< [B, H, N, m]
    Tensor log_scale = {};  ///< [B, H, N, 1], which cancels for queries; undefined: 0
  };
  /// Positions of the rows of x: begin, ..., begin + count - 1, repeated from begin if queries of
  /// several samples share one memory.
  struct Places {
    std::int64_t begin, count;
  };
  /// Of x [B, H, N, dh], which is f32 or f64.
  using FeatureMap = std::function<Features(const Tensor& x, const Places& places)>;

  /// phi, the same for the queries and keys of one pass.
  virtual FeatureMap feature_map(Context& context) = 0;
  Tensor forward(const AttentionInput& input, Context& context) override;

 private:
  struct Keys {
    Tensor values, scale;  // phi(k) / e^c [B, H, N, m], and c [B, H, 1, m]
  };

  Tensor heads_of(const Tensor& x) const;
  Tensor with_ones(const Tensor& value, Context& context) const;
  static Tensor logs_of_keys(const Features& features, const Tensor& mask);
  static Keys key_features(const Features& features, const Tensor& mask);
  static Tensor feature_values(const Features& query, const Tensor& scale);
  Tensor feature_sums(const Keys& keys, const Tensor& value, Context& context) const;
  Tensor causal(const AttentionInput& input, AttentionCache& cache, Context& context);
  Tensor output(const Tensor& sums, const Tensor& like) const;
  void show_feature_weights(Context& context, const Features& query, const Keys& keys) const;

  Projections w_;
};

}  // namespace heed
