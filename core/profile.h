#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/device.h"  // where the memory went

namespace heed {

/// Where the time went, per kernel.
struct ProfileRow {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0;
  double flops = 0;  ///< floating-point operations of matrix products (0 for kernels bound by memory)
  double bytes = 0;  ///< least memory traffic
};

/// Starts recording (clears earlier rows), stops, and reads the rows, slowest first. Each of them waits for
/// the devices, whose kernels are timed one by one: on a device, recording a profile slows the program down.
void start_profile();
void stop_profile();
std::vector<ProfileRow> profile_rows();
/// The rows as a text table with time, share, calls, GFLOP/s and GB/s, and what could not be timed.
std::string profile_table();

// --- for backends ------------------------------------------------------------------------------------------

bool profiling();
/// Adds a kernel that a device has timed.
void add_to_profile(std::string_view name, double seconds, double flops, double bytes);
/// A line below the table, once, such as why a device times nothing.
void add_profile_remark(const std::string& remark);
/// `collect` adds what a device has measured so far, waiting for it; called when a profile starts, stops or
/// is read. Once for each function.
void add_profile_source(void (*collect)());

/// Times the enclosing scope under `name` while a profile is being recorded; costs one load otherwise.
class ProfileScope {
 public:
  ProfileScope(const char* name, double flops, double bytes);
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  const char* name_;  // null: not recording
  double flops_, bytes_;
  std::chrono::steady_clock::time_point start_;
};

/// The kernel that this thread is timing for the profile: the name given to the innermost ProfileScope; null
/// outside of kernels and while no profile is being recorded.
const char* profiled_kernel();

}  // namespace heed
