#include "heed/base/file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "heed/base/descriptor.h"
#include "heed/base/error.h"

namespace heed {

namespace {

namespace fs = std::filesystem;

/// Returns the mode of the entry at a path, following links; 0 if there is none.
mode_t file_mode(const fs::path& path) {
  return mode_at(AT_FDCWD, path, 0, path);
}

/// Opens a regular file for reading and returns its size, which is a hint: files in /proc report 0, and a
/// file may grow while it is read.
std::int64_t open_regular(const fs::path& path, std::optional<Descriptor>& file) {
  // Checked before opening, since opening a device can have side effects, and again afterwards, since the
  // file may have been replaced in between. O_NONBLOCK keeps the open from waiting for the other end of a
  // FIFO.
  if (const mode_t mode = file_mode(path); mode != 0)
    check(S_ISREG(mode), "cannot read ", path, ": it is ", kind_of(mode), ", and a regular file is needed");
  file.emplace(open_at_or_throw("open", AT_FDCWD, path, O_RDONLY | O_NONBLOCK, path));
  return size_of_regular(file->value, path);
}

/// The file that a write really goes to.
struct Target {
  fs::path path;    // after following links
  bool is_special;  // written to directly, never replaced
};

Target resolve_target(const fs::path& path) {
  fs::path target = path;
  for (int links = 0; links < 40; ++links) {
    // Links in /proc, such as the one behind /dev/stdout, lead to open files of processes.
    if (target.native().starts_with("/proc/")) return {target, true};
    std::error_code not_a_link;
    const fs::path next = fs::read_symlink(target, not_a_link);
    if (not_a_link) {
      const mode_t mode = file_mode(target);
      check(mode != 0 || links == 0, "cannot write ", path, ": it is a link to ", target,
            ", which does not exist; give the name of a file");
      check(!S_ISDIR(mode), "cannot write ", path, ": it is a folder; give the name of a file");
      check(!S_ISSOCK(mode), "cannot write ", path, ": it is a socket; give the name of a file");
      return {target, mode != 0 && !S_ISREG(mode)};
    }
    target = next.is_absolute() ? next : parent_folder(target) / next;
  }
  fail("cannot write ", path, ": too many symbolic links, or they run in a circle");
}

/// Standard output or standard error if it goes to the regular file at `path`, else -1.
int standard_stream(const fs::path& path) {
  struct stat named {};
  struct stat open {};
  if (::stat(path.c_str(), &named) != 0 || !S_ISREG(named.st_mode)) return -1;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (::fstat(stream, &open) == 0 && open.st_dev == named.st_dev && open.st_ino == named.st_ino)
      return stream;
  return -1;
}

int open_special(const fs::path& path) {
  // A second open of the file would have its own write position, and each stream would overwrite the other.
  if (const int stream = standard_stream(path); stream >= 0) {
    const int copy = ::fcntl(stream, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) fail_with_errno("write", path, errno);
    return copy;
  }
  // Without O_NONBLOCK, opening a FIFO would wait for a reader.
  const int descriptor = open_at(AT_FDCWD, path, O_WRONLY | O_APPEND | O_NONBLOCK);
  check(descriptor >= 0 || errno != ENXIO || !S_ISFIFO(file_mode(path)), "cannot write ", path,
        ": it is a FIFO (a named pipe) that nobody reads");
  if (descriptor < 0) fail_with_errno("write", path, errno);
  if (::fcntl(descriptor, F_SETFL, O_APPEND) != 0) {
    const int code = errno;
    ::close(descriptor);
    fail_with_errno("write", path, code);
  }
  return descriptor;
}

void check_names_file(const fs::path& path) {
  check(path.has_filename(), "cannot write ", path, ": give the name of a file");
}

constexpr std::string_view temporary_prefix = ".heed-", temporary_suffix = ".tmp";
constexpr int random_digits = 16;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == text.npos;
}

fs::path temporary_for(const fs::path& target) {
  const std::string name = target.filename().native().substr(0, 180);  // names have at most 255 bytes
  return target.parent_path() / concat_text(temporary_prefix, name, "-", ::getpid(), "-",
                                            random_hex(random_digits), temporary_suffix);
}

}  // namespace

std::string read_file(const fs::path& path, std::int64_t limit) {
  std::optional<Descriptor> file;
  const std::int64_t size = open_regular(path, file);
  return read_all(file->value, size, limit, path);
}

struct FileParts::State {
  explicit State(fs::path opened) : path(std::move(opened)) {}
  fs::path path;
  std::optional<Descriptor> file = {};
  std::array<char, 1 << 16> part = {};
};

FileParts::FileParts(fs::path path) : state_(std::make_unique<State>(std::move(path))) {
  open_regular(state_->path, state_->file);
}

FileParts::~FileParts() = default;

std::string_view FileParts::next() {
  State& s = *state_;
  return {s.part.data(), read_some(s.file->value, s.part.data(), s.part.size(), s.path)};
}

FileWriter::FileWriter(fs::path path)
    : path_(std::move(path)),
      descriptor_(open_at_or_throw("create", AT_FDCWD, path_, O_WRONLY | O_CREAT | O_TRUNC, path_)) {}

FileWriter::FileWriter(fs::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

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
  close_or_throw(descriptor_, path_);
}

TemporaryFile::TemporaryFile(int folder, fs::path target, const fs::path& shown)
    : folder_(folder),
      target_(std::move(target)),
      path_(temporary_for(target_)),
      // O_EXCL | O_NOFOLLOW: fails rather than open an existing file or link.
      writer_(shown / path_, open_at_or_throw("create", folder, path_,
                                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, shown / path_)) {}

