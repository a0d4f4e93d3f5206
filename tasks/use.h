#pragma once

#include <string>
#include <string_view>

#include "heed/tasks/learner.h"

namespace heed {

/// What a trained run is opened for.
enum class RunUse {
  anything,  ///< nothing is known: no setting is taken for one that does nothing
  lines,     ///< to answer lines
  texts,     ///< to write texts from a prompt on
  scores,    ///< to say how likely given targets are, of files
  part,      ///< to measure on a part of the run's own data
  files      ///< to measure on other files
};

/// Why the setting does nothing in such a use, with the values that the other settings have; "": it does
/// something.
std::string why_unread(const Settings& settings, const TaskKind& kind, std::string_view name, RunUse use);

}  // namespace heed
