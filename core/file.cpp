#include "heed/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "heed/core/error.h"

namespace heed {
namespace {

[[noreturn]] void fail_with_errno(const char* what, const std::filesystem::path& path, int code) {
  fail("cannot ", what, " ", path, ": ", std::generic_category().message(code));
}

/// Opens with close-on-exec, so that child processes of the host program do not inherit the descriptor.
int open_or_throw(const char* what, const std::filesystem::path& path, int flags) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) fail_with_errno(what, path, errno);
  return descriptor;
}

/// Closes on every way out; a close whose error matters is done by hand first.
struct Descriptor {
  int value;
  explicit Descriptor(int descriptor) : value(descriptor) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

void write_all(int descriptor, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Some file systems cannot sync (EINVAL, e.g. on pipes and special files); there is nothing to wait for
/// then.
void sync_or_throw(int descriptor, const std::filesystem::path& path) {
  if (::fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS) fail_with_errno("sync", path, errno);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(open_or_throw("open", path, O_RDONLY));
  struct stat status {};
  if (::fstat(file.value, &status) != 0) fail_with_errno("read", path, errno);
  if (S_ISDIR(status.st_mode)) fail_with_errno("read", path, EISDIR);
  // The size is a hint: pipes report 0, and a file may grow while it is read.
  std::string content;
  std::size_t length = 0;
  content.resize(static_cast<std::size_t>(status.st_size) + 1);
  for (;;) {
    if (length == content.size()) content.resize(content.size() * 2 + 4096);
    const ssize_t got = ::read(file.value, content.data() + length, content.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno("read", path, errno);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  content.resize(length);
  return content;
}

FileWriter::FileWriter(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(open_or_throw("create", path_, O_WRONLY | O_CREAT | O_TRUNC)) {}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(std::string_view bytes) {
  check(descriptor_ >= 0, "cannot write ", path_, ": it is closed");
  write_all(descriptor_, bytes, path_);
}

void FileWriter::finish() {
  check(descriptor_ >= 0, "cannot finish ", path_, ": it is closed");
  sync_or_throw(descriptor_, path_);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) fail_with_errno("close", path_, errno);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  write_file_atomically(path, [&](FileWriter& file) { file.write(content); });
}

void write_file_atomically(const std::filesystem::path& path, const std::function<void(FileWriter&)>& write) {
  // The process id keeps two programs that write the same file from sharing a temporary.
  std::filesystem::path temporary = path;
  temporary += concat_text(".", ::getpid(), ".tmp");
  try {
    FileWriter file(temporary);
    write(file);
    file.finish();
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_path(folder_of(path));
}

void append_to_file(const std::filesystem::path& path, std::string_view bytes) {
  Descriptor file(open_or_throw("open", path, O_WRONLY | O_CREAT | O_APPEND));
  write_all(file.value, bytes, path);
  const int descriptor = file.value;
  file.value = -1;
  if (::close(descriptor) != 0) fail_with_errno("close", path, errno);
}

void sync_path(const std::filesystem::path& path) {
  const Descriptor file(open_or_throw("sync", path, O_RDONLY));
  sync_or_throw(file.value, path);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  const int code = errno;
  fail("cannot rename ", from, " to ", to, ": ", std::generic_category().message(code));
}

}  // namespace heed
