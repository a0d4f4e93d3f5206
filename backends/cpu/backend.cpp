#include "heed/backends/cpu/kernels.h"

namespace heed {

const Backend& cpu_backend() {
  static const Backend backend = [] {
    Backend made = cpu::backend_of_kernels("cpu");
    made.linear_maps = cpu::linear_maps;
    made.linear_backward = cpu::linear_backward;
    return made;
  }();
  return backend;
}

}  // namespace heed
