#include "heed/base/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>  // renameat2
#include <new>
#include <stdexcept>
#include <utility>

#include "heed/base/error.h"

namespace heed {

namespace fs = std::filesystem;

void fail_with_errno(std::string_view what, const fs::path& path, int code) {
  fail("cannot ", what, " ", path, ": ", reason_of(code), home_hint(path));
}

std::string home_hint(const fs::path& path) {
  return path.native().starts_with('~') ? "; only a shell reads ~ as the home folder: give the whole path"
                                        : "";
}

Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

int open_at(int folder, const fs::path& path, int flags) {
  int descriptor;
  do {
    descriptor = ::openat(folder, path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

int open_at_or_throw(std::string_view what, int folder, const fs::path& path, int flags,
                     const fs::path& shown) {
  const int descriptor = open_at(folder, path, flags);
  if (descriptor < 0) fail_with_errno(what, shown, errno);
  return descriptor;
}

void close_or_throw(int& descriptor, const fs::path& path) {
  if (::close(std::exchange(descriptor, -1)) != 0) fail_with_errno("close", path, errno);
}

void write_all(int descriptor, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void sync_or_throw(int descriptor, const fs::path& path) {
  int status;
  do {
    status = ::fsync(descriptor);
  } while (status != 0 && errno == EINTR);
  if (status != 0 && errno != EINVAL && errno != EROFS) fail_with_errno("sync", path, errno);
}

std::size_t read_some(int descriptor, char* to, std::size_t room, const fs::path& path) {
  for (;;) {
    const ssize_t got = ::read(descriptor, to, room);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail_with_errno("read", path, errno);
  }
}

std::string read_all(int descriptor, std::int64_t size, std::int64_t limit, const fs::path& path) {
  const auto check_size = [&](std::int64_t bytes) {
    check(bytes <= limit, "cannot read ", path, ": it has ", bytes, " bytes or more, and at most ", limit,
          " are read");
  };
  check_size(size);
  std::string content;
  try {
    std::size_t length = 0;
    content.resize(static_cast<std::size_t>(size) + 1);
    while (const std::size_t got =
               read_some(descriptor, content.data() + length, content.size() - length, path)) {
      length += got;
      check_size(static_cast<std::int64_t>(length));
      if (length == content.size()) content.resize(content.size() * 2 + 4096);
    }
    content.resize(length);
  } catch (const std::bad_alloc&) {
    fail("cannot read ", path, ": there is no memory for its ", size, " bytes");
  } catch (const std::length_error&) {
    fail("cannot read ", path, ": there is no memory for its ", size, " bytes");
  }
  return content;
}

mode_t mode_at(int folder, const fs::path& path, int flags, const fs::path& shown) {
  struct stat status {};
  if (::fstatat(folder, path.c_str(), &status, flags) == 0) return status.st_mode;
  if (errno != ENOENT && errno != ENOTDIR) fail_with_errno("look at", shown, errno);
  return 0;
}

const char* kind_of(mode_t mode) {
  if (S_ISREG(mode)) return "a file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a FIFO (a named pipe)";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::int64_t size_of_regular(int descriptor, const fs::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail_with_errno("read", path, errno);
  check(S_ISREG(status.st_mode), "cannot read ", path, ": it is ", kind_of(status.st_mode),
        ", and a regular file is needed");
  return status.st_size;
}

fs::path parent_folder(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

void refuse_existing(const fs::path& path) {
  fail(path, " exists already; give another name, or overwrite=true");
}

void rename_to_new(int folder, const fs::path& from, const fs::path& to, const fs::path& shown) {
  if (::renameat2(folder, from.c_str(), folder, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) refuse_existing(shown);
  // Some file systems do not support RENAME_NOREPLACE, but have links.
  if (::linkat(folder, from.c_str(), folder, to.c_str(), 0) != 0) {
    if (errno == EEXIST) refuse_existing(shown);
    fail_with_errno("write", shown, errno);
  }
  ::unlinkat(folder, from.c_str(), 0);
}

}  // namespace heed
