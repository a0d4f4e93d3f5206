#pragma once

#include <map>
#include <optional>
#include <string>

#include "heed/core/ranks.h"
#include "heed/tasks/learner.h"

// What ranks must have in common before they train one model (core/ranks.h), found out before any time is spent. Every
// function is called by all ranks at once; what one rank finds wrong all find, with the same words.

namespace heed {

/// Throws a SettingsError that names the setting, the values and the rank when they do not mean to train the same.
/// "threads" and "device" may differ.
void check_same_settings(Ranks& ranks, const TaskKind& kind, const Settings& settings);
/// Throws an Error when a rank has read other data.
void check_same_data(Ranks& ranks, const std::map<std::string, std::string>& digests);
/// What there is to say when ranks compute with different kernels; "": they do not.
std::string platform_remark(Ranks& ranks, Device device);
/// Names and contents of files that rank 0 has.
std::map<std::string, std::string> broadcast_files(Ranks& ranks,
                                                   const std::map<std::string, std::string>& files);

}  // namespace heed
