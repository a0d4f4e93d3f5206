#include "heed/models/attention/residue_attention.h"

namespace heed {

Tensor residue_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t stride,
                         AttentionOptions options) {
  check(stride > 0, "residue_attention: the stride must be positive, got ", stride);
  check(!options.mask.defined() && !options.pattern, "residue_attention: takes neither mask nor pattern");
  const std::int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  const std::int64_t rounds = (length + stride - 1) / stride, missing = rounds * stride - length;
  // The residue becomes part of the batch: [B, H, N, dh] -> [B stride, H, N / stride, dh].
  const auto fold = [&](const Tensor& x) {
    const std::int64_t width = x.size(3);
    const Tensor parts = reshape(pad(x, 2, 0, missing), {batch, heads, rounds, stride, width});
    return reshape(permute(parts, {0, 3, 1, 2, 4}), {batch * stride, heads, rounds, width});
  };
  if (!options.key_mask.defined())
    options.key_mask = Tensor::ones({batch, length}, DType::i32, query.device());
  const Tensor real = reshape(pad(options.key_mask, 1, 0, missing), {batch, rounds, stride});
  options.key_mask = reshape(transpose(real, 1, 2), {batch * stride, rounds});

  const Tensor folded = attention(fold(query), fold(key), fold(value), options);
  const std::int64_t width = value.size(3);
  const Tensor parts = reshape(folded, {batch, stride, heads, rounds, width});
  const Tensor out = reshape(permute(parts, {0, 2, 3, 1, 4}), {batch, heads, rounds * stride, width});
  return slice(out, 2, 0, length);
}

}  // namespace heed
