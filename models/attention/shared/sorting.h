#pragma once

#include "heed/core/attention.h"
#include "heed/models/attention/attention.h"

// Shared by the variants that sort the words and then attend to neighbours.

namespace heed {

/// The inverse of permutations i32 [G, n]: the rank of every original position.
Tensor inverse_order(const Tensor& order);
/// Attention weights [B, H, n, n] between sorted words -> weights between the words in their
/// original order.
Tensor unsorted_weights(const Tensor& weights, const Tensor& order);
/// Weights [G, blocks, width, 2 width] of blocks that see with_block_before() -> weights between n
/// sorted words, [G, n, n]. Slow: for inspection only.
Tensor weights_of_blocks(const Tensor& weights, std::int64_t n);
/// The block pattern for sorted sequences of n words in blocks of `width`. With `next`, a block
/// sees itself and the next one, and the last block sees the one before. Otherwise a block sees
/// itself and the one before, and the first block sees the next one. No wrap-around.
std::shared_ptr<const BlockPattern> neighbour_pattern(std::int64_t n, std::int64_t width, bool next);

/// [G, n, ...] -> [G, blocks, width, ...], padded with `filler` at the end.
Tensor into_blocks(const Tensor& x, std::int64_t width, double filler = 0);
/// The inverse: [G, blocks, width, ...] -> [G, n, ...].
Tensor from_blocks(const Tensor& x, std::int64_t n);
/// [G, blocks, width, ...] -> [G, blocks, 2 width, ...]: the block before (`filler` for the first),
/// then the block itself.
Tensor with_block_before(const Tensor& x, double filler = 0);

/// The mask [B, n] as numbers of x's dtype; ones when it is undefined. x is [B, n, ...].
Tensor mask_as_numbers(const Tensor& mask, const Tensor& x);
/// `x` (i32) where the mask, broadcast to it, marks a real token; `padding` elsewhere.
Tensor at_real(const Tensor& x, const Tensor& mask, std::int64_t padding);
/// The positions of the k largest scores of each row, in ascending order, among those where `real`
/// (i32, broadcast to scores; undefined: everywhere) is not 0. When there are fewer than k, the
/// rest is -1.
Tensor sorted_top_k(const Tensor& scores, const Tensor& real, std::int64_t k);
/// x / |x| over the last axis, |x| at least 1e-12.
Tensor unit_vectors(const Tensor& x);
/// The default number of clusters: sqrt(max_length), or 3 without a max_length.
std::int64_t default_clusters(const AttentionConfig& config);

}  // namespace heed
