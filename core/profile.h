#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/device.h"  // where the memory went

namespace heed {

/// Time and work of one kernel.
struct ProfileRow {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0;
  double flops = 0;  ///< of matrix products; 0 for kernels bound by memory
  double bytes = 0;  ///< least memory traffic
};

/// Starts a profile and clears earlier rows. This function, stop_profile() and profile_rows() wait
/// for the devices. Kernels on a device are timed one by one, which slows the program down.
void start_profile();
/// Stops recording.
void stop_profile();
/// Returns the rows, slowest first.
std::vector<ProfileRow> profile_rows();
/// Returns the rows as a table with calls, time, share, GFLOP/s and GB/s, followed by remarks on
/// work that could not be timed.
std::string profile_table();

// --- for backends ------------------------------------------------------------------------------------------

bool profiling();
/// Adds the measured time of one kernel run.
void add_to_profile(std::string_view name, double seconds, double flops, double bytes);
/// Adds a line below the table, such as why a device times nothing; the same line appears once.
void add_profile_remark(const std::string& remark);
/// Registers a function that waits for a device and adds what it has measured so far; called when a
/// profile starts, stops or is read. Registering it again has no effect.
void add_profile_source(void (*collect)());

/// Times the enclosing scope under `name` while a profile is recorded; otherwise costs one load.
class ProfileScope {
 public:
  ProfileScope(const char* name, double flops, double bytes);
  ~ProfileScope();
  ProfileScope& operator=(ProfileScope&&) = delete;

 private:
  const char *name_, *outer_ = nullptr;  // null: not recording
  double flops_, bytes_;
  std::chrono::steady_clock::time_point start_;
};

/// The name of the innermost ProfileScope of this thread; null outside of kernels and while no
/// profile is recorded.
const char* profiled_kernel();

}  // namespace heed
