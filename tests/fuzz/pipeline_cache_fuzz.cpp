#include <cstddef>
#include <cstdint>
#include <string>

#include "heed/backends/vulkan/pipelines.h"

// The first eight bytes are the checksum of the device; the rest is a cache file, which is whole or worth
// nothing.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 8) return 0;
  std::uint64_t device = 0;
  for (int i = 0; i < 8; ++i) device |= static_cast<std::uint64_t>(data[i]) << (8 * i);
  const std::string file(reinterpret_cast<const char*>(data) + 8, size - 8);
  const std::string found = heed::vulkan::driver_data(file, device);
  if (!found.empty() && !file.ends_with(found)) __builtin_trap();
  return 0;
}
