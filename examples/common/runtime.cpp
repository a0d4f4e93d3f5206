#include "runtime.h"

#include <charconv>

#include "heed/core/cpu_threads.h"
#include "program.h"

namespace heed::programs {

Json runtime_defaults() {
  return {{"seed", 1}, {"threads", 0}, {"device", "cpu"}};
}

void add_runtime_flags(SettingFlags& flags) {
  flags.integer("--threads", "threads",
                "Threads to compute with; 0: one for each processor. The results do not depend on it");
  flags.text("--device", "device", "Where to compute: cpu, or vulkan:N", "DEVICE");
}

Device apply_runtime(const Settings& settings) {
  const auto threads = settings.get<std::int64_t>("threads");
  if (threads < 0 || threads > 1000)
    throw UsageError("threads must be 0 to 1000, not " + std::to_string(threads));
  if (threads > 0) set_cpu_threads(static_cast<int>(threads));
  return parse_device(settings.get<std::string>("device"));
}

Device parse_device(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "vulkan") return {DeviceType::vulkan, 0};
  const std::string prefix = "vulkan:";
  if (name.starts_with(prefix)) {
    int index = -1;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, index);
    if (error == std::errc() && stop == end && index >= 0) return {DeviceType::vulkan, index};
  }
  check_name("device", name, {"cpu", "vulkan", "vulkan:0"});
  return {};
}

}  // namespace heed::programs
