#include "heed/core/block_pattern.h"

#include <algorithm>

#include "heed/core/error.h"

namespace heed {

void BlockPattern::check_layout() const {
  check(block > 0 && queries >= 0 && keys >= 0 && heads > 0, "a block pattern of ", heads, " heads, ",
        queries, " queries and ", keys, " keys in blocks of side ", block, " makes no sense");
  const auto check_part = [](const char* name, const Tensor& part, int rank) {
    check(part.defined() && part.dtype() == DType::i32 && part.rank() == rank, "the ", name,
          " of a block pattern must be an i32 tensor of rank ", rank);
    // One element seen everywhere stands for a mask that no block uses.
    const bool is_constant =
        std::all_of(part.strides().begin(), part.strides().end(), [](auto s) { return s == 0; });
    check(part.is_contiguous() || (rank == 3 && is_constant), "the ", name, " of a block pattern, of shape ",
          part.shape(), " and strides ", part.strides(), ", must be contiguous; call contiguous() first");
  };
  check_part("offsets", offsets, 1);
  check_part("columns", columns, 1);
  check_part("mask_ids", mask_ids, 1);
  check_part("masks", masks, 3);
  const std::int64_t rows = (queries + block - 1) / block;
  check(offsets.count() == heads * rows + 1, "a block pattern of ", heads, " heads and ", rows,
        " rows of blocks needs ", heads * rows + 1, " offsets, but has ", offsets.count());
  check(columns.count() == mask_ids.count(), "a block pattern has ", columns.count(), " columns and ",
        mask_ids.count(), " mask_ids; there must be as many");
  check(masks.size(0) > 0 && masks.size(1) == block && masks.size(2) == block,
        "the masks of a block pattern have shape ", masks.shape(), ", not [at least 1, ", block, ", ", block,
        "]");
}

Tensor BlockPattern::dense() const {
  const std::int64_t rows = block > 0 ? (queries + block - 1) / block : 0;
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
