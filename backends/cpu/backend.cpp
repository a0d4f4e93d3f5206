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
      .matmul = cpu::matmul,
      .gather_rows = cpu::gather_rows,
      .scatter_add_rows = cpu::scatter_add_rows,
      .argsort = cpu::argsort,
      .top_k = cpu::top_k,
      .softmax = {},
      .layer_norm = {},
      .cross_entropy = {},
      .attention = {cpu::attention_forward, cpu::attention_backward},
  };
  return backend;
}

}  // namespace heed
