#include "heed/models/attention/residue_attention.h"

#include <algorithm>

#include "heed/core/checked.h"

namespace heed {
namespace {

/// Positions in rounds of `stride`: the residue becomes part of the batch.
class Residues {
 public:
  Residues(const Tensor& query, std::int64_t stride, const AttentionOptions& options)
      : batch_(query.size(0)), heads_(query.size(1)), length_(query.size(2)) {
    check(stride > 0, "residue_attention: the stride must be positive, got ", stride);
    check(!options.mask.defined() && !options.pattern, "residue_attention: takes neither mask nor pattern");
    // From the length on all strides are one: each position has a residue of its own.
    constexpr std::int64_t any_length = 4096;
    stride_ = std::min(stride, std::max(any_length, length_));
    rounds_ = ceil_div(length_, stride_);
    missing_ = rounds_ * stride_ - length_;
  }

  std::int64_t rounds() const { return rounds_; }

  /// [B, H, N, dh] -> [B stride, H, N / stride, dh].
  Tensor fold(const Tensor& x) const {
    const std::int64_t width = x.size(3);
    const Tensor parts = reshape(pad(x, 2, 0, missing_), {batch_, heads_, rounds_, stride_, width});
    return reshape(permute(parts, {0, 3, 1, 2, 4}), {batch_ * stride_, heads_, rounds_, width});
  }

  Tensor unfold(const Tensor& x) const {
    const std::int64_t width = x.size(3);
    const Tensor parts = reshape(x, {batch_, stride_, heads_, rounds_, width});
    const Tensor out = reshape(permute(parts, {0, 2, 3, 1, 4}), {batch_, heads_, rounds_ * stride_, width});
    return slice(out, 2, 0, length_);
  }

  /// The key mask in the same order; what fills up the last round is no key.
  AttentionOptions fold(AttentionOptions options, Device device) const {
    if (!options.key_mask.defined()) options.key_mask = Tensor::ones({batch_, length_}, DType::i32, device);
    const Tensor real = reshape(pad(options.key_mask, 1, 0, missing_), {batch_, rounds_, stride_});
    options.key_mask = reshape(transpose(real, 1, 2), {batch_ * stride_, rounds_});
    return options;
  }

 private:
  std::int64_t batch_, heads_, length_, stride_ = 1, rounds_ = 0, missing_ = 0;
};

/// i32 [n, n], 1 where |i - j| >= apart.
Tensor far_apart(std::int64_t n, std::int64_t apart, Device device) {
  const Tensor at = Tensor::arange(n, DType::i32, device);
  const Tensor distance = unsqueeze(at, 1) - unsqueeze(at, 0);
  const std::int64_t least = std::min(apart, n);  // nothing is further apart
  return greater_equal(distance * distance, least * least);
}

}  // namespace

Tensor residue_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t stride,
                         const AttentionOptions& options) {
  const Residues residues(query, stride, options);
  return residues.unfold(attention(residues.fold(query), residues.fold(key), residues.fold(value),
                                   residues.fold(options, query.device())));
}

AttentionPart residue_attention_part(const Tensor& query, const Tensor& key, const Tensor& value,
                                     std::int64_t stride, std::int64_t apart,
                                     const AttentionOptions& options) {
  const Residues residues(query, stride, options);
  AttentionOptions folded = residues.fold(options, query.device());
  folded.mask = far_apart(residues.rounds(), apart, query.device());
  const AttentionPart part =
      attention_part(residues.fold(query), residues.fold(key), residues.fold(value), folded);
  return {residues.unfold(part.output), squeeze(residues.unfold(unsqueeze(part.log_sum_exp, 3)), 3)};
}

}  // namespace heed
