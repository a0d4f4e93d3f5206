#include <hwy/targets.h>

#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/device.h"

namespace heed {

CpuInfo cpu_info() {
  // Better targets have lower bits: use the lowest one that is both compiled in and
  // supported by this processor.
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return {cpu_threads(), cpu::available_processors(), hwy::TargetName(targets & -targets)};
}

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
