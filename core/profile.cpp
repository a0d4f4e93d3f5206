#include "heed/core/profile.h"
#include "heed/base/plain_numbers.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "heed/core/scope.h"

namespace heed {

namespace {

struct Recorder {
  std::mutex mutex;
  std::map<std::string, ProfileRow, std::less<>> rows;
  std::set<std::string> remarks;
  std::set<void (*)()> sources;
};
std::atomic<bool> active{false};

/// Never destroyed: kernels may still run while static objects are destroyed.
Recorder& recorder() {
  static Recorder& instance = *new Recorder;
  return instance;
}

void collect_from_devices() {
  std::set<void (*)()> sources;
  {
    const std::lock_guard lock(recorder().mutex);
    sources = recorder().sources;
  }
  for (void (*collect)() : sources) collect();
}

}  // namespace

void start_profile() {
  collect_from_devices();
  const std::lock_guard lock(recorder().mutex);
  recorder().rows.clear();
  active = true;
}

void stop_profile() {
  active = false;
  collect_from_devices();
}

bool profiling() {
  return active.load(std::memory_order_relaxed);
}

void add_to_profile(std::string_view name, double seconds, double flops, double bytes) {
  const std::lock_guard lock(recorder().mutex);
  const auto found = recorder().rows.find(name);
  ProfileRow& row = found != recorder().rows.end() ? found->second : recorder().rows[std::string(name)];
  row.name = name;
  row.calls += 1;
  row.seconds += seconds;
  row.flops += flops;
  row.bytes += bytes;
}

void add_profile_remark(const std::string& remark) {
  const std::lock_guard lock(recorder().mutex);
  recorder().remarks.insert(remark);
}

void add_profile_source(void (*collect)()) {
  const std::lock_guard lock(recorder().mutex);
  recorder().sources.insert(collect);
}

std::vector<ProfileRow> profile_rows() {
  collect_from_devices();
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
  for (const ProfileRow& row : rows)
    table += formatted("%-28s %8lld %10.2f %6.1f%% %10.1f %8.1f\n", row.name.c_str(),
                       static_cast<long long>(row.calls), row.seconds * 1e3,
                       total > 0 ? 100 * row.seconds / total : 0,
                       row.seconds > 0 ? row.flops / row.seconds * 1e-9 : 0,
                       row.seconds > 0 ? row.bytes / row.seconds * 1e-9 : 0);
  const std::lock_guard lock(recorder().mutex);
  for (const std::string& remark : recorder().remarks) table += remark + '\n';
  return table;
}

const char* profiled_kernel() {
  return current_scope.kernel;
}

ProfileScope::ProfileScope(const char* name, double flops, double bytes)
    : name_(profiling() ? name : nullptr), flops_(flops), bytes_(bytes) {
  if (!name_) return;
  outer_ = std::exchange(current_scope.kernel, name_);
  start_ = std::chrono::steady_clock::now();
}

ProfileScope::~ProfileScope() {
  if (!name_) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  current_scope.kernel = outer_;
  try {
    add_to_profile(name_, elapsed.count(), flops_, bytes_);
  } catch (const std::bad_alloc&) {  // a destructor must not throw, and a lost row must not end the program
  }
}

}  // namespace heed