TemporaryFile::~TemporaryFile() {
  if (!is_moved_) ::unlinkat(folder_, path_.c_str(), 0);
}

void TemporaryFile::replace() {
  writer_.finish();
  if (::renameat(folder_, path_.c_str(), folder_, target_.c_str()) != 0)
    fail("cannot rename ", path_, " to ", target_, ": ", reason_of(errno));
  is_moved_ = true;
}

void TemporaryFile::become_new(const fs::path& shown) {
  writer_.finish();
  rename_to_new(folder_, path_, target_, shown);
  is_moved_ = true;
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  write_output(path, content, true);
}

void write_file_atomically(const fs::path& path, const std::function<void(FileWriter&)>& write) {
  write_output(path, write, true);
}

void write_output(const fs::path& path, std::string_view content, bool overwrite) {
  write_output(
      path, [&](FileWriter& file) { file.write(content); }, overwrite);
}

void write_output(const fs::path& path, const std::function<void(FileWriter&)>& write, bool overwrite) {
  check_names_file(path);
  const Target target = resolve_target(path);
  if (target.is_special) {
    FileWriter file(path, open_special(path));
    write(file);
    return file.finish();
  }
  TemporaryFile file(AT_FDCWD, target.path);
  write(file.writer());
  if (overwrite)
    file.replace();
  else
    file.become_new(path);
  sync_path(parent_folder(target.path));
}

void check_output(const fs::path& path, bool overwrite) {
  check_names_file(path);
  const Target target = resolve_target(path);
  if (target.is_special) return;
  if (!overwrite && file_mode(target.path) != 0) refuse_existing(path);
  const fs::path folder = parent_folder(target.path);
  check(S_ISDIR(file_mode(folder)), "cannot write ", path, ": there is no folder ", folder, home_hint(path));
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    fail("cannot write ", path, ": no file can be made in the folder ", folder, ": ", reason_of(errno));
}

bool is_temporary_name(std::string_view name) {
  if (!name.starts_with(temporary_prefix) || !name.ends_with(temporary_suffix)) return false;
  name.remove_prefix(temporary_prefix.size());
  if (name.size() < temporary_suffix.size()) return false;
  name.remove_suffix(temporary_suffix.size());
  const std::size_t random = name.rfind('-');
  if (random == name.npos || name.size() - random - 1 != random_digits || !is_hex(name.substr(random + 1)))
    return false;
  name = name.substr(0, random);
  const std::size_t process = name.rfind('-');
  return process != name.npos && process > 0 && process + 1 < name.size() &&
         name.find_first_not_of("0123456789", process + 1) == name.npos;
}

bool path_exists(const fs::path& path) {
  return file_mode(path) != 0;
}

void sync_path(const fs::path& path) {
  const Descriptor file(open_at_or_throw("sync", AT_FDCWD, path, O_RDONLY | O_NONBLOCK, path));
  sync_or_throw(file.value, path);
}

void create_folders(const fs::path& path) {
  if (S_ISDIR(file_mode(path))) return;
  const fs::path clean = path.has_filename() ? path : path.parent_path();  // "runs/a/" -> "runs/a"
  if (clean.native() == "~") fail_with_errno("create the folder", clean, ENOENT);
  const fs::path parent = parent_folder(clean);
  if (parent != clean) create_folders(parent);
  if (::mkdir(clean.c_str(), 0777) == 0) return sync_path(parent);
  const int code = errno == EEXIST ? ENOTDIR : errno;
  if (!S_ISDIR(file_mode(clean))) fail_with_errno("create the folder", clean, code);
}

void fill_new_folder(const fs::path& folder, const std::function<void(const fs::path& folder)>& fill) {
  const bool is_new = !path_exists(folder);
  std::error_code unreadable;
  const auto is_leftover = [](const fs::directory_entry& entry) {  // left by a killed program
    return is_temporary_name(entry.path().filename().string());
  };
  check(is_new || (fs::is_directory(folder, unreadable) &&
                   std::ranges::all_of(fs::directory_iterator(folder, unreadable), is_leftover)),
        folder, " exists and is not empty: name a new folder");
  create_folders(folder);
  const fs::path temporary = temporary_for(folder / "new");
  try {
    create_folders(temporary);
    fill(temporary);
    for (const fs::directory_entry& entry : fs::directory_iterator(temporary))
      rename_to_new(AT_FDCWD, entry.path(), folder / entry.path().filename(),
                    folder / entry.path().filename());
    fs::remove(temporary);
    sync_path(folder);
  } catch (...) {
    std::error_code ignored;  // the first failure is the one to report
    fs::remove_all(temporary, ignored);
    if (is_new) fs::remove(folder, ignored);
    throw;
  }
}

TemporaryFolder::TemporaryFolder(std::string_view name) {
  std::error_code failure;
  std::string pattern = (fs::temp_directory_path(failure) / (std::string(name) + "-XXXXXX")).string();
  if (failure || ::mkdtemp(pattern.data()) == nullptr)
    fail("cannot make a temporary folder ", fs::path(pattern), ": ",
         failure ? failure.message() : reason_of(errno), "; set TMPDIR to another folder");
  path_ = pattern;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code kept;
  fs::remove_all(path_, kept);
}

std::string random_hex(int digits) {
  std::string text;
  while (static_cast<int>(text.size()) < digits) {
    unsigned char byte = 0;
    const ssize_t got = ::getrandom(&byte, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1) fail("cannot get random numbers from the system: ", reason_of(errno));
    constexpr std::string_view hex = "0123456789abcdef";
    text += {hex[byte >> 4], hex[byte & 15]};
  }
  text.resize(static_cast<std::size_t>(digits));
  return text;
}

}  // namespace heed
