#include "heed/base/open_folder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "full_disk.h"
#include "heed/base/digest.h"
#include "heed/base/error.h"
#include "temporary_folder.h"

using namespace heed;
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
  CHECK(digest_of_file(folder, "b") == digest_of("three f"));
  const OpenFolder below = folder.make_folder("below");
  folder.make_folder("below").write("c", "");
  folder.move("a", below, "d");
  CHECK(folder.names() == std::vector<std::string>{"b", "below"});
  CHECK(below.names() == std::vector<std::string>{"c", "d"});
  CHECK_THROWS_WITH_AS(folder.remove("below"), doctest::Contains("not empty"), Error);
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
  const auto refused = [](const auto& action) {
    CHECK_THROWS_WITH_AS(action(), doctest::Contains("is a link"), Error);
  };
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

TEST_CASE("open folder: what is no file or no folder is refused by what it is") {
  const TemporaryFolder temporary;
  const OpenFolder folder(temporary.path());
  folder.make_folder("folder");
  REQUIRE(::mkfifo((temporary / "fifo").c_str(), 0600) == 0);
  folder.write("file", "x");
  for (const char* name : {"folder", "fifo"}) {
    CAPTURE(name);
    CHECK_THROWS_WITH_AS(folder.write(name, "x"), doctest::Contains(name), Error);
    CHECK_THROWS_WITH_AS(folder.append(name, "x"), doctest::Contains("is a"), Error);
  }
  CHECK_THROWS_WITH_AS(folder.make_folder("file"), doctest::Contains("is a file"), Error);
  CHECK_THROWS_AS(OpenFolder(temporary / "none"), Error);
  CHECK_THROWS_WITH_AS(OpenFolder(temporary / "file"), doctest::Contains("Not a directory"), Error);
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

TEST_CASE("open folder: on a full disk the old content stays and no temporary file does") {
  const TemporaryFolder temporary;
  const OpenFolder folder(temporary.path());
  folder.write("a", "old");
  const FullDisk full(1000);
  CHECK_THROWS_WITH_AS(folder.write("a", std::string(2000, 'n')), doctest::Contains("ulimit"), Error);
  CHECK(folder.names() == std::vector<std::string>{"a"});
  CHECK(folder.read("a") == "old");
}
