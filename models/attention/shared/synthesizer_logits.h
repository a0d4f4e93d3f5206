#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"

// What the Synthesizers share (Tay et al. 2021, arXiv 2005.00743): each replaces the logits of self-attention
// by S(X) and keeps values, masked softmax and output map.

namespace heed {

/// The part of S that is a product rows columns^T and need never be made: [B or 1, H, n, f] and [B or 1, H,
/// N, f]. Undefined where there is none.
struct LogitFactors {
  Tensor rows, columns;
};

/// S(X) = rows columns^T + matrix of one kind of Synthesizer, with its parameters. The positions from `first`
/// on ask, n = N - first of them; all N positions of x [B, N, d] may be looked at. A batch extent of 1 means
/// that all samples have the same. A kind gives one of the two parts, or both.
class SynthesizerLogits : public Module {
 public:
  virtual LogitFactors factors(const Tensor& /*x*/, std::int64_t /*first*/) const { return {}; }
  /// What the matrix is made of, with a row for each position that asks: so many tensors [B or 1, H, n, ...].
  virtual std::size_t matrix_parts() const { return 0; }
  virtual std::vector<Tensor> matrix_rows(const Tensor& /*x*/, std::int64_t /*first*/) const { return {}; }
  /// The first `keys` columns of the matrix, [B or 1, H, rows, keys], for some of these rows.
  virtual Tensor matrix(std::span<const Tensor> /*rows*/, std::int64_t /*keys*/) const { return {}; }
};

using LogitsPtr = std::unique_ptr<SynthesizerLogits>;
/// The kinds, each in the file of its variant. Settings are taken from config.options.
LogitsPtr make_dense_logits(const AttentionConfig& config, Initialiser& initialiser);
LogitsPtr make_random_logits(const AttentionConfig& config, Initialiser& initialiser);
LogitsPtr make_random_fixed_logits(const AttentionConfig& config, Initialiser& initialiser);
LogitsPtr make_factorized_dense_logits(const AttentionConfig& config, Initialiser& initialiser);
LogitsPtr make_factorized_random_logits(const AttentionConfig& config, Initialiser& initialiser);
LogitsPtr make_mixture_logits(const AttentionConfig& config, Initialiser& initialiser);

/// The variant `name` with logits of one kind: causal self-attention for up to max_length positions.
std::unique_ptr<Attention> make_synthesizer(std::string_view name, const AttentionConfig& config,
                                            LogitsPtr (*make)(const AttentionConfig&, Initialiser&));
/// What every Synthesizer can do.
Capabilities synthesizer_capabilities();

/// The initial value of H matrices [in, out], each Xavier uniform by itself: [H, in, out].
Tensor xavier_per_head(std::int64_t heads, std::int64_t in, std::int64_t out, Initialiser& initialiser);
/// x [B, N, d] through one matrix per head: x W + b, with W [H, d, f] and b [H, f] or undefined, is
/// [B, H, N, f].
Tensor linear_per_head(const Tensor& x, const Tensor& weight, const Tensor& bias);
/// Settings that several kinds have: the width of a hidden layer (default d / H), and whether the maps that
/// make the logits have biases (default: as the projections).
std::int64_t take_hidden_width(const AttentionConfig& config);
bool take_logit_bias(const AttentionConfig& config);

}  // namespace heed
