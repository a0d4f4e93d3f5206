#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

/// Reading and writing files. A write that is interrupted keeps the old content.
namespace heed {

inline constexpr std::int64_t no_byte_limit = std::numeric_limits<std::int64_t>::max();

/// The whole content of a regular file of at most `limit` bytes. Throws an Error with the path and
/// the reason. A folder, FIFO, socket or device is refused at once, naming its kind.
std::string read_file(const std::filesystem::path& path, std::int64_t limit = no_byte_limit);
/// Reads a file piece by piece, for content that need not fit in memory.
class FileParts {
 public:
  explicit FileParts(std::filesystem::path path);
  ~FileParts();
  FileParts& operator=(FileParts&&) = delete;

  /// The next bytes, valid until the next call; empty at the end of the file.
  std::string_view next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A file being written. Every failure throws an Error with the path and the system's reason, such
/// as a full disk. A process that may exceed a limit on file size (ulimit -f) should ignore
/// SIGXFSZ, so that this becomes an Error too.
class FileWriter {
 public:
  /// Creates or truncates the file. Special files, such as devices, are opened and written to.
  explicit FileWriter(std::filesystem::path path);
  ~FileWriter();
  FileWriter& operator=(FileWriter&&) = delete;

  void write(std::string_view bytes);
  /// Waits until the content is on disk, then closes the file. Without this call the content may be
  /// incomplete.
  void finish();

 private:
  friend class TemporaryFile;
  friend void write_output(const std::filesystem::path&, const std::function<void(FileWriter&)>&, bool);
  FileWriter(std::filesystem::path path, int descriptor);
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// A temporary file in its target's folder (see is_temporary_name). The destructor removes it
/// unless replace() or become_new() has moved it to the target.
class TemporaryFile {
 public:
  /// `shown` is the folder's path for messages when `target` is relative to an open folder.
  TemporaryFile(int folder, std::filesystem::path target, const std::filesystem::path& shown = {});
  ~TemporaryFile();
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  FileWriter& writer() { return writer_; }
  /// Syncs the file to disk and replaces the target with it.
  void replace();
  /// Like replace(), but refuses an existing target, naming it `shown`.
  void become_new(const std::filesystem::path& shown);

 private:
  int folder_;
  std::filesystem::path target_, path_;
  FileWriter writer_;
  bool is_moved_ = false;
};

/// Replaces a file so that at any moment, a kill or a power cut included, the path holds the old
/// content or the new one, never a mixture: writes to a temporary name in the same folder (see
/// is_temporary_name), syncs, renames. On failure the temporary is removed, the old file is left as
/// it was, and an Error is thrown.
///
/// A symbolic link stays and the file that it points to is replaced; a dangling link is refused.
/// Devices and FIFOs are written to, never replaced. A FIFO without a reader, a socket and a folder
/// are refused. Files of a run are written through OpenFolder, which follows no links.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);
void write_file_atomically(const std::filesystem::path& path, const std::function<void(FileWriter&)>& write);

/// Throws an Error when write_output(path, ..., overwrite) would fail: the path is a folder, the
/// file exists and must not be overwritten, or its folder is missing or not writable. Meant to be
/// called before long work.
void check_output(const std::filesystem::path& path, bool overwrite);
/// Writes as write_file_atomically() does. Without `overwrite`, an existing regular file is
/// refused, even one that appeared a moment ago.
void write_output(const std::filesystem::path& path, std::string_view content, bool overwrite);
void write_output(const std::filesystem::path& path, const std::function<void(FileWriter&)>& write,
                  bool overwrite);

/// True for the names that write_file_atomically gives its temporaries:
/// ".heed-<name>-<process>-<random>.tmp", with 16 random hexadecimal digits.
bool is_temporary_name(std::string_view name);

/// True when something exists at the path, following links; false also when this cannot be
/// determined.
bool path_exists(const std::filesystem::path& path);
/// Waits until a file, or the list of names in a folder, is on disk.
void sync_path(const std::filesystem::path& path);
/// Creates a folder and its missing parents, and waits until their names are on disk.
void create_folders(const std::filesystem::path& path);
/// Fills a new or empty folder completely or not at all: `fill` writes into a temporary folder
/// inside it (see is_temporary_name), whose content is moved up afterwards, or removed when `fill`
/// throws. Throws an Error when the folder is not empty.
void fill_new_folder(const std::filesystem::path& folder,
                     const std::function<void(const std::filesystem::path& folder)>& fill);
/// A new folder among the system's temporary files that only this user may enter. The destructor
/// removes it with its contents.
class TemporaryFolder {
 public:
  /// Creates the folder; its name begins with `name`. Throws an Error on failure.
  explicit TemporaryFolder(std::string_view name = "heed");
  ~TemporaryFolder();
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// `digits` random hexadecimal digits from the system, for names and identities, not for computing.
std::string random_hex(int digits);

}  // namespace heed
