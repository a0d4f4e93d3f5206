#include "heed/core/cpu_info.h"

#include <hwy/targets.h>

#include "heed/backends/cpu/thread_pool.h"

namespace heed {

CpuInfo cpu_info() {
  // Better targets have lower bits: the lowest one both compiled and found on this processor is used.
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return {cpu_threads(), cpu::available_processors(), hwy::TargetName(targets & -targets)};
}

}  // namespace heed
