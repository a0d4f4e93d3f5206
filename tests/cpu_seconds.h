#pragma once

#include <time.h>

/// The processor time that this thread has used, in seconds: what else runs on the machine does not count.
inline double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
