#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace heed {

/// The folder of one training run.
///
/// A checkpoint is several files that belong together. So that a kill at any moment leaves one whole set,
/// they are written into checkpoint.tmp/, which is renamed to checkpoint.new/ in one step, the commit; then
/// they move to the top level one by one. Whoever opens the run again throws away a checkpoint.tmp/ and
/// finishes the moves of a checkpoint.new/.
///
/// While the object lives the folder is locked: a second process that trains in it gets an Error.
class RunFolder {
 public:
  /// Starts a run: makes the folder and writes config.json. Throws when the folder already holds a run.
  static RunFolder create(const std::filesystem::path& path, std::string_view config);
  /// Opens a run to continue it: recovers from a kill and compares the configuration. Throws when there is no
  /// run, and when the value of a key differs that is not among `free_keys` (dotted; a key stands for all
  /// below it).
  static RunFolder resume(const std::filesystem::path& path, std::string_view config,
                          std::span<const std::string> free_keys);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(std::string_view name) const { return path_ / name; }
  /// True when there is a checkpoint to continue from.
  bool has_checkpoint() const;
  /// The text of config.json.
  const std::string& config() const { return config_; }

  /// Replaces a set of files as one: `write` puts them into the folder it is given. On failure the old set is
  /// untouched.
  void commit(const std::function<void(const std::filesystem::path& folder)>& write);

 private:
  RunFolder(std::filesystem::path path, std::string config);
  void recover();
  void move_committed_files();

  std::filesystem::path path_;
  std::string config_;
  int lock_ = -1;
};

/// Where to read a file of a run that may have been killed, or may be training at this moment; changes
/// nothing. Throws when the run has no such file.
std::filesystem::path run_file(const std::filesystem::path& run, std::string_view name);

/// Throws an Error that names the first key whose value differs between two JSON objects, unless it is in
/// `free_keys`.
void compare_configurations(std::string_view saved, std::string_view current,
                            std::span<const std::string> free_keys, std::string_view source);

}  // namespace heed
