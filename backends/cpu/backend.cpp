#include <hwy/targets.h>

#include "heed/backends/cpu/kernel_targets.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/backends/kernels.h"
#include "heed/base/error.h"
#include "heed/core/device.h"

namespace heed {

CpuInfo cpu_info() {
  // Better targets have lower bits: use the lowest one that is both compiled in and
  // supported by this processor.
  const std::int64_t supported = hwy::SupportedTargets();
  const std::int64_t targets = supported & cpu::kernel_targets;
  const auto best = [](std::int64_t of) { return hwy::TargetName(of & -of); };
  check(targets != 0, "this build of heed needs a processor with ", best(cpu::kernel_targets),
        ", and this one has ", best(supported), ": build it here, or with -D HEED_NATIVE=OFF");
  return {cpu_threads(), cpu::available_processors(), best(targets)};
}

constinit const Backend cpu_backend{
    .name = "cpu",
#define HEED_KERNEL(kernel, ...) .kernel = cpu::kernel,
#define HEED_FUSED(kernel, ...) .kernel = {cpu::kernel##_forward, cpu::kernel##_backward},
#define HEED_VULKAN_KERNEL(...)
#define HEED_VULKAN_FUSED(kernel, ...) .kernel = {},
#include "heed/core/kernels.def"
};

}  // namespace heed
