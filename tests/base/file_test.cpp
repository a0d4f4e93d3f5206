// Files and folders: what is written is whole, and what is held open is not followed elsewhere.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "heed/base/digest.h"
#include "heed/base/open_folder.h"
#include "heed/tests/support.h"

namespace fs = std::filesystem;

namespace {
std::size_t entries_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void leave_out(const char* why) {
  MESSAGE("the rest is left out: ", std::string(why));
}

void make_fifo(const fs::path& path) {
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
}

void make_socket(const fs::path& path) {
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(descriptor);
}

std::atomic<int> interrupted_syncs = 0;  // how many of the next ones a signal interrupts
}  // namespace

/// In place of the system's, for the whole program.
extern "C" int fsync(int descriptor) {
  if (interrupted_syncs == 0) return static_cast<int>(::syscall(SYS_fsync, descriptor));
  --interrupted_syncs;
  errno = EINTR;
  return -1;
}

TEST_CASE("file: what was written is read, zeros and line ends included") {
  const TemporaryFolder folder;
  const std::string content("a\0b\r\n\xff", 6);
  write_file_atomically(folder / "x", content);
  CHECK(read_file(folder / "x") == content);
  write_file_atomically(folder / "x", "");
  CHECK(read_file(folder / "x").empty());
  OpenFolder(folder.path()).append("x", "one ");
  OpenFolder(folder.path()).append("x", "two");
  CHECK(read_file(folder / "x") == "one two");
  CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("file: a signal while a file is synced does not end the writing") {
  const TemporaryFolder folder;
  interrupted_syncs = 2;  // of the file, or of its folder
  write_file_atomically(folder / "file", "a");
  CHECK(interrupted_syncs == 0);
  CHECK(read_file(folder / "file") == "a");
}

TEST_CASE("file: what cannot be looked at is an error, not a file that is not there") {
  const TemporaryFolder folder;
  const fs::path loop = folder / "loop";
  fs::create_symlink("loop", loop);  // ELOOP
  CHECK_FALSE(path_exists(folder / "none"));
  write_file_atomically(folder / "file", "a");
  CHECK_FALSE(path_exists(folder / "file/below"));  // ENOTDIR
  CHECK_ERROR(path_exists(loop), "loop");
  CHECK_THROWS_AS(path_exists(folder / std::string(300, 'a')), Error);  // ENAMETOOLONG
  const OpenFolder open(folder.path());
  CHECK_FALSE(open.has("none"));
  CHECK_THROWS_AS(open.has(std::string(300, 'a')), Error);
}

TEST_CASE("file: large content arrives whole") {
  const TemporaryFolder folder;
  std::string content(3'000'000, 'x');
  for (std::size_t i = 0; i < content.size(); i += 7) content[i] = static_cast<char>(i);
  write_file_atomically(folder / "x", content);
  CHECK(read_file(folder / "x") == content);
}

TEST_CASE("file: a file without a size is read to its end") {
  CHECK(read_file("/proc/self/status").find("Name:") != std::string::npos);
}

TEST_CASE("file: what is not a regular file is refused at once, by what it is") {
  const TemporaryFolder folder;
  make_fifo(folder / "fifo");
  make_socket(folder / "socket");
  CHECK_ERROR(read_file(folder / "fifo"), "fifo\": it is a FIFO");
  CHECK_ERROR(read_file(folder / "socket"), "it is a socket");
  CHECK_ERROR(read_file("/dev/null"), "it is a device");
  CHECK_ERROR(read_file(folder.path()), "it is a folder");
  CHECK_ERROR(file_digest(folder / "fifo"), "it is a FIFO");
}

TEST_CASE("file: more bytes than the limit are refused, from the size or while they come") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "x", "12345");
  CHECK(read_file(folder / "x", 5) == "12345");
  CHECK_ERROR(read_file(folder / "x", 4), "at most 4 are read");
  CHECK_ERROR(read_file("/proc/self/status", 4), "at most 4 are read");
}

