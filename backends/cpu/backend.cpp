#include <hwy/targets.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "heed/backends/cpu/blas.h"
#include "heed/backends/kernels.h"
#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/base/plain_arithmetic.h"
#include "heed/core/device.h"
#include "heed/core/thread_pool.h"

namespace heed {
namespace {

/// The best of some instruction sets: better ones have lower bits.
std::int64_t best_of(std::int64_t targets) {
  return targets & -targets;
}

struct Instructions {
  std::int64_t used = 0;  ///< the best set that the kernels may use
  std::string problem;    ///< why there is none
};

/// HEED_SIMD names the best instruction set that may be used.
Instructions choose_instructions() {
  const std::int64_t supported = hwy::SupportedTargets(), usable = supported & cpu::kernel_targets;
  if (usable == 0)
    return {0,
            concat_text("this build of heed needs a processor with ",
                        hwy::TargetName(best_of(cpu::kernel_targets)), ", and this one has ",
                        hwy::TargetName(best_of(supported)), ": build it here, or with -D HEED_NATIVE=OFF")};
  const char* const limit = std::getenv("HEED_SIMD");
  if (!limit || !*limit) return {best_of(usable), ""};
  std::vector<std::string_view> names;
  for (std::int64_t targets = usable; targets != 0; targets &= targets - 1) {
    const std::int64_t best = best_of(targets);
    const std::string_view name = hwy::TargetName(best);
    if (name == limit) {
      hwy::DisableTargets(best - 1);
      return {best, ""};
    }
    names.push_back(name);
  }
  return {0, concat_text("HEED_SIMD is ", limit, "; this processor and build have ", listed(names))};
}

/// Chosen once: SupportedTargets() would make the kernels forget the limit.
const Instructions& instructions() {
  static const Instructions chosen = choose_instructions();
  return chosen;
}

// Before any kernel runs, since some are called without asking for the backend.
[[maybe_unused]] const bool chosen_at_start = instructions().used != 0;

}  // namespace

void check_cpu_instructions() {
  if (instructions().used == 0) fail(instructions().problem);
}

CpuInfo cpu_info() {
  check_cpu_instructions();
  return {cpu_threads(), available_processors(), hwy::TargetName(instructions().used), cpu::own_products()};
}

namespace {

/// A kernel whose results do not depend on the arithmetic that the caller has set.
template <auto kernel>
struct Plain;
template <class Result, class... Arguments, Result (*kernel)(Arguments...)>
struct Plain<kernel> {
  static Result run(Arguments... arguments) {
    const PlainArithmetic plain;
    return kernel(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace

constinit const Backend cpu_backend{
    .name = "cpu",
#define HEED_KERNEL(kernel, ...) .kernel = Plain<cpu::kernel>::run,
#define HEED_FUSED(kernel, ...) \
  .kernel = {Plain<cpu::kernel##_forward>::run, Plain<cpu::kernel##_backward>::run},
#define HEED_VULKAN_KERNEL(...)
#define HEED_VULKAN_FUSED(kernel, ...) .kernel = {},
#include "heed/core/kernels.def"
};

}  // namespace heed
