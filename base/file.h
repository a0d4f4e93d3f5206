#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

/// Files: read whole, written so that nothing is lost, and never anything but what was meant.
namespace heed {

/// What the system says of a value of errno; of a file that is too large also which limit it met.
std::string reason_of(int code);

inline constexpr std::int64_t no_byte_limit = std::numeric_limits<std::int64_t>::max();

/// The whole content of a regular file of at most `limit` bytes. Throws an Error with the path and the
/// reason; a folder, FIFO, socket or device is refused at once, by what it is.
std::string read_file(const std::filesystem::path& path, std::int64_t limit = no_byte_limit);
/// The same for content that need not fit in memory.
class FileParts {
 public:
  explicit FileParts(std::filesystem::path path);
  ~FileParts();
  FileParts(const FileParts&) = delete;
  FileParts& operator=(const FileParts&) = delete;

  /// The next bytes of the file, which stay until the next call; none at its end.
  std::string_view next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A file being written. Every failure throws an Error with the path and the system's reason (a full disk,
/// say). A process that may meet a limit on the size of files (ulimit -f) should ignore SIGXFSZ, so that
/// this is an Error, too.
class FileWriter {
 public:
  /// Creates the file, or empties it. What is no regular file is written to as it is.
  explicit FileWriter(std::filesystem::path path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::string_view bytes);
  /// Waits until the content is on the disk, and closes. Without this call the file's content is not to be
  /// relied on.
  void finish();

 private:
  friend class TemporaryFile;
  friend void write_output(const std::filesystem::path&, const std::function<void(FileWriter&)>&, bool);
  FileWriter(std::filesystem::path path, int descriptor);
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Replaces a file so that at any moment, a kill or a power cut included, the path holds the old content or
/// the new one, never a mixture: writes to a temporary name in the same folder (see is_temporary_name),
/// syncs, renames. On failure the temporary is removed, the old file is left as it was, and an Error is
/// thrown.
///
/// A symbolic link stays, and the file that it points to is replaced; one that points to nothing is refused.
/// A device or FIFO is never replaced but written to; a FIFO that nobody reads is refused, and so are a
/// socket and a folder. What a run holds is written through OpenFolder, which follows no links.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);
void write_file_atomically(const std::filesystem::path& path, const std::function<void(FileWriter&)>& write);

/// Throws an Error when write_output(path, ..., overwrite) could not work: the path is a folder, or a file
/// that is not to be overwritten, or the folder it lies in is missing or may not be written to. For a look
/// before long work.
void check_output(const std::filesystem::path& path, bool overwrite);
/// As write_file_atomically, but without `overwrite` a regular file that is there is refused, even when it
/// was made a moment ago.
void write_output(const std::filesystem::path& path, std::string_view content, bool overwrite);
void write_output(const std::filesystem::path& path, const std::function<void(FileWriter&)>& write,
                  bool overwrite);

/// True for the names that write_file_atomically gives its temporaries:
/// ".heed-<name>-<process>-<random>.tmp", with 16 random hexadecimal digits.
bool is_temporary_name(std::string_view name);

/// True when there is something at the path, links followed; false also where that cannot be found out.
bool path_exists(const std::filesystem::path& path);
/// Waits until a file, or the list of names in a folder, is on the disk.
void sync_path(const std::filesystem::path& path);
/// Makes a folder and those above it that are missing, and waits until their names are on the disk.
void create_folders(const std::filesystem::path& path);
/// Fills a folder that is new or empty, whole or not at all: `fill` gets a temporary one in it (see
/// is_temporary_name), what it writes is moved up when it is done, and all of it is removed when it throws.
/// Throws an Error where there is something.
void fill_new_folder(const std::filesystem::path& folder,
                     const std::function<void(const std::filesystem::path& folder)>& fill);
/// `digits` random hexadecimal digits from the system: for names and identities, not for computing.
std::string random_hex(int digits);

}  // namespace heed
