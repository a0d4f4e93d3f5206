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

/// Ends the refusal of a file that was changed or belongs elsewhere.
inline constexpr const char* unverified_hint = " (--unverified uses it all the same)";

/// What run.json says of a run, so that files of another run and files that were changed are noticed.
struct RunManifest {
  std::string task;      ///< "classify"
  std::string identity;  ///< 32 random hexadecimal digits, which trainer_state.json repeats
  /// Digests that config.json may have: one, or two while a resumed run replaces it.
  std::vector<std::string> config;
  std::map<std::string, std::string>
      files;  ///< name -> digest, of what belongs to the model beside its weights
  std::map<std::string, std::string> data;  ///< part of the data -> digest
  /// Of the run that this one started from: its "task", its "identity", the digest of its "weights"; empty:
  /// none.
  std::map<std::string, std::string> origin = {};
};

/// The text ends with a digest of itself.
std::string run_manifest_text(const RunManifest& manifest);
/// Throws an Error that names `source` for text that run_manifest_text did not write; with `verify` also for
/// text that was changed since.
RunManifest parse_run_manifest(std::string_view text, std::string_view source, bool verify = true);

/// True for a name that a run may give one of its own files: no folder, nothing hidden, none
/// of the names that every run has.
bool is_name_of_run_file(std::string_view name);

/// What a run is made of when it starts.
struct RunStart {
  std::string task;    ///< "classify"
  std::string config;  ///< the text of config.json, a JSON object
  /// What belongs to the model beside its weights: "tokenizer.json", "classes.json" ... -> content.
  std::map<std::string, std::string> files = {};
  std::map<std::string, std::string> data = {};  ///< part of the data ("train", "valid", "test") -> digest
  /// As in RunManifest; of a run that goes on, run.json knows it.
  std::map<std::string, std::string> origin = {};
  /// A JSON object with what a setting stands for that the config.json of a run lacks, because it came after
  /// that run was begun; "": a run that lacks one is refused.
  std::string defaults = {};
};

/// The folder of one training run, while it trains. (RunFiles reads a run.)
///
/// run.json says what the run is and which checksums its files have; config.json, written last, marks
/// the folder as a run. A folder that holds anything else is refused, and what somebody else puts
/// into it later is never touched.
///
/// A checkpoint is several files that belong together. So that a kill at any moment leaves one whole set,
/// they are written into a hidden folder, which is renamed to checkpoint.new/ in one step, the commit; then
/// they move to the top level one by one. Whoever opens the run again throws away what was not committed and
/// finishes the moves of a checkpoint.new/.
///
/// While the object lives the folder is locked: a second process that trains in it gets an Error. It is held
/// open, too (OpenFolder): whatever is done to its path, what is written goes into this folder, and through
/// no link.
class RunFolder {
 public:
  /// Throws when create() would refuse the folder; for a look before long work. Changes nothing.
  static void check_new(const std::filesystem::path& path);
  /// Starts a run: makes the folder and writes what the run starts with. Throws when the folder holds a run
  /// or anything else.
  static RunFolder create(const std::filesystem::path& path, const RunStart& start);
  /// Opens a run to continue it, and recovers from a kill. Throws an Error that names what differs when there
  /// is no run, when it is of another task, when a key of the configuration differs that is not among
  /// `free_keys` (dotted; a key stands for all below it), or when files or data are not those it started
  /// with. Without `verify`, files and data may differ, here and when the checkpoint is loaded.
  static RunFolder resume(const std::filesystem::path& path, const RunStart& now,
                          std::span<const std::string> free_keys, bool verify = true);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path file(std::string_view name) const { return path() / name; }
  /// All that is written inside the run is written through it.
  const OpenFolder& folder() const { return folder_; }
  /// True when there is a checkpoint to continue from.
  bool has_checkpoint() const;
  /// The configuration that the run goes on with.
  const std::string& config() const { return config_; }
  /// Writes it to config.json, where it differs from the old one. A resumed run does so when its checkpoint
  /// was found to be in order: what is refused is left as it was.
  void write_config();
  /// 32 hexadecimal digits that no other run has.
  const std::string& identity() const { return manifest_.identity; }
  bool verifies() const { return verify_; }

  /// Replaces the files of the checkpoint as one: `write` puts them into the folder it is given, under the
  /// names of files of a checkpoint. On failure the old set is untouched.
  void commit(const std::function<void(const OpenFolder& folder)>& write);

  /// Writes again what is missing of the files that the run started with, and returns their names.
  std::vector<std::string> restore();
  /// Throws an Error that says where the last whole checkpoint is when the path no longer leads to this
  /// folder: it was moved, removed, or another one was put in its place.
  void check_in_place() const;
  /// Throws an Error unless the run can be opened with what it started with.
  void check_opens() const;

 private:
  RunFolder(const std::filesystem::path& path, bool verify);
  void start(const RunStart& start);
  void check_start(const RunStart& now, std::span<const std::string> free_keys);
  void remove_temporaries();
  void remove_staging();
  void move_committed_files();

  OpenFolder folder_;
  bool verify_ = true;
  std::map<std::string, std::string> files_;  // what the run started with, to write again what disappears
  std::string config_, saved_config_;         // the second is what config.json holds
  RunManifest manifest_;
  int lock_ = -1;
};

/// Where to read a file of a run that may have been killed, or may be training at this moment; changes
/// nothing. Throws when the run has no such file.
std::filesystem::path run_file(const std::filesystem::path& run, std::string_view name);

/// Throws an Error that names the first key whose value differs between two JSON
/// objects, unless it is in `free_keys`. A key that `saved` lacks has its value in `defaults`, if any.
void compare_configurations(std::string_view saved, std::string_view current,
                            std::span<const std::string> free_keys, std::string_view source,
                            std::string_view defaults = {});

}  // namespace heed
