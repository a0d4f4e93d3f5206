#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "heed/tests/hostile/small_runs.h"

namespace heed::test {

using Before = std::function<void(const std::filesystem::path& folder)>;
using After = std::function<void(const std::filesystem::path& folder, const ProgramResult& result)>;

/// A row of the table of hostile uses: the call of a program, the files prepared for it, and the
/// expected outcome.
///
/// In arguments "{t}" means a folder of the row's own, "{run}" a copy of a small run of the
/// program's task in it, "{small}" the flags of the small settings.
///
/// Every row also requires: no signal, at most 20 s and 2 GB, nothing on standard error that would
/// steer a terminal, and no temporary file left behind. A row that fails also requires: nothing on
/// standard output, exactly one line "program: error: ...", and all files unchanged.
struct HostileUse {
  std::string name, program;
  Arguments arguments;
  int status = 0;
  std::string says = {};  ///< a part of the error, or of standard error where there is none
  std::string input = {};
  Before before = {};
  After after = {};
  bool may_succeed = false;  ///< status 0 is as good
  bool answers = false;      ///< output, although the status says that something failed
  bool writes = false;       ///< may leave files, although it fails
  bool shared = false;  ///< refused before programs differ: one of them runs it, another one for each name
  ProgramLimits limits = {};  ///< time is limited to 20 s anyway
};

/// What `before` throws when the machine does not let it prepare the row.
struct CannotPrepare {
  std::string reason;
};

// --- the words of the table

/// The programs of the list of tasks that the table calls.
inline const std::vector<std::string> hostile_tasks = {"translate", "summarize", "converse",      "classify",
                                                       "match",     "recommend", "language_model"};

// What is prepared in the folder of a row; names are relative to it.
inline Before with_file(const std::string& name, const std::string& content) {
  return [=](const std::filesystem::path& folder) { write_content(folder / name, content); };
}

inline Before with_folder(const std::string& name) {
  return [=](const std::filesystem::path& folder) { std::filesystem::create_directories(folder / name); };
}

/// Puts a FIFO in place of a file of that name.
inline Before with_fifo(const std::string& name) {
  return [=](const std::filesystem::path& folder) {
    std::filesystem::remove(folder / name);
    if (::mkfifo((folder / name).c_str(), 0666) != 0) throw CannotPrepare{"a FIFO cannot be made here"};
  };
}

/// Makes the node of /dev/null (3) or another memory device, if this user may make and use one.
inline Before with_device(const std::string& name, unsigned minor) {
  return [=](const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / name;
    if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, minor)) != 0)
      throw CannotPrepare{"this user may not make device nodes"};
    const int descriptor = ::open(path.c_str(), O_RDWR);
    if (descriptor < 0) throw CannotPrepare{"device nodes do not work in this folder"};
    ::close(descriptor);
  };
}

inline Before without(const std::string& name) {
  return [=](const std::filesystem::path& folder) {
    check(std::filesystem::remove(folder / name), "there is no ", name);
  };
}

/// Changes a JSON file through `change`.
inline Before with_json(const std::string& name, std::function<void(nlohmann::ordered_json&)> change) {
  return [=](const std::filesystem::path& folder) {
    nlohmann::ordered_json content = nlohmann::ordered_json::parse(content_of(folder / name));
    change(content);
    write_content(folder / name, content.dump(2) + "\n");
  };
}

inline Before in_turn(std::vector<Before> all) {
  return [all = std::move(all)](const std::filesystem::path& folder) {
    for (const Before& one : all) one(folder);
  };
}

/// Returns the last part of a setting: "width" of "model.width".
inline std::string last_part(const std::string& setting) {
  return setting.substr(setting.rfind('.') + 1);
}

/// Returns the setting of the self-attention that every model of the task has.
inline std::string attention_setting(const std::string& task) {
  return task == "language_model" ? "model.decoder_attention" : "model.encoder_attention";
}

inline std::string layers_setting(const std::string& task) {
  return task == "language_model" ? "model.decoder_layers" : "model.encoder_layers";
}

/// Adds rows of a task's program. Each row is returned, so that unusual fields can be set; the
/// reference is valid until the next row is added.
class UsesOf {
 public:
  UsesOf(std::vector<HostileUse>& uses, std::string task) : uses_(&uses), task_(std::move(task)) {}

  HostileUse& call(const std::string& name, const Arguments& arguments, int status, const std::string& says,
                   const Before& before = {}, const std::string& input = {}) const {
    return uses_->emplace_back(HostileUse{name, task_, arguments, status, says, input, before});
  }
  /// Trains in {t}/out with the small settings.
  HostileUse& train(const std::string& name, const Arguments& more, int status, const std::string& says,
                    const Before& before = {}) const {
    return call(name, joined({"train", "--out", "{t}/out", "{small}"}, more), status, says, before);
  }
  /// Resumes the training of the copied run, by ten steps unless `more` says otherwise.
  HostileUse& go_on(const std::string& name, const Arguments& more, int status, const std::string& says,
                    const Before& before = {}) const {
    return call(name + ", and goes on",
                joined({"train", "--out", "{run}", "--resume", "--steps", "30"}, more), status, says, before);
  }
  /// Asks the copied run.
  HostileUse& ask(const std::string& name, const Arguments& more, int status, const std::string& says,
                  const Before& before = {}) const {
    return call(name, use_command(task_, "{run}", more), status, says, before, small_line(task_));
  }

 private:
  std::vector<HostileUse>* uses_;
  std::string task_;
};

// --- the table, by sections of what can go wrong
std::vector<HostileUse> uses_that_could_lose_files();
std::vector<HostileUse> uses_with_sizes_without_sense();
std::vector<HostileUse> uses_with_little_memory();
std::vector<HostileUse> uses_with_files_that_are_none();
std::vector<HostileUse> uses_of_damaged_runs();
std::vector<HostileUse> uses_with_wrong_flags();
std::vector<HostileUse> uses_with_odd_texts();

}  // namespace heed::test
