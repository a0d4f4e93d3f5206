#include "heed/core/attention.h"

#include <algorithm>

#include "heed/base/error.h"

namespace heed {

DeviceCopies& DeviceCopies::operator=(const DeviceCopies&) {
  const std::lock_guard lock(mutex_);
  lists_.clear();
  return *this;
}

Tensor DeviceCopies::get(Device device, const std::function<Tensor()>& make) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [where, list] : lists_)
    if (where == device) return list;
  return lists_.emplace_back(device, make()).second;
}

void BlockPattern::check_layout() const {
  check(block > 0 && queries >= 0 && keys >= 0 && heads > 0, "a block pattern of ", heads, " heads, ",
        queries, " queries and ", keys, " keys in blocks of side ", block,
        " is invalid: heads and the side must be positive, queries and keys not negative");
  const auto check_part = [](const char* name, const Tensor& part, int rank) {
    check(part.defined() && part.dtype() == DType::i32 && part.rank() == rank, "the ", name,
          " of a block pattern must be an i32 tensor of rank ", rank);
    check(part.device() == Device{}, "the ", name, " of a block pattern must be on the CPU, not on ",
          part.device());
    // Without partial blocks, masks may be one element broadcast with stride 0.
    const bool is_constant =
        std::all_of(part.strides().begin(), part.strides().end(), [](auto s) { return s == 0; });
    check(part.is_contiguous() || (rank == 3 && is_constant), "the ", name, " of a block pattern, of shape ",
          part.shape(), " and strides ", part.strides(), ", must be contiguous; call contiguous() first");
  };
  check_part("offsets", offsets, 1);
  check_part("columns", columns, 1);
  check_part("mask_ids", mask_ids, 1);
  check_part("masks", masks, 3);
  const std::int64_t rows = ceil_div(queries, block);
  const std::int64_t bands = checked_product("the rows of blocks of all heads", heads, rows);
  check(offsets.count() == bands + 1, "a block pattern of ", heads, " heads and ", rows,
        " rows of blocks needs ", bands + 1, " offsets, but has ", offsets.count());
  check(columns.count() == mask_ids.count(), "a block pattern has ", columns.count(), " columns and ",
        mask_ids.count(), " mask_ids; there must be as many");
  check(masks.size(0) > 0 && masks.size(1) == block && masks.size(2) == block,
        "the masks of a block pattern have shape ", masks.shape(), ", not [at least 1, ", block, ", ", block,
        "]");
}

void BlockPattern::check_lists() const {
  check_layout();
  const std::int64_t bands = heads * ceil_div(queries, block), side = ceil_div(keys, block);
  const std::int64_t entries = columns.count(), mask_count = masks.size(0);
  const auto* offset = offsets.data<std::int32_t>();
  check(offset[0] == 0 && offset[bands] == entries, "attention: the offsets of the block pattern go from ",
        offset[0], " to ", offset[bands], "; expected 0 to ", entries);
  const auto* column = columns.data<std::int32_t>();
  const auto* id = mask_ids.data<std::int32_t>();
  for (std::int64_t r = 0; r < bands; ++r) {
    check(offset[r] <= offset[r + 1], "attention: offset ", r + 1,
          " of the block pattern is smaller than the one before");
    for (std::int64_t e = offset[r]; e < offset[r + 1]; ++e) {
      check(column[e] >= 0 && column[e] < side, "attention: block ", e, " of the pattern has column ",
            column[e], "; there are ", side);
      check(e == offset[r] || column[e - 1] < column[e],
            "attention: the columns of the block pattern do not ascend at block ", e);
      check(id[e] >= -1 && id[e] < mask_count, "attention: block ", e, " of the pattern has mask ", id[e],
            "; there are ", mask_count);
    }
  }
}

Tensor BlockPattern::dense() const {
  const std::int64_t rows = block > 0 ? ceil_div(queries, block) : 0;
  const std::vector<std::int32_t> offset = offsets.to_vector<std::int32_t>(),
                                  column = columns.to_vector<std::int32_t>(),
                                  id = mask_ids.to_vector<std::int32_t>(),
                                  mask = masks.to_vector<std::int32_t>();
  std::vector<std::int32_t> entries(static_cast<std::size_t>(heads * queries * keys), 0);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      std::int32_t* to = entries.data() + (h * queries + i) * keys;
      const std::size_t band = static_cast<std::size_t>(h * rows + i / block);
      for (auto e = static_cast<std::size_t>(offset[band]); e < static_cast<std::size_t>(offset[band + 1]);
           ++e) {
        const std::int64_t begin = column[e] * block, end = std::min(keys, begin + block);
        for (std::int64_t j = begin; j < end; ++j) {
          to[j] = id[e] < 0 ||
                  mask[static_cast<std::size_t>((id[e] * block + i % block) * block + j - begin)] != 0;
        }
      }
    }
  }
  return Tensor::from(entries, {heads, queries, keys});
}

}  // namespace heed
