#include "heed/training/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/core/nesting_limit.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* staging = "checkpoint.tmp";
constexpr const char* committed = "checkpoint.new";
constexpr std::array<std::string_view, 4> marks{"config.json", "trainer_state.json", "model.safetensors",
                                                committed};

/// All at once, since a folder may not change while it is iterated over.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  return paths;
}

bool holds_run(const fs::path& path) {
  for (std::string_view mark : marks) {
    if (fs::exists(path / mark)) return true;
  }
  return false;
}

/// True when a folder without config.json can be what a kill in the first moments of a run left behind.
bool is_barely_started(const fs::path& path) {
  for (const fs::path& entry : entries_of(path)) {
    const std::string name = entry.filename().string();
    if (name != "tokenizer.json" && !name.ends_with(".tmp")) return false;
  }
  return true;
}

int lock_folder(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(descriptor >= 0, "cannot open the run folder ", path, ": ", std::generic_category().message(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
    return descriptor;  // or cannot be locked
  ::close(descriptor);
  fail("another process is training in ", path);
}

json parse_configuration(std::string_view text, std::string_view source) {
  try {
    json parsed = json::parse(text.begin(), text.end(), nesting_limit(64, std::string(source)));
    check(parsed.is_object(), source, " is not a JSON object");
    return parsed;
  } catch (const json::exception& error) {
    fail(source, " is not valid JSON: ", error.what());
  }
}

/// "/model/width" as "model.width".
std::string dotted(const std::string& pointer) {
  std::string key = pointer.empty() ? pointer : pointer.substr(1);
  for (char& c : key) c = c == '/' ? '.' : c;
  return key;
}

bool is_free(const std::string& key, std::span<const std::string> free_keys) {
  for (const std::string& free : free_keys) {
    if (key == free || key.starts_with(free + ".")) return true;
  }
  return false;
}

}  // namespace

void compare_configurations(std::string_view saved, std::string_view current,
                            std::span<const std::string> free_keys, std::string_view source) {
  const json before = parse_configuration(saved, source).flatten();
  const json now = parse_configuration(current, "the configuration").flatten();
  std::set<std::string> pointers;
  for (const json* flat : {&before, &now}) {
    for (const auto& [pointer, value] : flat->items()) pointers.insert(pointer);
  }
  for (const std::string& pointer : pointers) {
    const std::string key = dotted(pointer);
    if (is_free(key, free_keys)) continue;
    const auto text = [&](const json& flat) {
      return flat.contains(pointer) ? flat[pointer].dump() : "not set";
    };
    check(text(before) == text(now), "cannot resume: \"", key, "\" is ", text(now), ", but the run in ",
          source, " was started with ", text(before),
          "; use the same value, or start a new run in another folder");
  }
}

std::filesystem::path run_file(const std::filesystem::path& run, std::string_view name) {
  for (const fs::path& path : {run / committed / name, run / name}) {
    if (fs::exists(path)) return path;
  }
  check(fs::is_directory(run), "there is no run folder ", run);
  fail("the run folder ", run, " has no ", name, "; was the run stopped before its first checkpoint?");
}

RunFolder::RunFolder(std::filesystem::path path, std::string config)
    : path_(std::move(path)), config_(std::move(config)), lock_(lock_folder(path_)) {}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)),
      config_(std::move(other.config_)),
      lock_(std::exchange(other.lock_, -1)) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

RunFolder RunFolder::create(const std::filesystem::path& path, std::string_view config) {
  parse_configuration(config, "the configuration");
  std::error_code error;
  fs::create_directories(path, error);
  check(!error, "cannot create the run folder ", path, ": ", error.message());
  check(!holds_run(path), "the folder ", path,
        " already holds a run; continue it with --resume, or choose another folder");
  RunFolder folder(path, std::string(config));
  folder.recover();
  write_file_atomically(folder.file("config.json"), config);
  return folder;
}

RunFolder RunFolder::resume(const std::filesystem::path& path, std::string_view config,
                            std::span<const std::string> free_keys) {
  check(fs::is_directory(path), "there is no run to resume in ", path, "; start one without --resume");
  RunFolder folder(path, std::string(config));
  if (fs::exists(folder.file("config.json"))) {
    const std::string saved = read_file(folder.file("config.json"));
    compare_configurations(saved, config, free_keys, folder.file("config.json").string());
  } else {
    check(!holds_run(path), "the run in ", path, " has lost its config.json; it cannot be resumed");
    check(is_barely_started(path), path,
          " is not a run folder; start a run in a new folder without --resume");
  }
  folder.recover();
  write_file_atomically(folder.file("config.json"), config);
  return folder;
}

bool RunFolder::has_checkpoint() const {
  return fs::exists(file("trainer_state.json"));
}

void RunFolder::recover() {
  // Temporaries that a killed process had begun: ours alone, since the folder is locked.
  for (const fs::path& path : entries_of(path_)) {
    if (path.extension() == ".tmp") fs::remove_all(path);
  }
  move_committed_files();
}

void RunFolder::commit(const std::function<void(const std::filesystem::path& folder)>& write) {
  move_committed_files();  // in case an earlier commit could not finish
  const fs::path temporary = file(staging);
  try {
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    write(temporary);
    sync_path(temporary);
    rename_path(temporary, file(committed));
    sync_path(path_);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    fail("cannot write a checkpoint in ", path_, ": ", error.code().message());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  move_committed_files();
}

void RunFolder::move_committed_files() {
  const fs::path folder = file(committed);
  if (!fs::exists(folder)) return;
  for (const fs::path& path : entries_of(folder)) rename_path(path, path_ / path.filename());
  // The names must be on the disk at the top before the folder that had them goes.
  sync_path(path_);
  fs::remove(folder);
  sync_path(path_);
}

}  // namespace heed
