#pragma once

#include <memory>
#include <string_view>

#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"

// What the Synthesizers share (Tay et al. 2021, arXiv 2005.00743): each replaces the logits of self-attention
// by S(X) and keeps values, masked softmax and output map.

namespace heed {

/// Logits S = rows columns^T as a product, which need never be made: [B or 1, H, queries, f] and
/// [B or 1, H, N, f].
struct LogitFactors {
  Tensor rows, columns;
};

/// S(X) of one kind of Synthesizer, with its parameters. Positions from `first` on ask; all N positions of
/// x [B, N, d] may be looked at. A batch extent of 1 means that all samples have the same logits.
class SynthesizerLogits : public Module {
 public:
  /// S [B or 1, H, N - first, N]. The base version multiplies factors().
  virtual Tensor logits(const Tensor& x, std::int64_t first) const;
  /// Whether S is a product, so that factors() gives it.
  virtual bool is_product() const { return false; }
  virtual LogitFactors factors(const Tensor& x, std::int64_t first) const;
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
