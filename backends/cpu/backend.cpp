#include <hwy/targets.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "heed/backends/cpu/blas.h"
#include "heed/backends/cpu/kernel_targets.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/backends/kernels.h"
#include "heed/base/error.h"
#include "heed/core/device.h"

namespace heed {
namespace {

/// The best of some instruction sets: better ones have lower bits.
std::int64_t best_of(std::int64_t targets) {
  return targets & -targets;
}

/// The instruction sets that are compiled in and that this processor has.
std::int64_t usable_targets() {
  return hwy::SupportedTargets() & cpu::kernel_targets;
}

/// Obeys HEED_SIMD, which names the best instruction set that may be used; returns what is wrong, or nothing.
std::string choose_targets() {
  if (usable_targets() == 0)
    return concat_text("this build of heed needs a processor with ",
                       hwy::TargetName(best_of(cpu::kernel_targets)), ", and this one has ",
                       hwy::TargetName(best_of(hwy::SupportedTargets())),
                       ": build it here, or with -D HEED_NATIVE=OFF");
  const char* const limit = std::getenv("HEED_SIMD");
  if (!limit || !*limit) return "";
  std::string names;
  for (std::int64_t targets = usable_targets(); targets != 0; targets &= targets - 1) {
    const std::int64_t best = best_of(targets);
    const std::string_view name = hwy::TargetName(best);
    if (name == limit) {
      hwy::DisableTargets(best - 1);
      return "";
    }
    names.append(names.empty() ? "" : ", ").append(name);
  }
  return concat_text("HEED_SIMD is ", limit, "; this processor and build have ", names);
}

const std::string& targets_problem() {
  static const std::string problem = choose_targets();
  return problem;
}

// Before any kernel runs, since some are called without asking for the backend.
[[maybe_unused]] const bool chosen_at_start = targets_problem().empty();

}  // namespace

void check_cpu_instructions() {
  if (!targets_problem().empty()) fail(targets_problem());
}

CpuInfo cpu_info() {
  check_cpu_instructions();
  return {cpu_threads(), cpu::available_processors(), hwy::TargetName(best_of(usable_targets())),
          cpu::own_products()};
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
