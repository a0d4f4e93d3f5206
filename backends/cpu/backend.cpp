#include "heed/backends/cpu/kernels.h"

namespace heed {

const Backend& cpu_backend() {
  static const Backend backend{
      .name = "cpu",
      .allocate = cpu::allocate,
      .upload = cpu::upload,
      .download = cpu::download,
      .memory_stats = cpu::memory_stats,
      .reset_peak = cpu::reset_peak,
      .trim = cpu::trim,
      .fill = cpu::fill,
      .copy = cpu::copy,
      .unary = cpu::unary,
      .unary_backward = cpu::unary_backward,
      .binary = cpu::binary,
      .binary_backward = cpu::binary_backward,
      .compare = cpu::compare,
      .select = cpu::select,
      .reduce = cpu::reduce,
      .argmax = cpu::argmax,
      .cumulative_sum = cpu::cumulative_sum,
      .matmul = cpu::matmul,
      .gather_rows = cpu::gather_rows,
      .scatter_add_rows = cpu::scatter_add_rows,
      .argsort = cpu::argsort,
      .top_k = cpu::top_k,
      .uniform = cpu::uniform,
      .normal = cpu::normal,
      .dropout = cpu::dropout,
      .softmax = {cpu::softmax_forward, cpu::softmax_backward},
      .layer_norm = {cpu::layer_norm_forward, cpu::layer_norm_backward},
      .cross_entropy = {cpu::cross_entropy_forward, cpu::cross_entropy_backward},
      .attention = {cpu::attention_forward, cpu::attention_backward},
      .adam = cpu::adam,
      .sgd = cpu::sgd,
      .sums_of_squares = cpu::sums_of_squares,
  };
  return backend;
}

}  // namespace heed
