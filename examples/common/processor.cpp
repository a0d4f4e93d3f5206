#include "processor.h"

// The library is compiled for x86-64-v2; this file is not, so that it can still say what is missing.

namespace heed::programs {

std::vector<ProcessorFeature> needed_features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return {{"SSE3", __builtin_cpu_supports("sse3") != 0},
          {"SSSE3", __builtin_cpu_supports("ssse3") != 0},
          {"SSE4.1", __builtin_cpu_supports("sse4.1") != 0},
          {"SSE4.2", __builtin_cpu_supports("sse4.2") != 0},
          {"POPCNT", __builtin_cpu_supports("popcnt") != 0}};
#else
  return {};
#endif
}

std::string processor_error(std::span<const ProcessorFeature> features) {
  std::string missing;
  for (const ProcessorFeature& feature : features)
    if (!feature.is_there) missing += (missing.empty() ? "" : ", ") + std::string(feature.name);
  if (missing.empty()) return {};
  return "this processor lacks " + missing + "; heed needs x86-64-v2, that of any processor since 2009";
}

}  // namespace heed::programs
