#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace heed {

/// The whole content of a file. Throws an Error with the path and the system's reason.
std::string read_file(const std::filesystem::path& path);

/// A file being written. Every failure throws an Error with the path and the system's reason (a full disk,
/// say).
class FileWriter {
 public:
  /// Creates the file, or empties it.
  explicit FileWriter(std::filesystem::path path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::string_view bytes);
  /// Waits until the content is on the disk, and closes. Without this call the file's content is not to be
  /// relied on.
  void finish();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Replaces a file so that at any moment, a kill or a power cut included, the path holds the old content or
/// the new one, never a mixture: writes to a temporary name in the same folder, syncs, renames. On failure
/// the temporary is removed, the old file is left as it was, and an Error is thrown.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);
void write_file_atomically(const std::filesystem::path& path, const std::function<void(FileWriter&)>& write);

/// Appends to a file, which is created when missing.
void append_to_file(const std::filesystem::path& path, std::string_view bytes);
/// Waits until a file, or the list of names in a folder, is on the disk.
void sync_path(const std::filesystem::path& path);
/// Renames within one file system, replacing the target. The folder is not synced.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace heed
