#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"

// Shared by the Synthesizers (Tay et al. 2021, arXiv 2005.00743): each replaces the logits of
// self-attention by S(X) and keeps the values, the masked softmax and the output projection.

namespace heed {

/// The part of S that is a product rows columns^T and is never materialised: rows [B or 1, H, n, f] and
/// columns [B or 1, H or 1, N, f]. Both are undefined when S has no such part.
struct LogitFactors {
  Tensor rows, columns;
};

/// S(X) = rows columns^T + matrix for one kind of Synthesizer, with its parameters. Queries are the
/// n = N - first positions from `first` on; keys are all N positions of x [B, N, d]. A batch extent of 1
/// means that all samples share the logits. A kind overrides one of the two parts, or both.
class SynthesizerLogits : public Module {
 public:
  virtual LogitFactors factors(const Tensor& /*x*/, std::int64_t /*first*/) const { return {}; }
  /// What the matrix is computed from: matrix_parts() tensors [B or 1, H, n, ...], with one row per query.
  virtual std::size_t matrix_parts() const { return 0; }
  virtual std::vector<Tensor> matrix_rows(const Tensor& /*x*/, std::int64_t /*first*/) const { return {}; }
  /// The first `keys` columns of the matrix, [B or 1, H, rows, keys], for a subset of these rows.
  virtual Tensor matrix(std::span<const Tensor> /*rows*/, std::int64_t /*keys*/) const { return {}; }
};

using LogitsPtr = std::unique_ptr<SynthesizerLogits>;
/// The variant `name` with one kind of logits, which takes its settings from config.options: self-attention,
/// optionally causal, over up to max_length positions.
AttentionVariant synthesizer_variant(std::string name,
                                     LogitsPtr (*make)(const AttentionConfig&, Initialiser&));

/// Initial values of H matrices [in, out], each Xavier uniform on its own: [H, in, out].
Tensor xavier_per_head(std::int64_t heads, std::int64_t in, std::int64_t out, Initialiser& initialiser);
/// One matrix per head: x W + b as [B, H, N, f], for x [B, N, d], W [H, d, f] and b [H, f] or undefined.
Tensor linear_per_head(const Tensor& x, const Tensor& weight, const Tensor& bias);
/// Settings shared by several kinds: the hidden width df (default d / H), and whether the maps that produce
/// the logits have biases (default: as the projections).
std::int64_t take_hidden_width(const AttentionConfig& config);
bool take_logit_bias(const AttentionConfig& config);

}  // namespace heed
