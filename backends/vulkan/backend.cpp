#include "heed/backends/vulkan/kernels.h"

namespace heed {

const Backend& vulkan_backend() {
  static const Backend backend{
      .name = "vulkan",
      .allocate = vulkan::allocate,
      .upload = vulkan::upload,
      .download = vulkan::download,
      .memory_stats = vulkan::memory_stats,
      .reset_peak = vulkan::reset_peak,
      .trim = vulkan::trim,
      .softmax = {},
      .layer_norm = {},
      .cross_entropy = {},
      .attention = {},
  };
  return backend;
}

}  // namespace heed
