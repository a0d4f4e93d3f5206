#pragma once

#include "heed/core/block_pattern.h"
#include "heed/models/attention/attention.h"

// What the attentions that sort words first and then look at neighbours have in common.

namespace heed {

/// The inverse of permutations i32 [G, n]: the rank of every original position.
Tensor inverse_order(const Tensor& order);
/// Attention weights [B, H, n, n] between sorted words -> between words in their own order.
Tensor unsorted_weights(const Tensor& weights, const Tensor& order);
/// Weights [G, blocks, width, 2 width] of blocks that see with_block_before() -> between n sorted words,
/// [G, n, n]. Slow: for looking inside.
Tensor weights_of_blocks(const Tensor& weights, std::int64_t n);
/// The block pattern of sorted sequences of n words in blocks of `width`: a block sees itself and the next
/// one, and the last block the one before (`next`); or itself and the one before, and the first block the
/// next one. No wrap-around.
std::shared_ptr<const BlockPattern> neighbour_pattern(std::int64_t n, std::int64_t width, bool next);

/// [G, n, ...] -> [G, blocks, width, ...], filled up with `filler` at the end.
Tensor into_blocks(const Tensor& x, std::int64_t width, double filler = 0);
/// The inverse: [G, blocks, width, ...] -> [G, n, ...].
Tensor from_blocks(const Tensor& x, std::int64_t n);
/// [G, blocks, width, ...] -> [G, blocks, 2 width, ...]: the block before, then the block itself; before the
/// first there is `filler`.
Tensor with_block_before(const Tensor& x, double filler = 0);

/// The mask [B, n] as numbers of x's dtype; ones when it is undefined. x is [B, n, ...].
Tensor mask_as_numbers(const Tensor& mask, const Tensor& x);
/// `x` (i32) where the mask, broadcast to it, says that a token is real, `padding` elsewhere.
Tensor at_real(const Tensor& x, const Tensor& mask, std::int64_t padding);
/// The positions of the k largest entries of each row among those where `real` (i32, broadcast to scores;
/// undefined: everywhere) is not 0, ascending; -1 at the end when there are fewer than k.
Tensor sorted_top_k(const Tensor& scores, const Tensor& real, std::int64_t k);
/// x / |x| over the last axis, |x| at least 1e-12.
Tensor unit_vectors(const Tensor& x);
/// The number of clusters when a configuration is silent: sqrt(max_length), or 3 when that is not stated.
std::int64_t default_clusters(const AttentionConfig& config);

}  // namespace heed
