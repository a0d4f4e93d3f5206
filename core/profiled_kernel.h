#pragma once

namespace heed {

/// The kernel that this thread is timing for the profile: the name given to the innermost ProfileScope; null outside of
/// kernels and while no profile is being recorded.
const char* profiled_kernel();

}  // namespace heed
