#include "heed/models/attention/shared/sorting.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/autograd/ops.h"

namespace heed {

Tensor inverse_order(const Tensor& order) {
  return argsort(order);
}

Tensor unsorted_weights(const Tensor& weights, const Tensor& order) {
  const Tensor rank = inverse_order(order);
  const auto rows = [&](const Tensor& x) { return transpose(gather_rows(transpose(x, 1, 2), rank), 1, 2); };
  return transpose(rows(transpose(rows(weights), 2, 3)), 2, 3);
}

Tensor weights_of_blocks(const Tensor& weights, std::int64_t n) {
  const std::int64_t blocks = weights.size(1), width = weights.size(2);
  std::vector<Tensor> rows;
  for (std::int64_t i = 0; i < blocks; ++i)
    rows.push_back(pad(select(weights, 1, i), 2, i * width, (blocks - 1 - i) * width));
  return slice(slice(concat(rows, 1), 1, 0, n), 2, width, width + n);  // drops the filler before block 0
}

std::shared_ptr<const BlockPattern> neighbour_pattern(std::int64_t n, std::int64_t width, bool next) {
  const std::int64_t blocks = (n + width - 1) / width, seen = std::min<std::int64_t>(blocks, 2);
  std::vector<std::int32_t> offsets{0}, columns;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t first = std::clamp<std::int64_t>(next ? i : i - 1, 0, blocks - seen);
    for (std::int64_t j = first; j < first + seen; ++j) columns.push_back(static_cast<std::int32_t>(j));
    offsets.push_back(static_cast<std::int32_t>(columns.size()));
  }
  const auto count = static_cast<std::int64_t>(columns.size());
  auto pattern = std::make_shared<BlockPattern>();
  pattern->block = width;
  pattern->queries = pattern->keys = n;
  pattern->offsets = Tensor::from(offsets, {blocks + 1});
  pattern->columns = Tensor::from(columns, {count});
  pattern->mask_ids = Tensor::full({count}, -1, DType::i32);
  // All blocks are full, but a pattern needs at least one mask: a single element, viewed as width x
  // width.
  pattern->masks = Tensor::ones({1}, DType::i32).view({1, width, width}, {0, 0, 0}, 0);
  return pattern;
}

Tensor into_blocks(const Tensor& x, std::int64_t width, double filler) {
  const std::int64_t n = x.size(1), blocks = (n + width - 1) / width;
  Shape shape{x.size(0), blocks, width};
  for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(x.size(axis));
  return reshape(pad(x, 1, 0, blocks * width - n, filler), shape);
}

Tensor from_blocks(const Tensor& x, std::int64_t n) {
  Shape shape{x.size(0), x.size(1) * x.size(2)};
  for (int axis = 3; axis < x.rank(); ++axis) shape.push_back(x.size(axis));
  return slice(reshape(x, shape), 1, 0, n);
}

Tensor with_block_before(const Tensor& x, double filler) {
  return concat({pad(slice(x, 1, 0, x.size(1) - 1), 1, 1, 0, filler), x}, 2);
}

Tensor mask_as_numbers(const Tensor& mask, const Tensor& x) {
  return mask.defined() ? cast(mask, x.dtype()) : Tensor::ones({x.size(0), x.size(1)}, x.dtype(), x.device());
}

Tensor at_real(const Tensor& x, const Tensor& mask, std::int64_t padding) {
  if (!mask.defined()) return x;
  return where(mask, x, padding);
}

Tensor sorted_top_k(const Tensor& scores, const Tensor& real, std::int64_t k) {
  const Tensor free = scores.detach();
  if (!real.defined()) return sort(top_k(free, k).second).first;
  const double lowest = -std::numeric_limits<double>::infinity();
  const Tensor ids = top_k(where(real, free, lowest), k).second;
  // Padding sorts last, as position n, and then becomes -1.
  const std::int64_t n = free.size(-1);
  const Tensor kept = gather(expand(real, free.shape()), -1, ids);
  const Tensor ascending = sort(where(kept, ids, n)).first;
  return masked_fill(ascending, equal(ascending, n), -1);
}

Tensor unit_vectors(const Tensor& x) {
  constexpr double shortest = 1e-12;
  const auto width = static_cast<double>(x.size(-1));
  return rms_norm(x, {}, shortest * shortest / width) * (1 / std::sqrt(width));
}

std::int64_t default_clusters(const AttentionConfig& config) {
  if (config.max_length <= 0) return 3;
  return std::max<std::int64_t>(1, std::llround(std::sqrt(static_cast<double>(config.max_length))));
}

}  // namespace heed
