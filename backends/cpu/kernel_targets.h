#pragma once

#include <cstdint>

namespace heed::cpu {

/// The instruction sets that the kernels are compiled for, as bits of Highway's: one alone in a build with HEED_NATIVE.
extern const std::int64_t kernel_targets;

}  // namespace heed::cpu
