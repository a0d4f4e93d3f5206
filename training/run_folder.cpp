#include "heed/training/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "heed/base/descriptor.h"
#include "heed/base/digest.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/unicode.h"
#include "heed/core/version.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* manifest_format = "heed run";
constexpr int manifest_version = 1;

constexpr std::array<std::string_view, 9> common_names{
    "run.json",       "config.json",   "model.safetensors", "optimizer.safetensors", "best.safetensors",
    "checkpoint.new", "metrics.jsonl", "report.html",       "trainer_state.json",
};

std::string digest_in(const Json& value, std::string_view what) {
  check(value.is_string() && is_digest(value.get_ref<const std::string&>()), what, " is ", value.dump(),
        ", not 32 hexadecimal digits");
  return value.get<std::string>();
}

std::map<std::string, std::string> texts_in(const Json& object, const char* key) {
  const Json& values = object.at(key);
  check(values.is_object(), "\"", key, "\" is not an object");
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : values.items()) texts[name] = value.get<std::string>();
  return texts;
}

RunManifest parse_manifest(const Json& object) {
  RunManifest manifest;
  manifest.task = object.at("task").get<std::string>();
  manifest.identity = digest_in(object.at("identity"), "the identity");
  check(object.at("config").is_array(), "\"config\" is not a list");
  for (const Json& digest : object.at("config"))
    manifest.config.push_back(digest_in(digest, "the digest of config.json"));
  check(manifest.config.size() == 1 || manifest.config.size() == 2, "it has ", manifest.config.size(),
        " digests of config.json");
  manifest.files = texts_in(object, "files");
  for (const auto& [name, digest] : manifest.files) {
    check(is_name_of_run_file(name), "it names a file \"", name, "\", which no run has");
    check(is_digest(digest), "the digest of \"", name, "\" is \"", digest, "\", not 32 hexadecimal digits");
  }
  manifest.data = texts_in(object, "data");
  if (object.contains("origin")) manifest.origin = texts_in(object, "origin");
  return manifest;
}

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* staging = ".heed-checkpoint.tmp";
constexpr const char* committed = "checkpoint.new";
constexpr std::array<std::string_view, 4> checkpoint_files{"model.safetensors", "optimizer.safetensors",
                                                           "best.safetensors", "trainer_state.json"};
constexpr std::array<std::string_view, 4> marks{"config.json", "trainer_state.json", "model.safetensors",
                                                committed};

bool is_checkpoint_file(const std::string& name) {
  return std::find(checkpoint_files.begin(), checkpoint_files.end(), name) != checkpoint_files.end();
}

bool is_temporary(const OpenFolder& folder, const std::string& name) {
  return is_temporary_name(name) && folder.has_file(name);
}

bool holds_run(const fs::path& path) {
  return std::any_of(marks.begin(), marks.end(),
                     [&](std::string_view mark) { return path_exists(path / mark); });
}

/// Returns the first entry of a folder without a run that was not left by a run killed while
/// starting; empty if there is none.
std::string first_foreign(const fs::path& path) {
  const OpenFolder folder(path);
  std::set<std::string> ours;
  if (folder.has("run.json")) {
    try {
      const RunManifest manifest = parse_run_manifest(folder.read("run.json"), "run.json");
      ours.insert("run.json");
      for (const auto& [name, digest] : manifest.files) ours.insert(name);
    } catch (const Error&) {  // an unrelated file of that name
    }
  }
  for (const std::string& name : folder.names())
    if (!is_temporary(folder, name) && !ours.contains(name)) return name;
  return {};
}

