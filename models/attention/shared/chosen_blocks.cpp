#include "heed/models/attention/shared/chosen_blocks.h"

#include <algorithm>
#include <limits>

#include "heed/base/error.h"
#include "heed/models/attention/shared/sorting.h"

namespace heed {
namespace {

constexpr double nothing = -1e30;  // a softmax over -infinity alone would be NaN

/// Marks the real keys of each block: i32 [1 or B, blocks, l].
Tensor real_keys(const Tensor& mask, std::int64_t keys, std::int64_t block, Device device) {
  const Tensor real = mask.defined() ? mask : Tensor::ones({1, keys}, DType::i32, device);
  const std::int64_t blocks = ceil_div(keys, block);
  return reshape(pad(real, 1, 0, blocks * block - keys), {real.size(0), blocks, block});
}

/// For each of `heads` heads: [1 or B, ...] -> [B heads, ...].
Tensor for_heads(const Tensor& x, std::int64_t batch, std::int64_t heads) {
  Shape each = unsqueeze(x, 1).shape(), all = x.shape();
  each[0] = batch;
  each[1] = heads;
  all[0] = batch * heads;
  return reshape(expand(unsqueeze(x, 1), each), all);
}

/// Groups the queries that chose the same block: groups of l slots, with one block per group.
struct Groups {
  Tensor slot;   // i32 [R, N k]: of a query's choice, -1 where it made none
  Tensor query;  // i32 [R, groups l]: in each slot, -1 where it is empty
  Tensor block;  // i32 [R, groups]: -1 where all slots are empty
};

/// chosen i32 [R, N, k]. Numbers of slots are counted in f32.
Groups grouped(const Tensor& chosen, std::int64_t blocks, std::int64_t size) {
  const std::int64_t rows = chosen.size(0), length = chosen.size(1), k = chosen.size(2);
  const Device device = chosen.device();
  const std::int64_t most = length * k / size + blocks;
  check(most * size < std::int64_t{1} << 24, "attention to chosen blocks: ", length, " queries that choose ",
        k, " of ", blocks, " blocks of ", size,
        " keys are more than can be counted; take fewer or larger blocks");
  const auto number = [](const Tensor& t) { return cast(t, DType::f32); };
  const Tensor made = number(chosen >= 0);                                        // [R, N, k]
  const Tensor so_far = cumulative_sum(scatter_add(made, 2, chosen, blocks), 1);  // [R, N, blocks]
  const Tensor count = select(so_far, 1, length - 1);                             // [R, blocks]
  const Tensor groups = ceil(count / static_cast<double>(size)), end = cumulative_sum(groups, 1);
  const Tensor first = unsqueeze((end - groups) * static_cast<double>(size), 1) + so_far - 1;
  const Tensor slot = where(chosen >= 0, cast(gather(first, 2, chosen), DType::i32), -1);
  const Tensor place = number(Tensor::arange(length, DType::i32, device)) + 1;
  const Tensor places =
      reshape(expand(reshape(place, {1, length, 1}), {rows, length, k}), {rows, length * k, 1});
  const Tensor flat = reshape(slot, {rows, length * k});
  const Tensor query = cast(squeeze(scatter_add_rows(places, flat, most * size), 2), DType::i32) - 1;
  const Tensor at = unsqueeze(number(Tensor::arange(most, DType::i32, device)), 1);  // [groups, 1]
  const Tensor before = sum(less_equal(unsqueeze(end, 1), at), 2);                   // i32 [R, groups]
  return {flat, query, where(before < static_cast<double>(blocks), before, -1)};
}

}  // namespace

Tensor choose_blocks(const Tensor& scores, std::int64_t k) {
  const auto [best, chosen] = top_k(scores.detach(), k);
  return where(isfinite(best), chosen, -1);
}

Tensor blocks_with_keys(const Tensor& mask, std::int64_t keys, std::int64_t block, Device device) {
  return unsqueeze(unsqueeze(max(real_keys(mask, keys, block, device), 2), 1), 1);
}

std::vector<AttentionPart> attend_to_chosen(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const Tensor& mask, const Tensor& chosen, std::int64_t block,
                                            const AttentionOptions& options) {
  const std::int64_t batch = query.size(0), heads = query.size(1), length = query.size(2),
                     same = query.size(3), width = query.size(4), value_width = value.size(3),
                     rows = batch * heads, k = chosen.size(3), keys = key.size(2);
  const auto as_rows = [&](const Tensor& x) {  // [B, G, n, ...] -> [R, n, all else]
    return reshape(x, {rows, x.size(2), x.count() / std::max<std::int64_t>(1, rows * x.size(2))});
  };
  const std::int64_t blocks = ceil_div(keys, block);
  const Groups groups = grouped(reshape(chosen, {rows, length, k}), blocks, block);
  const std::int64_t count = groups.block.size(1);
  const auto of_groups = [&](const Tensor& x) {  // [R, blocks, l, n] -> [R, groups, l, n]
    const Tensor flat = reshape(x, {rows, blocks, block * x.size(3)});
    return reshape(gather_rows(flat, groups.block), {rows, count, block, x.size(3)});
  };
  AttentionOptions within;
  within.scale = options.scale;
  within.dropout = options.dropout;
  within.dropout_key = options.dropout_key;
  const Tensor real = for_heads(real_keys(mask, keys, block, query.device()), batch, heads);
  within.mask = unsqueeze(squeeze(cast(of_groups(unsqueeze(cast(real, DType::f32), 3)), DType::i32), 3),
                          2);  // [R, groups, 1, l]
  const Tensor asking =
      reshape(gather_rows(as_rows(query), groups.query), {rows, count, block * same, width});
  const AttentionPart part = attention_part(asking, of_groups(into_blocks(as_rows(key), block)),
                                            of_groups(into_blocks(as_rows(value), block)), within);
  const Tensor outputs =
      gather_rows(reshape(part.output, {rows, count * block, same * value_width}), groups.slot);
  const Tensor sums =
      gather_rows(reshape(maximum(part.log_sum_exp, nothing), {rows, count * block, same}), groups.slot);
  const Tensor output = reshape(outputs, {batch, heads, length, k, same, value_width});
  const Tensor log_sum_exp =
      where(unsqueeze(chosen, 4) >= 0, reshape(sums, {batch, heads, length, k, same}), nothing);
  std::vector<AttentionPart> parts;
  for (std::int64_t i = 0; i < k; ++i) parts.push_back({select(output, 3, i), select(log_sum_exp, 3, i)});
  return parts;
}

AttentionPart attend_to_own_block(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const Tensor& mask, std::int64_t block, const AttentionOptions& options) {
  const std::int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  const auto cut = [&](const Tensor& x) {
    return into_blocks(reshape(x, {batch * heads, length, x.size(3)}), block);
  };
  AttentionOptions within = options;
  within.key_mask = {};
  within.mask = unsqueeze(for_heads(real_keys(mask, length, block, query.device()), batch, heads), 2);
  const AttentionPart part = attention_part(cut(query), cut(key), cut(value), within);
  const Tensor sums = reshape(part.log_sum_exp, {batch * heads, part.log_sum_exp.size(1) * block});
  return {reshape(from_blocks(part.output, length), {batch, heads, length, value.size(3)}),
          reshape(maximum(slice(sums, 1, 0, length), nothing), {batch, heads, length})};
}

Tensor keys_of_chosen(const Tensor& chosen, std::int64_t keys, std::int64_t block) {
  const std::int64_t length = chosen.size(2), blocks = ceil_div(keys, block);
  const Tensor made = scatter_add(cast(chosen >= 0, DType::f32), 3, chosen, blocks);
  const Tensor of_keys = slice(repeat(cast(made, DType::i32), block, 3), 3, 0, keys);
  const Tensor at = cast(Tensor::arange(keys, DType::i32, chosen.device()), DType::f32);
  const Tensor block_of = floor(at / static_cast<double>(block));
  const Tensor own = equal(unsqueeze(slice(block_of, 0, keys - length, keys), 1), unsqueeze(block_of, 0));
  return logical_or(of_keys, own);
}

}  // namespace heed
