#include "heed/backends/vulkan/kernels.h"

namespace heed {

const Backend& vulkan_backend() {
  static const Backend backend = vulkan::backend_of_kernels("vulkan");
  return backend;
}

}  // namespace heed
