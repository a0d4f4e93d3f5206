#include "heed/core/block_pattern.h"

#include <algorithm>

namespace heed {

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
