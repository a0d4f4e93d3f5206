#include "heed/base/open_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "heed/base/descriptor.h"
#include "heed/base/error.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

/// The mode of the entry itself, not following links; 0 when it does not exist.
mode_t own_mode(const OpenFolder& folder, const std::string& name) {
  return mode_at(folder.descriptor(), name, AT_SYMLINK_NOFOLLOW, folder.path() / name);
}

bool is_same(const fs::path& path, int folder) {
  struct stat named {};
  struct stat open {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(folder, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

}  // namespace

OpenFolder::OpenFolder(const fs::path& path)
    : OpenFolder(path, open_at_or_throw("open the folder", AT_FDCWD, path, O_RDONLY | O_DIRECTORY, path)) {}

OpenFolder::OpenFolder(fs::path path, int descriptor)
    : path_(std::move(path)), folder_(std::make_shared<Descriptor>(descriptor)) {}

int OpenFolder::descriptor() const {
  return folder_->value;
}

fs::path OpenFolder::place() const {
  std::error_code unknown;
  const fs::path place = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor()), unknown);
  return !unknown && is_same(place, descriptor()) ? place : fs::path();
}

std::string OpenFolder::fate() const {
  if (is_same(path_, descriptor())) return "";
  const fs::path now = place();
  return now.empty() ? std::string("was removed") : concat_text("was moved to ", now);
}

std::vector<std::string> OpenFolder::names() const {
  std::vector<std::string> names;
  // A descriptor of its own, because reading the names moves its position.
  const int own = open_at_or_throw("list the folder", descriptor(), ".", O_RDONLY | O_DIRECTORY, path_);
  DIR* const list = ::fdopendir(own);
  if (list == nullptr) {
    const int code = errno;
    ::close(own);
    fail_with_errno("list the folder", path_, code);
  }
  errno = 0;
  while (const dirent* const entry = ::readdir(list))
    if (const std::string name = entry->d_name; name != "." && name != "..") names.push_back(name);
  const int code = errno;
  ::closedir(list);
  if (code != 0) fail_with_errno("list the folder", path_, code);
  std::ranges::sort(names);
  return names;
}

bool OpenFolder::has(const std::string& name) const {
  return own_mode(*this, name) != 0;
}

bool OpenFolder::has_file(const std::string& name) const {
  return S_ISREG(own_mode(*this, name));
}

std::optional<OpenFolder> OpenFolder::find_folder(const std::string& name) const {
  const mode_t mode = own_mode(*this, name);
  if (mode == 0) return std::nullopt;
  check(S_ISDIR(mode), path_ / name, " is ", kind_of(mode), ", where a folder is needed; move it away");
  return OpenFolder(path_ / name, open_at_or_throw("open the folder", descriptor(), name,
                                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW, path_ / name));
}

OpenFolder OpenFolder::make_folder(const std::string& name) const {
  if (std::optional<OpenFolder> there = find_folder(name)) return std::move(*there);
  if (::mkdirat(descriptor(), name.c_str(), 0777) != 0 && errno != EEXIST)
    fail_with_errno("create the folder", path_ / name, errno);
  sync();
  std::optional<OpenFolder> made = find_folder(name);
  check(made.has_value(), "cannot create the folder ", path_ / name, ": it disappeared");
  return std::move(*made);
}

void OpenFolder::check_regular_file(const std::string& name) const {
  const mode_t mode = own_mode(*this, name);
  check(mode == 0 || S_ISREG(mode), path_ / name, " is ", kind_of(mode),
        ", where a regular file is needed; move it away");
}

/// Replaces a file that is another folder's too, as in a copy made of hard links, by a copy of its
/// own, before it is changed in place.
void OpenFolder::copy_if_linked(const std::string& name) const {
  struct stat status {};
  if (::fstatat(descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
      status.st_nlink > 1)
    write(name, read(name));
}

int OpenFolder::open_entry(const char* what, const std::string& name, int flags) const {
  const int file = open_at_or_throw(what, descriptor(), name, flags | O_NOFOLLOW | O_NONBLOCK, path_ / name);
  try {
    size_of_regular(file, path_ / name);
  } catch (...) {
    ::close(file);
    throw;
  }
  return file;
}

std::string OpenFolder::read(const std::string& name) const {
  check_regular_file(name);
  const Descriptor file(open_entry("open", name, O_RDONLY));
  return read_all(file.value, size_of_regular(file.value, path_ / name), no_byte_limit, path_ / name);
}

void OpenFolder::read_in_parts(const std::string& name,
                               const std::function<void(std::string_view part)>& take) const {
  const Descriptor file(open_entry("open", name, O_RDONLY));
  std::vector<char> part(1 << 16);
  while (const std::size_t got = read_some(file.value, part.data(), part.size(), path_ / name))
    take({part.data(), got});
}

void OpenFolder::write(const std::string& name, std::string_view content) const {
  write(name, [&](FileWriter& file) { file.write(content); });
}

void OpenFolder::write(const std::string& name, const std::function<void(FileWriter&)>& write) const {
  check_regular_file(name);
  TemporaryFile file(descriptor(), name, path_);
  write(file.writer());
  file.replace();
  sync();
}

int OpenFolder::open_to_append(const std::string& name) const {
  check_regular_file(name);
  copy_if_linked(name);
  return open_entry("open", name, O_WRONLY | O_CREAT | O_APPEND);
}

void OpenFolder::append(const std::string& name, std::string_view bytes) const {
  Descriptor file(open_to_append(name));
  write_all(file.value, bytes, path_ / name);
  close_or_throw(file.value, path_ / name);
}

void OpenFolder::cut(const std::string& name, std::int64_t bytes) const {
  check_regular_file(name);
  copy_if_linked(name);
  const Descriptor file(open_entry("open", name, O_WRONLY));
  if (::ftruncate(file.value, bytes) != 0) fail_with_errno("cut", path_ / name, errno);
}

void OpenFolder::move(const std::string& name, const OpenFolder& to, const std::string& new_name) const {
  if (::renameat(descriptor(), name.c_str(), to.descriptor(), new_name.c_str()) != 0)
    fail("cannot rename ", path_ / name, " to ", to.path_ / new_name, ": ", reason_of(errno));
}

void OpenFolder::remove(const std::string& name) const {
  const int flags = S_ISDIR(own_mode(*this, name)) ? AT_REMOVEDIR : 0;
  if (::unlinkat(descriptor(), name.c_str(), flags) != 0 && errno != ENOENT)
    fail_with_errno("remove", path_ / name, errno);
}

void OpenFolder::sync(const std::string& name) const {
  const Descriptor file(open_entry("sync", name, O_RDONLY));
  sync_or_throw(file.value, path_ / name);
}

void OpenFolder::sync() const {
  sync_or_throw(descriptor(), path_);
}

}  // namespace heed
