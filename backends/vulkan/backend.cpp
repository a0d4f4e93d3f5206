#include "heed/backends/vulkan/kernels.h"

namespace heed {

const Backend& vulkan_backend() {
  static const Backend backend = [] {
    Backend made = vulkan::backend_of_kernels("vulkan");
    made.logit_chunks = vulkan::logit_chunks;
    made.activated_linear = {vulkan::activated_linear_forward, vulkan::activated_linear_backward};
    made.linear_maps = vulkan::linear_maps;
    made.linear_gradients = vulkan::linear_gradients;
    made.scale_all = vulkan::scale_all;
    return made;
  }();
  return backend;
}

}  // namespace heed
