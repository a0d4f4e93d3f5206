#pragma once

#include "heed/core/device.h"
#include "settings.h"

namespace heed::programs {

/// "seed", "threads" (0: one for each processor) and "device": what every program has.
Json runtime_defaults();
void add_runtime_flags(SettingFlags& flags);
/// Applies the number of threads, and returns the device. Throws UsageError for values that make no sense.
Device apply_runtime(const Settings& settings);

/// "cpu", "vulkan" (the first one) or "vulkan:N"; throws UsageError for anything else.
Device parse_device(const std::string& name);

}  // namespace heed::programs