TEST_CASE("file: errors name the path and the reason") {
  const TemporaryFolder folder;
  CHECK_ERROR(read_file(folder / "absent"), "absent\": No such file");
  CHECK_ERROR(write_file_atomically(folder / "no/x", "y"), "No such file");
  CHECK_ERROR(write_file_atomically("/dev/full", "x"), "No space left on device");
  FileWriter full("/dev/full");
  CHECK_ERROR(full.write("x"), "/dev/full\": No space left on device");
}

TEST_CASE("file: on a full disk the old content stays and the temporary is removed") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "x", "old");
  {
    const FullDisk full(1000);
    CHECK_ERROR(write_file_atomically(folder / "x", std::string(2000, 'n')), "cannot write");
  }
  CHECK(read_file(folder / "x") == "old");
  CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("file: when the writer throws, the old content stays and the temporary is removed") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "x", "old");
  const auto interrupted = [](FileWriter& file) {
    file.write("half of it");
    fail("interrupted");
  };
  CHECK_THROWS_WITH_AS(write_file_atomically(folder / "x", interrupted), "interrupted", Error);
  CHECK(read_file(folder / "x") == "old");
  CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("file: a symbolic link stays, and the file that it points to is replaced") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "elsewhere");
  write_file_atomically(folder / "elsewhere/real", "old");
  fs::create_symlink("elsewhere/second", folder / "first");
  fs::create_symlink("real", folder / "elsewhere/second");
  write_file_atomically(folder / "first", "new");
  CHECK(fs::is_symlink(folder / "first"));
  CHECK(fs::is_symlink(folder / "elsewhere/second"));
  CHECK(read_file(folder / "elsewhere/real") == "new");

  // What it leads to was never named.
  fs::create_symlink("elsewhere/not_yet", folder / "dangling");
  for (const bool overwrite : {false, true}) {
    CHECK_ERROR(check_output(folder / "dangling", overwrite), "does not exist");
    CHECK_ERROR(write_output(folder / "dangling", "x", overwrite), "does not exist");
  }
  CHECK_FALSE(fs::exists(folder / "elsewhere/not_yet"));

  fs::create_symlink("circle", folder / "circle");
  CHECK_ERROR(write_file_atomically(folder / "circle", "x"), "circle");
}

