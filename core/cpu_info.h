#pragma once

#include <string>

namespace heed {

/// What the CPU kernels run on; recorded in checkpoints, because the bits of a result depend on it.
struct CpuInfo {
  int threads = 0;          ///< threads of the pool
  int processors = 0;       ///< processors this process may run on
  std::string simd_target;  ///< the instruction set of the elementwise kernels: "AVX2", "AVX3", ...
};

/// Cheap: loads nothing.
CpuInfo cpu_info();
/// The kernels OpenBLAS chose for this processor, such as "Haswell" or "Cooperlake". Loads OpenBLAS on first
/// use; throws an Error when the library is not installed.
std::string blas_core_name();

}  // namespace heed
