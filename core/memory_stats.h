#pragma once

#include <cstddef>

#include "heed/core/device.h"

namespace heed {

/// Bytes handed out by a device's memory pool.
struct MemoryStats {
  std::size_t current_bytes = 0;   ///< in use by tensors
  std::size_t peak_bytes = 0;      ///< the most that was in use since the last reset
  std::size_t reserved_bytes = 0;  ///< held from the system, in use or cached
};

MemoryStats memory_stats(Device device = {});
/// Forgets the peak: what is in use now is the most there was.
void reset_peak_memory(Device device = {});

}  // namespace heed
