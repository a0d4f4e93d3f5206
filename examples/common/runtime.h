#pragma once

#include "heed/core/device.h"
#include "settings.h"

namespace heed::programs {

/// "seed", "threads" (0: one for each processor) and "device": what every program has.
Json runtime_defaults();
void add_runtime_flags(SettingFlags& flags);
/// Applies the number of threads, and returns the device. Throws UsageError for values that make no sense.
Device apply_runtime(const Settings& settings);

/// The device of a name as find_device() knows it; throws UsageError for one that is not there.
Device parse_device(const std::string& name);

}  // namespace heed::programs
