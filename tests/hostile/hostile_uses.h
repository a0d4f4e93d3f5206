#pragma once

#include <functional>
#include <vector>

#include "heed/tests/hostile/small_runs.h"

namespace heed::test {

/// A line of the table of hostile uses: how a program is called, what lies there before, and what has to come of it.
///
/// In arguments "{t}" stands for a folder of the row's own, "{run}" for a copy of a small run of the program's task in
/// it, "{small}" for the flags of the small settings.
///
/// Of every row it holds too: no signal, no more than 20 s, no more than 2 GB; nothing on standard error that would
/// steer a terminal; no temporary file stays. Of one that fails: nothing on standard output, exactly one line
/// "program: error: ...", and every file is as it was.
struct HostileUse {
  std::string name, program;
  Arguments arguments;
  int status = 0;
  std::string says = {};  ///< a part of the error, or of standard error where there is none
  std::string input = {};
  std::function<void(const std::filesystem::path& folder)> before = {};
  std::function<void(const std::filesystem::path& folder, const ProgramResult& result)> after = {};
  bool may_succeed = false;   ///< status 0 is as good
  bool answers = false;       ///< output, although the status says that something failed
  bool writes = false;        ///< may leave files, although it fails
  ProgramLimits limits = {};  ///< without seconds of its own: 20
};

/// What `before` throws when the machine does not let it prepare the row.
struct CannotPrepare {
  std::string reason;
};

// The table, by sections of what can go wrong.
std::vector<HostileUse> uses_that_could_lose_files();
std::vector<HostileUse> uses_with_sizes_without_sense();
std::vector<HostileUse> uses_with_little_memory();
std::vector<HostileUse> uses_with_files_that_are_none();
std::vector<HostileUse> uses_of_damaged_runs();
std::vector<HostileUse> uses_with_wrong_flags();
std::vector<HostileUse> uses_with_odd_texts();

}  // namespace heed::test
