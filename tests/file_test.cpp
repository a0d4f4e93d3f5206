#include "heed/core/file.h"

#include <doctest/doctest.h>

#include "full_disk.h"
#include "heed/core/error.h"
#include "temporary_folder.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {
std::size_t entries_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}
}  // namespace

TEST_CASE("file: what was written is read, zeros and line ends included") {
  const TemporaryFolder folder;
  const std::string content("a\0b\r\n\xff", 6);
  write_file_atomically(folder / "x", content);
  CHECK(read_file(folder / "x") == content);
  write_file_atomically(folder / "x", "");
  CHECK(read_file(folder / "x").empty());
  append_to_file(folder / "x", "one ");
  append_to_file(folder / "x", "two");
  CHECK(read_file(folder / "x") == "one two");
  CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("file: large content arrives whole") {
  const TemporaryFolder folder;
  std::string content(3'000'000, 'x');
  for (std::size_t i = 0; i < content.size(); i += 7) content[i] = static_cast<char>(i);
  write_file_atomically(folder / "x", content);
  CHECK(read_file(folder / "x") == content);
}

TEST_CASE("file: a file without a size, such as a device, is read to its end") {
  CHECK(read_file("/dev/null").empty());
  CHECK(read_file("/proc/self/status").find("Name:") != std::string::npos);
}

TEST_CASE("file: errors name the path and the reason") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(read_file(folder / "absent"), doctest::Contains("absent\": No such file"), Error);
  CHECK_THROWS_WITH_AS(read_file(folder.path()), doctest::Contains("Is a directory"), Error);
  CHECK_THROWS_WITH_AS(write_file_atomically(folder / "no/x", "y"), doctest::Contains("No such file"), Error);
  CHECK_THROWS_WITH_AS(append_to_file("/dev/full", "x"), doctest::Contains("No space left on device"), Error);
  FileWriter full("/dev/full");
  CHECK_THROWS_WITH_AS(full.write("x"), doctest::Contains("/dev/full\": No space left on device"), Error);
}

TEST_CASE("file: on a full disk the old content stays and the temporary is removed") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "x", "old");
  {
    const FullDisk full(1000);
    CHECK_THROWS_WITH_AS(write_file_atomically(folder / "x", std::string(2000, 'n')),
                         doctest::Contains("cannot write"), Error);
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
