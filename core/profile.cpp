#include "heed/core/profile.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>

namespace heed {

namespace {

struct Recorder {
  std::mutex mutex;
  std::map<std::string, ProfileRow> rows;
};
std::atomic<bool> active{false};

Recorder& recorder() {
  static Recorder instance;
  return instance;
}

}  // namespace

void start_profile() {
  const std::lock_guard lock(recorder().mutex);
  recorder().rows.clear();
  active = true;
}

void stop_profile() {
  active = false;
}

std::vector<ProfileRow> profile_rows() {
  const std::lock_guard lock(recorder().mutex);
  std::vector<ProfileRow> rows;
  for (const auto& [name, row] : recorder().rows) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return rows;
}

std::string profile_table() {
  const std::vector<ProfileRow> rows = profile_rows();
  double total = 0;
  for (const ProfileRow& row : rows) total += row.seconds;
  std::string table = "kernel                          calls         ms   share    GFLOP/s     GB/s\n";
  for (const ProfileRow& row : rows) {
    char line[160];
    std::snprintf(line, sizeof line, "%-28s %8lld %10.2f %6.1f%% %10.1f %8.1f\n", row.name.c_str(),
                  static_cast<long long>(row.calls), row.seconds * 1e3,
                  total > 0 ? 100 * row.seconds / total : 0, row.flops / row.seconds * 1e-9,
                  row.bytes / row.seconds * 1e-9);
    table += line;
  }
  return table;
}

ProfileScope::ProfileScope(const char* name, double flops, double bytes)
    : name_(active.load(std::memory_order_relaxed) ? name : nullptr), flops_(flops), bytes_(bytes) {
  if (name_) start_ = std::chrono::steady_clock::now();
}

ProfileScope::~ProfileScope() {
  if (!name_) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const std::lock_guard lock(recorder().mutex);
  ProfileRow& row = recorder().rows[name_];
  row.name = name_;
  row.calls += 1;
  row.seconds += elapsed.count();
  row.flops += flops_;
  row.bytes += bytes_;
}

}  // namespace heed
