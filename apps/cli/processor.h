#pragma once

#include <span>
#include <string>
#include <vector>

namespace heed::programs {

/// An instruction set that the library is compiled for, and whether this processor has it.
struct ProcessorFeature {
  const char* name;
  bool is_there;
};

// The library is compiled for x86-64-v2; programs are not, so that they can still say what is missing.

/// What x86-64-v2 needs beyond the first x86-64 processors; nothing on processors of another kind.
inline std::vector<ProcessorFeature> needed_features() {
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

/// The error that names the missing ones; "" if there are none.
inline std::string processor_error(std::span<const ProcessorFeature> features) {
  std::string missing;
  for (const ProcessorFeature& feature : features)
    if (!feature.is_there) missing += (missing.empty() ? "" : ", ") + std::string(feature.name);
  if (missing.empty()) return {};
  return "this processor lacks " + missing + "; heed needs x86-64-v2, that of any processor since 2009";
}

}  // namespace heed::programs
