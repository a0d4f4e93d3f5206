#pragma once

#include "heed/core/device.h"

namespace heed {

/// While it lives, the CPU computes with so many threads.
class WithThreads {
 public:
  explicit WithThreads(int count) : before_(cpu_threads()) { set_cpu_threads(count); }
  ~WithThreads() { set_cpu_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

}  // namespace heed
