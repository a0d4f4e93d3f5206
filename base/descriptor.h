#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

// System calls that throw on failure, shared by files by path (file.h) and files in an open folder
// (open_folder.h). `folder` is the descriptor that names are relative to; AT_FDCWD for paths.

namespace heed {

[[noreturn]] void fail_with_errno(std::string_view what, const std::filesystem::path& path, int code);
/// Ends a message about a path that begins with ~, which only shells expand; "" for other paths.
std::string home_hint(const std::filesystem::path& path);

/// A file descriptor that its destructor closes. Where an error of close() matters, close it
/// explicitly first.
struct Descriptor {
  int value;
  explicit Descriptor(int descriptor = -1) : value(descriptor) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : value(std::exchange(other.value, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
};

/// Opens a path with close-on-exec, so that child processes of the host program do not inherit the
/// descriptor. Returns -1 and sets errno on failure.
int open_at(int folder, const std::filesystem::path& path, int flags);
/// Opens as open_at() does, but throws an Error on failure: "cannot `what` `shown`" with the
/// system's reason.
int open_at_or_throw(std::string_view what, int folder, const std::filesystem::path& path, int flags,
                     const std::filesystem::path& shown);

void close_or_throw(int& descriptor, const std::filesystem::path& path);
void write_all(int descriptor, std::string_view bytes, const std::filesystem::path& path);
/// Waits until a file is on disk. Does nothing for a file that cannot be synced (EINVAL), such as a
/// pipe.
void sync_or_throw(int descriptor, const std::filesystem::path& path);
/// Reads at most `room` bytes. Returns the number of bytes read; 0 at the end.
std::size_t read_some(int descriptor, char* to, std::size_t room, const std::filesystem::path& path);
/// Reads everything that remains; `size` is a hint.
std::string read_all(int descriptor, std::int64_t size, std::int64_t limit,
                     const std::filesystem::path& path);

/// Returns the mode of the entry at a path; 0 if there is none. Throws an Error when it cannot be
/// determined. `flags` are those of fstatat().
mode_t mode_at(int folder, const std::filesystem::path& path, int flags, const std::filesystem::path& shown);
/// Names the kind of file for messages: "a folder", "a device", ...; "a link" when links are not
/// followed.
const char* kind_of(mode_t mode);
/// The size of an open file; throws unless it is a regular file.
std::int64_t size_of_regular(int descriptor, const std::filesystem::path& path);

std::filesystem::path parent_folder(const std::filesystem::path& path);
[[noreturn]] void refuse_existing(const std::filesystem::path& path);
/// Renames a file; throws when the new name exists.
void rename_to_new(int folder, const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::filesystem::path& shown);

}  // namespace heed
