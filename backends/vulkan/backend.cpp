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
      .matmul = vulkan::matmul,
      .gather_rows = vulkan::gather_rows,
      .scatter_add_rows = vulkan::scatter_add_rows,
      .argsort = vulkan::argsort,
      .top_k = vulkan::top_k,
      .softmax = {vulkan::softmax_forward, vulkan::softmax_backward},
      .layer_norm = {vulkan::layer_norm_forward, vulkan::layer_norm_backward},
      .cross_entropy = {vulkan::cross_entropy_forward, vulkan::cross_entropy_backward},
      .attention = {vulkan::attention_forward, vulkan::attention_backward},
      .adam = vulkan::adam,
      .sgd = vulkan::sgd,
      .sums_of_squares = vulkan::sums_of_squares,
  };
  return backend;
}

}  // namespace heed
