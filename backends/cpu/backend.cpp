#include "heed/backends/cpu/kernels.h"

namespace heed {

const Backend& cpu_backend() {
  static const Backend backend = cpu::backend_of_kernels("cpu");
  return backend;
}

}  // namespace heed
