#include "heed/backends/cpu/address_space.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace heed::cpu {

std::optional<std::size_t> address_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::size_t addresses_used() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace heed::cpu