/// Locks through a separate descriptor, so that the lock ends with the RunFolder even if the
/// folder stays open elsewhere.
int lock_folder(const OpenFolder& folder) {
  const int descriptor = ::openat(folder.descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(descriptor >= 0, "cannot open the run folder ", folder.path(), ": ", reason_of(errno));
  for (int attempt = 0; attempt < 50; ++attempt) {  // is_training() holds the lock for a moment
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
      return descriptor;  // locked, or locking is not supported
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::close(descriptor);
  fail("another process is training in ", folder.path());
}

json parse_configuration(std::string_view text, std::string_view source) {
  const json parsed = parse_json<json>(text, source);
  check(parsed.is_object(), source, " is not a JSON object");
  return parsed;
}

/// Compares digests by name; `what` describes the named things in messages.
void compare_digests(const std::map<std::string, std::string>& started,
                     const std::map<std::string, std::string>& now, const char* what, const fs::path& run) {
  const auto refuse = [&](const std::string& name, const char* difference) {
    fail("cannot resume: the ", what, " \"", name, "\" ", difference, " the run in ", run,
         "; start a new run in another folder (verify=false continues anyway)");
  };
  for (const auto& [name, digest] : started) {
    const auto found = now.find(name);
    if (found == now.end()) refuse(name, "is not given now, but belongs to");
    if (found->second != digest) refuse(name, "differs from what was there at the start of");
  }
  for (const auto& [name, digest] : now)
    if (!started.contains(name)) refuse(name, "was not there at the start of");
}

std::map<std::string, std::string> digests_of(const std::map<std::string, std::string>& files) {
  std::map<std::string, std::string> digests;
  for (const auto& [name, content] : files) digests[name] = compute_digest(content);
  return digests;
}

}  // namespace

bool is_name_of_run_file(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.find_first_of(std::string_view("/\0", 2)) == name.npos &&
         unicode::find_invalid(name) == name.npos &&
         std::find(common_names.begin(), common_names.end(), name) == common_names.end();
}

std::string run_manifest_text(const RunManifest& manifest) {
  Json object{{"format", manifest_format}, {"format_version", manifest_version}, {"heed_version", version}};
  object["task"] = manifest.task;
  object["identity"] = manifest.identity;
  object["config"] = manifest.config;
  object["files"] = manifest.files;
  object["data"] = manifest.data;
  if (!manifest.origin.empty()) object["origin"] = manifest.origin;
  return text_with_digest(
      std::move(object),
      "cannot write run.json: the name of the task or of a part of the data is not valid UTF-8");
}

RunManifest parse_run_manifest(std::string_view text, std::string_view source, bool verify) {
  return read_heed_json<Json>(text, source, manifest_format, manifest_version,
                              verify ? unverified_hint : nullptr, parse_manifest);
}

std::vector<KeyDifference> key_differences(std::string_view first, std::string_view second,
                                           std::string_view source) {
  const json before = parse_configuration(first, source).flatten(),
             now = parse_configuration(second, "the configuration").flatten();
  std::set<std::string> pointers;
  for (const json* flat : {&before, &now})
    for (const auto& [pointer, value] : flat->items()) pointers.insert(pointer);
  std::vector<KeyDifference> differences;
  for (const std::string& pointer : pointers) {
    const auto text = [&](const json& flat) {
      return flat.contains(pointer) ? flat[pointer].dump() : "not set";
    };
    std::string key = pointer.substr(std::min<std::size_t>(1, pointer.size()));
    std::ranges::replace(key, '/', '.');
    if (text(before) != text(now)) differences.push_back({std::move(key), text(before), text(now)});
  }
  return differences;
}

void compare_configurations(std::string_view saved, std::string_view current,
                            std::span<const std::string> free_keys, std::string_view source) {
  for (const auto& [key, before, now] : key_differences(saved, current, source))
    check(std::ranges::any_of(
              free_keys,
              [&key = key](const std::string& free) { return key == free || key.starts_with(free + "."); }),
          "cannot resume: \"", key, "\" is ", now, ", but the run in ", source, " was started ",
          before == "not set" ? "without it" : "with " + before,
          "; use the same value, or start a new run in another folder");
}

std::filesystem::path run_file(const std::filesystem::path& run, std::string_view name) {
  for (const fs::path& path : {run / committed / name, run / name})
    if (path_exists(path)) return path;
  std::error_code unreadable;
  check(fs::is_directory(run, unreadable), "there is no run folder ", run, home_hint(run));
  fail("the run folder ", run, " has no ", name, "; was the run stopped before its first checkpoint?");
}

bool is_training(const std::filesystem::path& run) {
  const int descriptor = ::open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool locked = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

RunFolder::RunFolder(const std::filesystem::path& path, bool verify)
    : folder_(path), verify_(verify), lock_(lock_folder(folder_)) {}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      verify_(other.verify_),
      config_(std::move(other.config_)),
      saved_config_(std::move(other.saved_config_)),
      manifest_(std::move(other.manifest_)),
      lock_(std::exchange(other.lock_, -1)) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void RunFolder::check_new(const std::filesystem::path& path) {
  check(!path.empty(), "the name of the run's folder is empty");
  if (!path_exists(path)) return;
  check(fs::is_directory(path), path, " is not a folder; a run needs one");
  check(!holds_run(path), "the folder ", path,
        " already holds a run; continue it with resume=true, or choose another folder");
  const std::string foreign = first_foreign(path);
  check(foreign.empty(), "the folder ", path, " holds ", fs::path(foreign),
        ", which is not part of a run; give a new or an empty folder");
}

RunFolder RunFolder::create(const std::filesystem::path& path, const RunStart& start) {
  parse_configuration(start.config, "the configuration");
  create_folders(path);
  RunFolder folder(path, true);
  check_new(path);
  folder.start(start);
  return folder;
}

RunFolder RunFolder::resume(const std::filesystem::path& path, const RunStart& now,
                            std::span<const std::string> free_keys, bool verify) {
  std::error_code unreadable;
  check(fs::is_directory(path, unreadable), "there is no run to resume in ", path,
        "; start one with resume=false");
  parse_configuration(now.config, "the configuration");
  RunFolder folder(path, verify);
  if (!path_exists(folder.file("config.json"))) {
    check(!holds_run(path), "the run in ", path, " has lost its config.json; it cannot be resumed");
    check(first_foreign(path).empty(), path,
          " is not a run folder; start a run in a new folder with resume=false");
    folder.start(now);
    return folder;
  }
  folder.check_start(now, free_keys);
  folder.remove_temporaries();
  folder.remove_staging();
  folder.move_committed_files();
  check(!verify || folder.has_checkpoint() || !path_exists(folder.file("model.safetensors")),
        "cannot resume: ", folder.file("trainer_state.json"),
        " is missing, although the run has saved its weights; restore it (verify=false starts from the "
        "beginning)");
  folder.config_ = now.config;
  return folder;
}

/// Writes run.json first, so that files left by a kill are recognised as ours, and config.json last.
void RunFolder::start(const RunStart& start) {
  remove_temporaries();
  for (const auto& [name, content] : start.files)
    check(is_name_of_run_file(name), "a run has no file of the name \"", name, "\"");
  config_ = saved_config_ = start.config;
  manifest_ = {
      start.task, random_hex(32), {compute_digest(start.config)}, digests_of(start.files),
      start.data, start.origin,
  };
  folder_.write("run.json", run_manifest_text(manifest_));
  for (const auto& [name, content] : start.files) folder_.write(name, content);
  folder_.write("config.json", config_);
}

void RunFolder::check_start(const RunStart& now, std::span<const std::string> free_keys) {
  check(path_exists(file("run.json")), "cannot resume: the run in ", path(),
        " has lost its run.json; put it back, or start a new run in another folder");
  manifest_ = parse_run_manifest(read_file(file("run.json")), file("run.json").string(), verify_);
  check(manifest_.task == now.task, "cannot resume: the run in ", path(), " is a \"", manifest_.task,
        "\" run, and this is \"", now.task, "\"");
  saved_config_ = read_file(file("config.json"));
  const std::string digest = compute_digest(saved_config_);
  check(!verify_ || std::count(manifest_.config.begin(), manifest_.config.end(), digest) > 0,
        "cannot resume: ", file("config.json"),
        " was changed after it was written; put back the old one (verify=false continues anyway)");
  compare_configurations(saved_config_, now.config, free_keys, file("config.json").string());
  if (!verify_) return;
  compare_digests(manifest_.files, digests_of(now.files), "file", path());
  compare_digests(manifest_.data, now.data, "data", path());
  for (const auto& [name, expected] : manifest_.files)
    check(file_digest(file(name)) == expected, "cannot resume: ", file(name),
          " was changed after it was written; put back the old one (verify=false continues anyway)");
}

/// run.json lists the digests of both configurations while one replaces the other.
void RunFolder::write_config() {
  if (config_ == saved_config_) return;
  folder_.check_regular_file("config.json");  // before run.json lists its digest
  manifest_.config = {compute_digest(saved_config_), compute_digest(config_)};
  folder_.write("run.json", run_manifest_text(manifest_));
  folder_.write("config.json", config_);
  saved_config_ = config_;
}

/// Removes unfinished files of a killed process. Safe because the folder is locked.
void RunFolder::remove_temporaries() {
  for (const std::string& name : folder_.names())
    if (is_temporary(folder_, name)) folder_.remove(name);
}

void RunFolder::remove_staging() {
  const std::optional<OpenFolder> folder = folder_.find_folder(staging);
  if (!folder) return;
  for (const std::string& name : folder->names())
    if (is_checkpoint_file(name) || is_temporary(*folder, name)) folder->remove(name);
  folder_.remove(staging);
}

void RunFolder::commit(const std::function<void(const OpenFolder& folder)>& write) {
  if (folder_.place().empty()) check_in_place();  // a moved run still saves its checkpoint where it is now
  move_committed_files();                         // in case an earlier commit did not finish
  try {
    remove_staging();
    const OpenFolder folder = folder_.make_folder(staging);
    write(folder);
    folder.sync();
    folder_.move(staging, folder_, committed);
    folder_.sync();
  } catch (...) {
    try {
      remove_staging();
    } catch (const Error&) {  // the first failure is more informative
    }
    throw;
  }
  move_committed_files();
}

void RunFolder::move_committed_files() {
  const std::optional<OpenFolder> folder = folder_.find_folder(committed);
  if (!folder) return;
  for (const std::string& name : folder->names()) {
    check(is_checkpoint_file(name), "the folder ", folder->path(), " holds ", fs::path(name),
          ", which is not part of a checkpoint; move it away");
    folder->move(name, folder_, name);
  }
  // The moved names must reach the disk before their old folder is removed.
  folder_.sync();
  folder_.remove(committed);
  folder_.sync();
}

void RunFolder::check_file_exists(const std::string& name) const {
  check(folder_.has(name), file(name),
        " disappeared during training; put it back and continue with resume=true, or start a new run");
}

void RunFolder::check_in_place() const {
  if (const std::string fate = folder_.fate(); !fate.empty())
    fail("the folder of the run, ", path(), ", ", fate, " while it trained; ",
         folder_.place().empty() ? "there is nothing left to resume: train a new run"
         : folder_.has("trainer_state.json")
             ? "the last checkpoint there is complete, and resume=true continues from it"
             : "it has no checkpoint yet: train a new run");
  check_file_exists("run.json");
  check_file_exists("config.json");
  for (const auto& [name, digest] : manifest_.files)
    if (verify_) check_file_exists(name);
}

}  // namespace heed
