#include "heed/data/text_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <thread>

#include "cpu_seconds.h"
#include "gzip_support.h"
#include "heed/base/error.h"
#include "temporary_folder.h"

using namespace heed;
namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

namespace {

fs::path write(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

/// All lines that are left; errors stand as "!message".
Texts rest_of(LineReader& reader, std::size_t limit = 100) {
  Texts texts;
  for (auto lines = reader.next(limit); !lines.empty(); lines = reader.next(limit)) {
    CHECK(lines.size() <= limit);
    for (const InputLine& line : lines) texts.push_back(line.error.empty() ? line.text : "!" + line.error);
  }
  return texts;
}

Texts lines_of(const std::string& content, const TextOptions& options = {}) {
  const TemporaryFolder folder;
  LineReader reader(write(folder / "input", content), options);
  return rest_of(reader);
}

/// A pipe whose reading end has a name.
class Pipe {
 public:
  Pipe() { REQUIRE(::pipe(ends_) == 0); }
  ~Pipe() {
    ::close(ends_[0]);
    close();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  std::string name() const { return "/dev/fd/" + std::to_string(ends_[0]); }
  int writing_end() const { return ends_[1]; }
  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(ends_[1], bytes.data(), bytes.size());
      REQUIRE(written > 0);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void close() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace

TEST_CASE("Lines of input end as those of read_lines do") {
  CHECK(lines_of("a\r\nb\n\nc") == Texts{"a", "b", "", "c"});
  CHECK(lines_of("\xEF\xBB\xBFü\n") == Texts{"ü"});
  CHECK(lines_of("\xEF\xBB\xBF").empty());
  CHECK(lines_of("").empty());
  CHECK(lines_of(std::string("a\0b\n", 4)) == Texts{std::string("a\0b", 3)});
  CHECK(lines_of("na\xefve\n\x80", {.encoding = Encoding::cp1252}) == Texts{"naïve", "€"});
  CHECK(lines_of(gzip("one\ntwo\n") + gzip("three")) == Texts{"one", "two", "three"});
  CHECK(lines_of("\x1f") == Texts{"\x1f"});
}

TEST_CASE("At most so many lines are handed out as are asked for, and they are counted") {
  const TemporaryFolder folder;
  LineReader reader(write(folder / "input", "1\n2\n3\n4\n5\n"));
  CHECK(reader.line_number() == 0);
  CHECK(reader.next(2).size() == 2);
  CHECK(reader.line_number() == 2);
  CHECK(rest_of(reader, 2) == Texts{"3", "4", "5"});
  CHECK(reader.line_number() == 5);
}

TEST_CASE("A line that is no text costs that line alone") {
  const Texts lines = lines_of("one\ncaf\xe9\nthree\n");
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "one");
  CHECK(lines[1] ==
        "!byte 4 of the line (0xE9) is not UTF-8; if the file is in another encoding, name it (latin-1 or "
        "cp1252)");
  CHECK(lines[2] == "three");

  const TemporaryFolder folder;
  LineReader reader(write(folder / "input", "a\xff\xff\nb\n"), {.bad_bytes = BadBytes::replace});
  CHECK(rest_of(reader) == Texts{"a\uFFFD\uFFFD", "b"});
  CHECK(reader.replaced() == 2);
}

TEST_CASE("Lines are handed out as they come") {
  for (const bool packed : {false, true}) {
    CAPTURE(packed);
    Pipe pipe;
    LineReader reader(pipe.name());
    const auto send = [&](const std::string& text) { pipe.write(packed ? gzip(text) : text); };
    send("one\ntw");
    auto lines = reader.next(100);  // would wait for ever if it waited for more
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].text == "one");
    send("o\nthree\n");
    lines = reader.next(100);
    // Of a gzip file the members come one by one, of a pipe what is there comes together.
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].text == "two");
    CHECK(lines[1].text == "three");
    auto waiting = std::async(std::launch::async, [&] { return reader.next(100); });
    send("four");
    pipe.close();
    lines = waiting.get();
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].text == "four");
    CHECK(reader.next(100).empty());
    CHECK(reader.line_number() == 4);
  }
}

TEST_CASE("A named pipe is read as input") {
  const TemporaryFolder folder;
  const fs::path path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(path) << "one\ntwo\n"; });
  LineReader reader(path);
  CHECK(rest_of(reader) == Texts{"one", "two"});
  writer.join();
}

TEST_CASE("A long line takes time by its length, not by the square of it") {
  Pipe pipe;
  // The smallest pipe there is: to look at the whole line again for each piece would take minutes.
  REQUIRE(::fcntl(pipe.writing_end(), F_SETPIPE_SZ, 4096) >= 0);
  const std::string line(20'000'000, 'x');
  std::thread writer([&] {
    pipe.write(line);
    pipe.write("\nnext");
    pipe.close();
  });
  LineReader reader(pipe.name());
  const double begin = cpu_seconds();
  const auto lines = reader.next(1);
  const double seconds = cpu_seconds() - begin;
  writer.join();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].text == line);
  CHECK(seconds < 2);
  CHECK(rest_of(reader) == Texts{"next"});
}

TEST_CASE("A line beyond the limit is skipped over") {
  const std::size_t most = std::size_t{64} << 20;
  const TemporaryFolder folder;
  {
    std::ofstream file(folder / "input", std::ios::binary);
    file << "one\n" << std::string(most, 'x') << "\n" << std::string(most - 1, 'y') << "\nlast";
  }
  LineReader reader(folder / "input");
  CHECK(rest_of(reader, 1).size() == 4);

  CHECK(lines_of("12345\n1234\n12345", {.max_line_bytes = 5}) ==
        Texts{"!the line is longer than the 5 bytes that data.max_line_bytes allows; is this a text with "
              "line ends?",
              "1234", "12345"});
  CHECK(lines_of("\n123456", {.max_line_bytes = 5})[1].starts_with("!the line is longer"));
  LineReader again(folder / "input");
  const auto lines = again.next(2);
  CHECK(lines[1].error.find("67108864 bytes") != std::string::npos);
  CHECK(again.next(1)[0].text.size() == most - 1);
}

TEST_CASE("What cannot be read is refused, after the lines before it") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(LineReader(folder / "none"), doctest::Contains("none: cannot be read: No such file"),
                       Error);
  CHECK_THROWS_WITH_AS(LineReader(folder.path()), doctest::Contains("this is a folder"), Error);
  const std::string whole = gzip("one\ntwo\n");
  LineReader reader(write(folder / "damaged", whole + "tail"));
  CHECK(reader.next(100).size() == 2);
  CHECK_THROWS_WITH_AS(reader.next(100), doctest::Contains("followed by 4 other bytes"), Error);
  CHECK_THROWS_AS(reader.next(100), Error);
}
