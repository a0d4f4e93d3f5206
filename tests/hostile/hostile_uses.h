#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heed/tests/hostile/small_runs.h"

namespace heed::test {

using Before = std::function<void(const std::filesystem::path& folder)>;
using After = std::function<void(const std::filesystem::path& folder, const ProgramResult& result)>;

/// A line of the table of hostile uses: how a program is called, what lies there before, and what has to come
/// of it.
///
/// In arguments "{t}" stands for a folder of the row's own, "{run}" for a copy of a small run of the
/// program's task in it, "{small}" for the flags of the small settings.
///
/// Of every row it holds too: no signal, no more than 20 s, no more than 2 GB; nothing on standard error that
/// would steer a terminal; no temporary file stays. Of one that fails: nothing on standard output, exactly
/// one line "program: error: ...", and every file is as it was.
struct HostileUse {
  std::string name, program;
  Arguments arguments;
  int status = 0;
  std::string says = {};  ///< a part of the error, or of standard error where there is none
  std::string input = {};
  Before before = {};
  After after = {};
  bool may_succeed = false;   ///< status 0 is as good
  bool answers = false;       ///< output, although the status says that something failed
  bool writes = false;        ///< may leave files, although it fails
  ProgramLimits limits = {};  ///< time is limited to 20 s anyway
};

/// What `before` throws when the machine does not let it prepare the row.
struct CannotPrepare {
  std::string reason;
};

// --- the words of the table

/// The programs of the list of tasks that the table calls.
#if defined(__SANITIZE_ADDRESS__)
// summarize and converse are the code of translate; sanitizers make the table slow enough without them.
inline const std::vector<std::string> hostile_tasks = {"translate", "classify", "match", "recommend",
                                                       "language_model"};
#else
inline const std::vector<std::string> hostile_tasks = {"translate", "summarize", "converse",      "classify",
                                                       "match",     "recommend", "language_model"};
#endif

// What is prepared in the folder of a row; names are relative to it.
Before with_file(const std::string& name, const std::string& content);
Before with_folder(const std::string& name);
/// In place of a file of that name.
Before with_fifo(const std::string& name);
/// The node of /dev/null (3) or another memory device: only where this user may make one, and may use it.
Before with_device(const std::string& name, unsigned minor);
Before without(const std::string& name);
/// Changes a JSON file through `change`.
Before with_json(const std::string& name, std::function<void(nlohmann::ordered_json&)> change);
Before in_turn(std::vector<Before> all);

/// "width" of "model.width".
std::string last_part(const std::string& setting);
/// The setting of the self-attention that every model of the task has.
std::string attention_setting(const std::string& task);
std::string layers_setting(const std::string& task);
/// A command that asks the copied run, and one that trains in {t}/out with the small settings.
Arguments use_command(const std::string& task, const Arguments& more = {});
Arguments train_command(const Arguments& more = {});

// --- the table, by sections of what can go wrong
std::vector<HostileUse> uses_that_could_lose_files();
std::vector<HostileUse> uses_with_sizes_without_sense();
std::vector<HostileUse> uses_with_little_memory();
std::vector<HostileUse> uses_with_files_that_are_none();
std::vector<HostileUse> uses_of_damaged_runs();
std::vector<HostileUse> uses_with_wrong_flags();
std::vector<HostileUse> uses_with_odd_texts();

}  // namespace heed::test
