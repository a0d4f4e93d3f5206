#include "runtime.h"

#include "heed/core/cpu_threads.h"
#include "heed/core/devices.h"
#include "heed/core/error.h"
#include "program.h"

namespace heed::programs {

Json runtime_defaults() {
  return {{"seed", 1}, {"threads", 0}, {"device", ""}, {"precision", "f32"}};
}

void add_runtime_flags(SettingFlags& flags) {
  flags.integer("--threads", "threads",
                "Threads to compute with; 0: one for each processor. The results do not depend on it");
  flags.text(
      "--device", "device",
      "Where to compute: auto, cpu, vulkan, vulkan:N or vulkan:NAME; without it $HEED_DEVICE, else cpu",
      "DEVICE");
  flags.text("--precision", "precision",
             "In which type the model computes while it trains: f32, f16 or bf16 (Vulkan devices); the "
             "weights stay f32",
             "TYPE");
}

Device apply_runtime(const Settings& settings) {
  const auto threads = settings.get<std::int64_t>("threads");
  if (threads < 0 || threads > 1000)
    throw UsageError("threads must be 0 to 1000, not " + std::to_string(threads));
  if (threads > 0) set_cpu_threads(static_cast<int>(threads));
  return parse_device(settings.get<std::string>("device"));
}

Device parse_device(const std::string& name) {
  try {
    return find_device(name);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace heed::programs
