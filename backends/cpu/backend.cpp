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
      .softmax = {},
      .layer_norm = {},
      .cross_entropy = {},
      .attention = {},
  };
  return backend;
}

}  // namespace heed
