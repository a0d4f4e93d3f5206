#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "heed/base/file.h"

// Calls of the system that throw: what files by their paths (file.h) and files of an open folder
// (open_folder.h) share. `folder` is the descriptor that a name is relative to, AT_FDCWD for a path.

namespace heed {

[[noreturn]] void fail_with_errno(std::string_view what, const std::filesystem::path& path, int code);

/// Closes on every way out; a close whose error matters is done by hand first.
struct Descriptor {
  int value;
  explicit Descriptor(int descriptor) : value(descriptor) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

/// Opens with close-on-exec, so that child processes of the host program do not inherit the descriptor.
/// Returns -1 with errno on failure.
int open_at(int folder, const std::filesystem::path& path, int flags);
/// The same; the Error says that it cannot `what` the path as it is `shown`.
int open_at_or_throw(std::string_view what, int folder, const std::filesystem::path& path, int flags,
                     const std::filesystem::path& shown);

void close_or_throw(int& descriptor, const std::filesystem::path& path);
void write_all(int descriptor, std::string_view bytes, const std::filesystem::path& path);
/// Some file systems cannot sync (EINVAL, e.g. on pipes and special files); there is nothing to wait for
/// then.
void sync_or_throw(int descriptor, const std::filesystem::path& path);
/// How many bytes came; 0 at the end.
std::size_t read_some(int descriptor, char* to, std::size_t room, const std::filesystem::path& path);
/// All that follows; `size` is a hint.
std::string read_all(int descriptor, std::int64_t size, std::int64_t limit,
                     const std::filesystem::path& path);

/// "a folder", "a device", ...; "a link" where links were not followed.
const char* kind_of(mode_t mode);
/// The size of an open file; throws unless it is a regular one.
std::int64_t size_of_regular(int descriptor, const std::filesystem::path& path);

std::filesystem::path folder_of(const std::filesystem::path& path);
[[noreturn]] void refuse_existing(const std::filesystem::path& path);
/// A name beside the target that nothing has.
std::filesystem::path temporary_for(const std::filesystem::path& target);
/// Renames unless there is something with that name.
void rename_to_new(int folder, const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::filesystem::path& shown);

/// A new file beside the one that it is to become; removed unless it became it.
class TemporaryFile {
 public:
  /// Messages show the folder as `shown`, where `target` is relative to it.
  TemporaryFile(int folder, std::filesystem::path target, const std::filesystem::path& shown = {});
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  FileWriter& writer() { return writer_; }
  /// What was written is on the disk, and replaces the target.
  void replace();
  /// The same, but refuses a target that is there, by the name `shown`.
  void become_new(const std::filesystem::path& shown);

 private:
  int folder_;
  std::filesystem::path target_, path_;
  FileWriter writer_;
  bool is_moved_ = false;
};

}  // namespace heed
