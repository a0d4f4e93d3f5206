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
      .fill = vulkan::fill,
      .copy = vulkan::copy,
      .unary = vulkan::unary,
      .unary_backward = vulkan::unary_backward,
      .binary = vulkan::binary,
      .binary_backward = vulkan::binary_backward,
      .compare = vulkan::compare,
      .select = vulkan::select,
      .reduce = vulkan::reduce,
      .argmax = vulkan::argmax,
      .cumulative_sum = vulkan::cumulative_sum,
      .matmul = vulkan::matmul,
      .gather_rows = vulkan::gather_rows,
      .scatter_add_rows = vulkan::scatter_add_rows,
      .argsort = vulkan::argsort,
      .top_k = vulkan::top_k,
      .uniform = vulkan::uniform,
      .normal = vulkan::normal,
      .dropout = vulkan::dropout,
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
