#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/open_folder.h"

namespace heed {

/// The hint at the end of an error about a file that was changed or belongs to another run.
inline constexpr const char* unverified_hint = " (verify=false uses it all the same)";

/// The contents of run.json, which reveal changed files and files of another run.
struct RunManifest {
  std::string task;      ///< "classify"
  std::string identity;  ///< 32 random hexadecimal digits, which trainer_state.json repeats
  /// The digests that config.json may have: one, or two while a resumed run replaces it.
  std::vector<std::string> config;
  /// Name -> digest of the model's files other than its weights.
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> data;  ///< part of the data -> digest
  /// The run that this one started from: its "task", "identity" and the digest of its "weights".
  /// Empty: none.
  std::map<std::string, std::string> origin = {};
};

/// Returns the text of run.json, which ends with its own digest.
std::string run_manifest_text(const RunManifest& manifest);
/// Parses the text of run.json. Throws an Error naming `source` if run_manifest_text did not write
/// the text or, with `verify`, if it was changed since.
RunManifest parse_run_manifest(std::string_view text, std::string_view source, bool verify = true);

/// Whether a run may use this name for a file of its own: it has no folder part, is not hidden and
/// is not used by every run.
bool is_name_of_run_file(std::string_view name);

/// The initial contents of a run.
struct RunStart {
  std::string task;    ///< "classify"
  std::string config;  ///< the text of config.json, a JSON object
  /// The model's files other than its weights: "tokenizer.json", "classes.json" ... -> content.
  std::map<std::string, std::string> files = {};
  /// Part of the data ("train", "valid", "test") -> digest.
  std::map<std::string, std::string> data = {};
  /// As in RunManifest; a resumed run reads it from run.json.
  std::map<std::string, std::string> origin = {};
};

/// The folder of a training run while it trains. (RunFiles reads a run.)
///
/// run.json identifies the run and holds the checksums of its files; config.json, written last,
/// marks the folder as a run. A new run refuses a folder that holds anything else, and files added
/// later by others are never touched.
///
/// A checkpoint is several files that belong together. So that a kill at any moment leaves a
/// complete set, they are written into a hidden folder, which is committed by renaming it to
/// checkpoint.new/; then they move to the top level one by one. Reopening the run deletes what was
/// not committed and finishes the moves of a checkpoint.new/.
///
/// The folder stays locked while the object lives: a second process that trains in it gets an
/// Error. It also stays open (OpenFolder): whatever happens to its path, writes go into this folder
/// and follow no link.
class RunFolder {
 public:
  /// Throws if create() would refuse the folder. Changes nothing; use it before long work.
  static void check_new(const std::filesystem::path& path);
  /// Starts a run: makes the folder and writes its initial files. Throws if the folder
  /// holds a run or anything else.
  static RunFolder create(const std::filesystem::path& path, const RunStart& start);
  /// Opens a run to continue it, and recovers from a kill. Throws an Error naming the difference if
  /// there is no run, if it has another task, if a configuration key differs that is not in
  /// `free_keys` (dotted; a key covers everything below it), or if files or data are not those it
  /// started with. Without `verify`, files and data may differ, here and when the checkpoint is
  /// loaded.
  static RunFolder resume(const std::filesystem::path& path, const RunStart& now,
                          std::span<const std::string> free_keys, bool verify = true);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path file(std::string_view name) const { return path() / name; }
  /// The open folder, through which all writes inside the run go.
  const OpenFolder& folder() const { return folder_; }
  /// Whether there is a checkpoint to continue from.
  bool has_checkpoint() const { return path_exists(file("trainer_state.json")); }
  /// The configuration that the run continues with.
  const std::string& config() const { return config_; }
  /// Writes config() to config.json if it differs from the old one. A resumed run calls this once
  /// its checkpoint has loaded, so that a run that is refused stays unchanged.
  void write_config();
  /// 32 hexadecimal digits, unique to the run.
  const std::string& identity() const { return manifest_.identity; }
  bool verifies() const { return verify_; }

  /// Replaces the files of the checkpoint atomically: `write` creates them, under their usual
  /// names, in the folder it is given. On failure the old set is untouched.
  void commit(const std::function<void(const OpenFolder& folder)>& write);

  /// Throws an Error that says where the last complete checkpoint is if the path no longer leads to
  /// this folder because it was moved, removed or replaced. Also throws if one of the run's initial
  /// files is gone, naming it.
  void check_in_place() const;
  /// Throws an Error unless the run has this file.
  void check_file_exists(const std::string& name) const;

 private:
  RunFolder(const std::filesystem::path& path, bool verify);
  void start(const RunStart& start);
  void check_start(const RunStart& now, std::span<const std::string> free_keys);
  void remove_temporaries();
  void remove_staging();
  void move_committed_files();

  OpenFolder folder_;
  bool verify_ = true;
  std::string config_, saved_config_;  // saved_config_ is what config.json holds
  RunManifest manifest_;
  int lock_ = -1;
};

/// Returns the path of a file in a run that may have been killed or may be training right now.
/// Changes nothing. Throws if the run has no such file.
std::filesystem::path run_file(const std::filesystem::path& run, std::string_view name);
/// Whether a process on this machine is training in the folder. Changes nothing; false if the file
/// system has no locks.
bool is_training(const std::filesystem::path& run);

/// A dotted key whose value differs between two JSON objects, with both values as JSON, or "not
/// set".
struct KeyDifference {
  std::string key, first, second;
};
/// Returns all differences, sorted by key. Throws an Error naming `source` unless `first` is a JSON
/// object.
std::vector<KeyDifference> key_differences(std::string_view first, std::string_view second,
                                           std::string_view source = "the first");
/// Throws an Error naming the first key whose value differs between two JSON objects, except for
/// `free_keys`.
void compare_configurations(std::string_view saved, std::string_view current,
                            std::span<const std::string> free_keys, std::string_view source);

}  // namespace heed
