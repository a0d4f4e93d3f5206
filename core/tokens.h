#pragma once

#include <cstdint>
#include <vector>

namespace heed {

/// A token sequence as ids.
using Tokens = std::vector<std::int32_t>;

}  // namespace heed