TEST_CASE("file: a device is written to and never replaced") {
  const TemporaryFolder folder;
  write_file_atomically("/dev/null", "gone");
  CHECK(fs::is_character_file("/dev/null"));
  CHECK_ERROR(write_file_atomically("/dev/full", "x"), "No space left");
  CHECK(fs::is_character_file("/dev/full"));
  if (::mknod((folder / "null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0)
    return leave_out("only root can make a device");
  fs::create_symlink("null", folder / "link");
  for (const char* name : {"null", "link"}) {
    try {
      write_file_atomically(folder / name, "gone");
      write_output(folder / name, "gone", false);
    } catch (const Error& error) {  // where the folder is on a file system without devices
      CHECK(std::string(error.what()).find("Permission denied") != std::string::npos);
    }
    CHECK(fs::is_character_file(folder / "null"));
  }
  CHECK(entries_in(folder.path()) == 2);
}

TEST_CASE("file: a FIFO is written to when it is read, and does not block when it is not") {
  const TemporaryFolder folder;
  make_fifo(folder / "fifo");
  CHECK_ERROR(write_file_atomically(folder / "fifo", "x"), "nobody reads");
  const std::string content(300'000, 'x');  // more than a pipe holds
  std::string got;
  const int reader = ::open((folder / "fifo").c_str(), O_RDONLY | O_NONBLOCK);
  std::jthread thread([&] {
    char part[4096];
    while (got.size() < content.size()) {
      const ssize_t count = ::read(reader, part, sizeof part);
      if (count > 0) got.append(part, static_cast<std::size_t>(count));
    }
  });
  write_file_atomically(folder / "fifo", content);
  thread.join();
  ::close(reader);
  CHECK((got == content));
  CHECK(fs::is_fifo(folder / "fifo"));
}

TEST_CASE("file: a socket or a folder is not an output") {
  const TemporaryFolder folder;
  make_socket(folder / "socket");
  CHECK_ERROR(write_file_atomically(folder / "socket", "x"), "a socket");
  CHECK_ERROR(write_file_atomically(folder.path(), "x"), "it is a folder");
  CHECK(fs::is_socket(folder / "socket"));
}

TEST_CASE("file: an output that is there is refused, unless it may be overwritten") {
  const TemporaryFolder folder;
  check_output(folder / "x", false);
  write_output(folder / "x", "first", false);
  CHECK_ERROR(check_output(folder / "x", false), "x\" exists already; give another");
  CHECK_ERROR(write_output(folder / "x", "second", false), "overwrite=true");
  CHECK(read_file(folder / "x") == "first");
  fs::create_symlink("x", folder / "link");
  CHECK_ERROR(check_output(folder / "link", false), "exists already");
  CHECK_ERROR(write_output(folder / "link", "second", false), "exists");
  check_output(folder / "x", true);
  write_output(folder / "x", "second", true);
  CHECK(read_file(folder / "x") == "second");
  CHECK(entries_in(folder.path()) == 2);

  // Made by somebody else after it was looked for.
  const auto meanwhile = [&](FileWriter& file) {
    write_file_atomically(folder / "raced", "theirs");
    file.write("ours");
  };
  CHECK_ERROR(write_output(folder / "raced", meanwhile, false), "exists");
  CHECK(read_file(folder / "raced") == "theirs");
}

TEST_CASE("file: an output that cannot be made is named before any work") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "file", "x");
  CHECK_ERROR(check_output(folder.path(), true), "it is a folder");
  CHECK_ERROR(write_file_atomically("", "x"), "give the name of a file");
  CHECK_ERROR(check_output(folder / "no/x", false), "there is no folder");
  CHECK_ERROR(check_output(folder / "file/x", false), "there is no folder");
  check_output("/dev/null", false);
  if (::geteuid() == 0) return leave_out("root may write everywhere");
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  CHECK_ERROR(check_output(folder / "x", false), "no file can be made");
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST_CASE("file: the names of temporaries are only ours") {
  const TemporaryFolder folder;
  std::string name;
  write_file_atomically(folder / "a-1.json", [&](FileWriter&) {
    for (const auto& entry : fs::directory_iterator(folder.path())) name = entry.path().filename();
  });
  CAPTURE(name);
  CHECK(is_temporary_name(name));
  CHECK(name.starts_with(".heed-a-1.json-"));
  for (const char* other : {"notes.tmp", ".heed-notes.tmp", ".heed-x-12-0123.tmp", "a-1-0123456789abcdef.tmp",
                            ".heed-x-12-0123456789abcdeg.tmp", ".heed-x--0123456789abcdef.tmp", ".heed-.tmp"})
    CHECK_FALSE(is_temporary_name(other));
  write_file_atomically(folder / std::string(250, 'n'), "a long name");
  CHECK(entries_in(folder.path()) == 2);
}

TEST_CASE("file: beyond the limit on file sizes the error says which limit that is") {
  const TemporaryFolder folder;
  const FullDisk limit(1000);
  CHECK_ERROR(write_file_atomically(folder / "x", std::string(2000, 'n')),
              "at most 1000 bytes; raise that limit (ulimit -f)");
  CHECK_ERROR(OpenFolder(folder.path()).append("y", std::string(2000, 'n')), "ulimit");
}

TEST_CASE("file: a folder is filled whole or not at all, and only where there is nothing") {
  const TemporaryFolder folder;
  const auto two_files = [](const fs::path& path) {
    write_file_atomically(path / "a", "x");
    write_file_atomically(path / "b", std::string(2000, 'n'));
  };
  fs::create_directory(folder / "empty");
  {
    const FullDisk full(1000);
    for (const char* const name : {"new", "empty"})
      CHECK_ERROR(fill_new_folder(folder / name, two_files), "at most 1000 bytes");
  }
  CHECK_FALSE(fs::exists(folder / "new"));
  CHECK(fs::is_empty(folder / "empty"));
  for (const char* const name : {"new", "empty"}) {
    fill_new_folder(folder / name, two_files);
    CHECK(read_file(folder / name / "b").size() == 2000);
    CHECK(entries_in(folder / name) == 2);
    CHECK_ERROR(fill_new_folder(folder / name, two_files), "is not empty");
    CHECK(entries_in(folder / name) == 2);
  }
  fs::path left;  // by a program that was killed
  fill_new_folder(folder / "other", [&](const fs::path& temporary) { left = temporary.filename(); });
  create_folders(folder / "killed" / left);
  fill_new_folder(folder / "killed", two_files);
  CHECK(read_file(folder / "killed" / "b").size() == 2000);
}

TEST_CASE("file: folders are made with those above them") {
  const TemporaryFolder folder;
  create_folders(folder / "a/b/c/");
  create_folders(folder / "a/b");
  CHECK(fs::is_directory(folder / "a/b/c"));
  write_file_atomically(folder / "file", "x");
  CHECK_ERROR(create_folders(folder / "file/x"), "Not a directory");
  CHECK_ERROR(create_folders(folder / "file"), "Not a directory");
}

TEST_CASE("digest: XXH3 of 128 bits, in one piece or in many") {
  CHECK(compute_digest("") == "99aa06d3014798d86001c324468d497f");  // the published value for no bytes
  CHECK(compute_digest("abc") == "06b05ab6733a618578af5f94892f3950");
  Digest digest;
  for (const char* part : {"a", "", "bc"}) digest.add(part);
  CHECK(digest.hex() == compute_digest("abc"));
  const TemporaryFolder folder;
  std::string content(2'500'000, 'x');
  content[1'700'000] = 'y';
  write_file_atomically(folder / "x", content);
  CHECK(file_digest(folder / "x") == compute_digest(content));
  content[1'700'000] = 'z';
  CHECK(file_digest(folder / "x") != compute_digest(content));
  CHECK(random_hex(32) != random_hex(32));
  CHECK(random_hex(5).size() == 5);
}

namespace fs = std::filesystem;

TEST_CASE("open folder: what is written is read, cut, moved and removed") {
  const TemporaryFolder temporary;
  const OpenFolder folder(temporary.path());
  folder.write("a", "one");
  folder.write("a", "two");
  folder.append("b", "three");
  folder.append("b", " four");
  folder.cut("b", 7);
  folder.sync("b");
  CHECK(folder.read("a") == "two");
  CHECK(folder.read("b") == "three f");
  CHECK(file_digest(folder, "b") == compute_digest("three f"));
  const OpenFolder below = folder.make_folder("below");
  folder.make_folder("below").write("c", "");
  folder.move("a", below, "d");
  CHECK(folder.names() == std::vector<std::string>{"b", "below"});
  CHECK(below.names() == std::vector<std::string>{"c", "d"});
  CHECK_ERROR(folder.remove("below"), "not empty");
  below.remove("c");
  below.remove("d");
  folder.remove("below");
  folder.remove("below");  // nothing is there
  CHECK_FALSE(folder.find_folder("below").has_value());
  CHECK(folder.fate().empty());
}

TEST_CASE("open folder: links are refused, and nothing is written through them") {
  const TemporaryFolder temporary;
  fs::create_directories(temporary / "run");
  fs::create_directories(temporary / "home");
  const OpenFolder folder(temporary / "run"), home(temporary / "home");
  home.write("diary", "mine");
  fs::create_symlink("../home/diary", temporary / "run/file");
  fs::create_symlink("../home/new", temporary / "run/dangling");
  fs::create_symlink("../home", temporary / "run/folder");
  const auto refused = [](const auto& action) { CHECK_ERROR(action(), "is a link"); };
  for (const char* name : {"file", "dangling", "folder"}) {
    CAPTURE(name);
    refused([&] { folder.write(name, "x"); });
    refused([&] { folder.append(name, "x"); });
    refused([&] { folder.cut(name, 1); });
    refused([&] { folder.read(name); });
    refused([&] { folder.make_folder(name); });
    CHECK(fs::is_symlink(temporary / "run" / name));
  }
  CHECK(home.names() == std::vector<std::string>{"diary"});
  CHECK(home.read("diary") == "mine");
  folder.write("model", "new");
  folder.move("model", folder, "file");  // replaces the link itself
  CHECK(folder.read("file") == "new");
  CHECK(home.read("diary") == "mine");
}

TEST_CASE("open folder: what is not a file or not a folder is refused by what it is") {
  const TemporaryFolder temporary;
  const OpenFolder folder(temporary.path());
  folder.make_folder("folder");
  REQUIRE(::mkfifo((temporary / "fifo").c_str(), 0600) == 0);
  folder.write("file", "x");
  for (const char* name : {"folder", "fifo"}) {
    CAPTURE(name);
    CHECK_ERROR(folder.write(name, "x"), name);
    CHECK_ERROR(folder.append(name, "x"), "is a");
  }
  CHECK_ERROR(folder.make_folder("file"), "is a file");
  CHECK_THROWS_AS(OpenFolder(temporary / "none"), Error);
  CHECK_ERROR(OpenFolder(temporary / "file"), "Not a directory");
}

TEST_CASE("open folder: wherever it was moved, what is written goes into it and nowhere else") {
  const TemporaryFolder temporary;
  fs::create_directory(temporary / "run");
  const OpenFolder folder(temporary / "run");
  fs::rename(temporary / "run", temporary / "away");
  CHECK(folder.fate() == concat_text("was moved to ", temporary / "away"));
  fs::create_directory(temporary / "run");
  CHECK(folder.fate() == concat_text("was moved to ", temporary / "away"));
  folder.write("a", "x");
  folder.append("b", "y");
  folder.make_folder("c");
  CHECK(fs::is_empty(temporary / "run"));
  CHECK(fs::exists(temporary / "away/c"));
  fs::remove_all(temporary / "away");
  CHECK(folder.fate() == "was removed");
  CHECK(folder.place().empty());
  CHECK_THROWS_AS(folder.write("a", "x"), Error);
  CHECK(fs::is_empty(temporary / "run"));
}

TEST_CASE("a temporary folder is its user's alone, and goes with all that is in it") {
  fs::path kept;
  {
    const TemporaryFolder first("mine"), second("mine");
    kept = first.path();
    CHECK(first.path() != second.path());
    CHECK(first.path().filename().string().starts_with("mine-"));
    CHECK(fs::status(kept).permissions() == fs::perms::owner_all);
    fs::create_directories(first / "a" / "b");
    write_file_atomically(first / "a" / "b" / "c", "text");
  }
  CHECK(!path_exists(kept));
  CHECK_ERROR(TemporaryFolder("no/such folder"), "cannot make a temporary folder");
}

TEST_CASE("open folder: on a full disk the old content stays and no temporary file does") {
  const TemporaryFolder temporary;
  const OpenFolder folder(temporary.path());
  folder.write("a", "old");
  const FullDisk full(1000);
  CHECK_ERROR(folder.write("a", std::string(2000, 'n')), "ulimit");
  CHECK(folder.names() == std::vector<std::string>{"a"});
  CHECK(folder.read("a") == "old");
}
