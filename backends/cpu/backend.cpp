#include <hwy/targets.h>

#include "heed/backends/cpu/thread_pool.h"
#include "heed/backends/kernels.h"
#include "heed/core/device.h"

namespace heed {

CpuInfo cpu_info() {
  // Better targets have lower bits: use the lowest one that is both compiled in and
  // supported by this processor.
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return {cpu_threads(), cpu::available_processors(), hwy::TargetName(targets & -targets)};
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
