#pragma once

#include <vector>

#include "heed/autograd/ops.h"
#include "heed/core/attention.h"

// Shared by the variants whose queries choose blocks of keys: keys b l, ..., (b + 1) l - 1 are
// block b.

namespace heed {

/// The k blocks with the highest scores [B, G, N, blocks], i32 [B, G, N, k], -1 where fewer score
/// more than -infinity. No gradient. k is at most the number of blocks.
Tensor choose_blocks(const Tensor& scores, std::int64_t k);

/// Whether each block holds a real key: mask i32 [B, M], undefined = all real -> i32 [1 or B, 1, 1,
/// blocks].
Tensor blocks_with_keys(const Tensor& mask, std::int64_t keys, std::int64_t block, Device device);

/// Attention of queries to the blocks that they have chosen (choose_blocks), with one part for each
/// of the k: query [B, G, N, J, dh], whose J queries at a position share a choice; key [B, G, M,
/// dh], value [B, G, M, dv]; mask i32 [B, M] of the keys, undefined = all real. Outputs are [B, G,
/// N, J, dv], log_sum_exp is [B, G, N, J], -1e30 if nothing was chosen. Only the scale and the
/// dropout of `options` are used.
///
/// As in MoBA's algorithm 1 (arXiv 2502.13189), the queries of each block are brought together in
/// groups of l with one block each. There are at most N k / l + blocks groups, so the time is N k l
/// d. Memory holds one number per pair of query and block.
std::vector<AttentionPart> attend_to_chosen(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const Tensor& mask, const Tensor& chosen, std::int64_t block,
                                            const AttentionOptions& options);

/// Attention of queries to their own block; in the causal form, to its keys up to their own
/// position. N = M, without the J of attend_to_chosen(): query [B, H, N, dh] -> [B, H, N, dv].
AttentionPart attend_to_own_block(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const Tensor& mask, std::int64_t block, const AttentionOptions& options);

/// i32 [B, G, N, M], 1 where a query has chosen a key's block or is in it; the last query is at the
/// last key. For few queries, as in decoding, and for inspection.
Tensor keys_of_chosen(const Tensor& chosen, std::int64_t keys, std::int64_t block);

}  // namespace heed
