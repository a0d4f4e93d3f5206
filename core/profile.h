#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace heed {

/// Where the time went, per kernel.
struct ProfileRow {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0;
  double flops = 0;  ///< floating-point operations of matrix products (0 for kernels bound by memory)
  double bytes = 0;  ///< least memory traffic
};

/// Starts recording (clears earlier rows), stops, and reads the rows, slowest first.
void start_profile();
void stop_profile();
std::vector<ProfileRow> profile_rows();
/// The rows as a text table with time, share, calls, and GFLOP/s or GB/s.
std::string profile_table();

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

}  // namespace heed
