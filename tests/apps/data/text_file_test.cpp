#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/unicode.h"
#include "heed/tests/support.h"
#include "heed/tests/temporary_folder.h"
#include "heed/text/safetensors.h"
#include "heed/text/tokenizer.h"

using namespace heed;
using namespace heed::test;

using Lines = std::vector<std::string>;

namespace {

/// What read_text_by_lines() makes of a file with these bytes.
std::string text_of(std::string_view bytes, const TextOptions& options = {}, ReadReport* report = nullptr) {
  const TemporaryFolder folder;
  const auto path = folder / "text";
  write_file_atomically(path, bytes);
  std::string text;
  read_text_by_lines(
      path, options, [&](std::string_view line) { text += line; }, report);
  return text;
}

}  // namespace

TEST_CASE("Lines end in LF or CRLF, and the last may lack it") {
  CHECK(read_lines({"a\nb\n", "f"}) == Lines{"a", "b"});
  CHECK(read_lines({"a\r\nb", "f"}) == Lines{"a", "b"});
  CHECK(read_lines({"\n\n", "f"}) == Lines{"", ""});
  CHECK(read_lines({"a\rb\u2028c\n", "f"}) == Lines{"a\rb\u2028c"});
  CHECK(read_lines({"\xEF\xBB\xBFü\n", "f"}) == Lines{"ü"});
}

TEST_CASE("A file without text is refused") {
  CHECK_THROWS_WITH_AS(read_lines({"", "f"}), "f: the file is empty", Error);
  CHECK_THROWS_WITH_AS(read_lines({"\xEF\xBB\xBF", "f"}), "f: the file is empty", Error);
  CHECK_THROWS_WITH_AS(read_lines({gzip(""), "f"}), "f: the file is empty", Error);
}

TEST_CASE("Text that is not UTF-8 is refused with its line, never guessed at") {
  CHECK_THROWS_WITH_AS(read_lines({"ok\nna\xefve\n", "in.txt"}),
                       "in.txt:2: byte 3 of the line (0xEF) is not UTF-8; if the file is in another "
                       "encoding, name it (latin-1 or cp1252)",
                       Error);
  // overlong, surrogate, above U+10FFFF, cut off
  for (const char* bad :
       {"\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xFF"})
    CHECK_THROWS_AS(read_lines({bad, "f"}), Error);
  CHECK(read_lines({"\xF4\x8F\xBF\xBF", "f"}).size() == 1);
}

TEST_CASE("Named encodings become UTF-8") {
  CHECK(read_lines({"na\xefve \x80", "f"}, {.encoding = Encoding::latin1}) == Lines{"naïve \u0080"});
  CHECK(read_lines({"na\xefve \x80 \x93q\x94", "f"}, {.encoding = Encoding::cp1252}) == Lines{"naïve € “q”"});
  CHECK_THROWS_WITH_AS(read_lines({"a\n\x81", "f"}, {.encoding = Encoding::cp1252}),
                       "f:2: the byte 0x81 is undefined in cp1252", Error);
}

TEST_CASE("Gzip files of one or several members are unpacked") {
  CHECK(read_lines({gzip("a\nb\n"), "f"}) == Lines{"a", "b"});
  CHECK(read_lines({gzip("a\nb") + gzip("c\n"), "f"}) == Lines{"a", "bc"});
  const std::string large(300'000, 'x');
  CHECK(read_lines({gzip(large), "f"}) == Lines{large});
}

TEST_CASE("Damaged gzip files are refused") {
  const std::string whole = gzip("some text that is long enough to be cut\n");
  for (std::size_t length = 2; length < whole.size(); ++length)
    CHECK_THROWS_AS(read_lines({std::string_view(whole).substr(0, length), "f"}), Error);
  CHECK_THROWS_WITH_AS(read_lines({whole + "tail", "f"}), "f: the gzip data is followed by 4 other bytes",
                       Error);
  std::string flipped = whole;
  flipped[whole.size() - 6] = static_cast<char>(flipped[whole.size() - 6] ^ 1);  // inside the checksum
  CHECK_THROWS_AS(read_lines({flipped, "f"}), Error);
}

TEST_CASE("Files are read by path, and errors name it") {
  const TemporaryFolder folder;
  const auto source = folder / "a.txt", target = folder / "b.txt.gz";
  write_file_atomically(source, "eins\nzwei\n");
  write_file_atomically(target, gzip("one\ntwo\n"));
  const ParallelText text = read_parallel_text(source, target);
  CHECK(text.source == Lines{"eins", "zwei"});
  CHECK(text.target == Lines{"one", "two"});

  write_file_atomically(target, "one\ntwo\nthree\n");
  CHECK_THROWS_WITH_AS(read_parallel_text(source, target),
                       ("the two files do not belong together: " + source.string() + " has 2 lines, " +
                        target.string() + " has 3")
                           .c_str(),
                       Error);
  for (const auto& missing : {folder / "missing.txt", folder.path()}) {
    try {
      read_lines(missing);
      FAIL("no error for " << missing);
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find(missing.string()) != std::string::npos);
    }
  }
}

TEST_CASE("Ill-formed sequences become one U+FFFD each") {
  CHECK(unicode::replace_invalid("a\xF0\x9F\x98z") == "a\uFFFDz");
  CHECK(unicode::replace_invalid("\xE2\x82\xE2\x82\xAC\xFF") == "\uFFFD€\uFFFD");
  CHECK(unicode::replace_invalid("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("Lower case and normalisation go by Unicode") {
  using unicode::FinalSigma;
  CHECK(unicode::lower_case("ÄÖÜ ẞ İ ΟΔΟΣ", FinalSigma::medial) == "äöü ß i\u0307 οδοσ");
  CHECK(unicode::lower_case("ΟΔΟΣ ΑΣ.Β Σ ΑΣ'", FinalSigma::final) == "οδος ασ.β σ ας'");
  CHECK(unicode::lower_case("A\xFF"
                            "B",
                            FinalSigma::medial) ==
        "a\xFF"
        "b");
  CHECK(unicode::normalize("e\u0301", unicode::Form::nfc) == "é");
  CHECK(unicode::normalize("é", unicode::Form::nfd) == "e\u0301");
  CHECK(unicode::normalize("ﬁ\xFF①", unicode::Form::nfkc) ==
        "fi\xFF"
        "1");
}

TEST_CASE("A whole text keeps its line ends, in the encoding that was named") {
  CHECK(text_of("one\r\n\ntwo") == "one\r\n\ntwo");
  CHECK(text_of("\xEF\xBB\xBFone\n") == "one\n");
  CHECK(text_of("caf\xe9\n", {.encoding = Encoding::latin1}) == "café\n");
  CHECK(error_of([] { text_of(""); }).ends_with("text: the file is empty"));
  CHECK(error_of([] { text_of("one\ncaf\xe9"); }).find("text:2: byte 4") != std::string::npos);
}

TEST_CASE("Invalid bytes can be replaced, and are counted") {
  const TextOptions replace{.bad_bytes = BadBytes::replace};
  ReadReport report;
  CHECK(read_lines({"a\xff\xe2\x82\nb\n\xc3(\n", "f"}, replace, &report) ==
        Lines{"a\uFFFD\uFFFD", "b", "\uFFFD("});
  CHECK(report.replaced == 4);  // one and two in the first line, one in the third
  CHECK(text_of("\x81\x80", {.encoding = Encoding::cp1252, .bad_bytes = BadBytes::replace}, &report) ==
        "\uFFFD€");
  CHECK(report.replaced == 5);
  CHECK(read_lines({"\xff", "f"}, replace) == Lines{"\uFFFD"});  // without a report, too
}

TEST_CASE("A NUL is a character, and nothing behind it is lost") {
  using namespace std::string_literals;
  CHECK(read_lines({"a\0b\nc\n"s, "f"}) == Lines{"a\0b"s, "c"});
  CHECK(text_of("a\0b"s, {.encoding = Encoding::cp1252}) == "a\0b"s);
}

TEST_CASE("A file beyond the limit is refused before it is read") {
  const TemporaryFolder folder;
  const auto path = folder / "large.txt";
  write_file_atomically(path, "x");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // a hole, which takes no room on the disk
  const std::string error = error_of([&] { read_lines(path); });
  CHECK(error.starts_with(path.string() + ": the file has 1099511627776 bytes, more than the 4294967296"));
  CHECK(error.find("data.max_bytes") != std::string::npos);
  CHECK(read_lines({"12345", "f"}, {.max_bytes = 5}).size() == 1);
  CHECK_THROWS_AS(read_lines({"123456", "f"}, {.max_bytes = 5}), Error);
  CHECK_THROWS_AS(text_of("123456", {.max_bytes = 5}), Error);
}

TEST_CASE("A small gzip file that unpacks to much is refused in little memory") {
  std::string lines;
  while (lines.size() < (1 << 20)) lines += "the same line again and again\n";
  const std::string member = gzip(lines);
  std::string bomb;
  for (int i = 0; i < 600; ++i) bomb += member;
  REQUIRE(bomb.size() < 4'000'000);
  const TextOptions options{.max_bytes = 512 << 20};
  const std::int64_t before = peak_memory();
  for (const bool by_lines : {true, false}) {
    const std::string error = error_of([&] {
      if (by_lines)
        read_lines({bomb, "f.gz"}, options);
      else
        text_of(bomb, options);
    });
    CHECK(error.ends_with(
        ": the gzip file of " + std::to_string(bomb.size()) +
        " bytes unpacks to more than the 536870912 bytes that data.max_bytes allows; raise that setting "
        "if the file is meant to be so large"));
  }
  CHECK_THROWS_AS(gunzip(bomb, "f.gz", 512 << 20), Error);
  CHECK(peak_memory() - before < (64 << 20));
  // What lies within the limit is read, however well it packs.
  CHECK(text_of(member, {.max_bytes = lines.size()}) == lines);
  CHECK_THROWS_AS(text_of(member, {.max_bytes = lines.size() - 1}), Error);
}

TEST_CASE("A line beyond the limit is refused with its number") {
  const TextOptions options{.max_line_bytes = 4};
  CHECK(read_lines({"123\n1234", "f"}, options) == Lines{"123", "1234"});
  for (const std::string text : {"1\n1234\n", "1\n12345"}) {
    for (const std::string& bytes : {text, gzip(text)})
      CHECK_THROWS_WITH_AS(
          read_lines({bytes, "f"}, options),
          "f:2: the line is longer than the 4 bytes that data.max_line_bytes allows; is this a text "
          "with line ends?",
          Error);
  }
  CHECK(text_of("12345678", options) == "12345678");  // a text is no list of lines
}

TEST_CASE("Marks that follow each other are put in order in little time") {
  CHECK(unicode::normalize("q\u0307\u0323", unicode::Form::nfc) == "q\u0323\u0307");
  CHECK(unicode::normalize("e\u0323\u0301", unicode::Form::nfc) == "ẹ\u0301");
  CHECK(unicode::normalize("가", unicode::Form::nfd) == "\u1100\u1161");
  CHECK(unicode::normalize("\u1100\u1161", unicode::Form::nfc) == "가");
  CHECK(unicode::normalize("\uFDFA", unicode::Form::nfkd).size() ==
        33);  // the longest there is: 18 characters
  std::string above, below, text = "q";
  for (int i = 0; i < 200'000; ++i) {
    text += "\u0307\u0323";
    above += "\u0307";
    below += "\u0323";
  }
  const double begin = cpu_seconds();
  CHECK((unicode::normalize(text, unicode::Form::nfd) == "q" + below + above));
  CHECK(cpu_seconds() - begin < 5);  // the square of them takes minutes
}

TEST_CASE("Readers refuse at once what is not a regular file") {
  const TemporaryFolder folder;
  const auto pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  using Reader = void (*)(const std::filesystem::path&);
  const std::vector<Reader> readers = {
      [](const std::filesystem::path& path) { read_lines(path); },
      [](const std::filesystem::path& path) { read_text_by_lines(path, {}, [](std::string_view) {}); },
      [](const std::filesystem::path& path) { read_csv(path, [](TableRow&) {}); },
      [](const std::filesystem::path& path) { read_tsv(path, [](TableRow&) {}); },
      [](const std::filesystem::path& path) { read_labelled_text(path, {.format = "lines"}); },
      [](const std::filesystem::path& path) { Tokenizer::load(path); },
      [](const std::filesystem::path& path) { load_safetensors(path); },
  };
  // The other end is opened and closed now and then, so that a reader that does wait for it fails, but does
  // not hang.
  std::atomic<bool> done = false;
  std::thread other_end([&] {
    while (!done) {
      if (const int end = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK); end >= 0) ::close(end);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  for (std::size_t r = 0; r < readers.size(); ++r) {
    CAPTURE(r);
    for (const std::filesystem::path& path : {pipe, std::filesystem::path("/dev/null"), folder.path()}) {
      const std::string error = error_of([&] { readers[r](path); });
      CHECK(error.find(path.string()) != std::string::npos);
      CHECK(error.find("regular file is needed") != std::string::npos);
    }
  }
  done = true;
  other_end.join();
}

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

namespace {

/// All lines that are left; errors stand as "!message".
Texts rest_of(LineReader& reader, std::size_t limit = 100) {
  Texts texts;
  for (auto lines = reader.next(limit); !lines.empty(); lines = reader.next(limit)) {
    CHECK(lines.size() <= limit);
    for (const InputLine& line : lines) texts.push_back(line.error.empty() ? line.text : "!" + line.error);
  }
  return texts;
}

Texts input_lines(const std::string& content, const TextOptions& options = {}) {
  const TemporaryFolder folder;
  LineReader reader(write_content(folder / "input", content), options);
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
  CHECK(input_lines("a\r\nb\n\nc") == Texts{"a", "b", "", "c"});
  CHECK(input_lines("\xEF\xBB\xBFü\n") == Texts{"ü"});
  CHECK(input_lines("\xEF\xBB\xBF").empty());
  CHECK(input_lines("").empty());
  CHECK(input_lines(std::string("a\0b\n", 4)) == Texts{std::string("a\0b", 3)});
  CHECK(input_lines("na\xefve\n\x80", {.encoding = Encoding::cp1252}) == Texts{"naïve", "€"});
  CHECK(input_lines(gzip("one\ntwo\n") + gzip("three")) == Texts{"one", "two", "three"});
  CHECK(input_lines("\x1f") == Texts{"\x1f"});
}

TEST_CASE("An input whose lines end in CR alone is an error, not one line") {
  const Texts refused = {"!its lines end in CR alone; convert it so that they end in LF (tr '\\r' '\\n')"};
  CHECK(input_lines("one\rtwo\rthree\r") == refused);
  CHECK(input_lines("one\rtwo") == refused);
  CHECK(input_lines("one\rtwo\nthree\r") == Texts{"one\rtwo", "three"});
  CHECK(input_lines("one\r") == Texts{"one"});
}

TEST_CASE("At most the requested number of lines is returned, and lines are counted") {
  const TemporaryFolder folder;
  LineReader reader(write_content(folder / "input", "1\n2\n3\n4\n5\n"));
  CHECK(reader.line_number() == 0);
  CHECK(reader.next(2).size() == 2);
  CHECK(reader.line_number() == 2);
  CHECK(rest_of(reader, 2) == Texts{"3", "4", "5"});
  CHECK(reader.line_number() == 5);
}

TEST_CASE("A line that is not text fails alone") {
  const Texts lines = input_lines("one\ncaf\xe9\nthree\n");
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "one");
  CHECK(lines[1] ==
        "!byte 4 of the line (0xE9) is not UTF-8; if the file is in another encoding, name it (latin-1 or "
        "cp1252)");
  CHECK(lines[2] == "three");

  const TemporaryFolder folder;
  LineReader reader(write_content(folder / "input", "a\xff\xff\nb\n"), {.bad_bytes = BadBytes::replace});
  CHECK(rest_of(reader) == Texts{"a\uFFFD\uFFFD", "b"});
  CHECK(reader.replaced() == 2);
}

TEST_CASE("Lines are returned as they arrive") {
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

  CHECK(input_lines("12345\n1234\n12345", {.max_line_bytes = 5}) ==
        Texts{"!the line is longer than the 5 bytes that data.max_line_bytes allows; is this a text with "
              "line ends?",
              "1234", "12345"});
  CHECK(input_lines("\n123456", {.max_line_bytes = 5})[1].starts_with("!the line is longer"));
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
  LineReader reader(write_content(folder / "damaged", whole + "tail"));
  CHECK(reader.next(100).size() == 2);
  CHECK_THROWS_WITH_AS(reader.next(100), doctest::Contains("followed by 4 other bytes"), Error);
  CHECK_THROWS_AS(reader.next(100), Error);
}

TEST_CASE("Zeros behind gzip members are padding, and nothing may follow them") {
  const std::string padding(1000, '\0');
  CHECK(read_lines({gzip("a\n") + gzip("b\n") + padding, "f"}) == Lines{"a", "b"});
  CHECK_THROWS_WITH_AS(read_lines({gzip("a\n") + padding + gzip("b\n"), "f"}),
                       doctest::Contains("the gzip data is followed by"), Error);
}

TEST_CASE("A text whose lines end in CR alone is refused, in place of one long line") {
  CHECK_THROWS_WITH_AS(read_lines({"a\rb\rc\r", "f"}), doctest::Contains("f:1: its lines end in CR alone"),
                       Error);
  CHECK(read_lines({"a\r", "f"}) == Lines{"a"});
  CHECK(read_lines({"a\rb\n", "f"}) == Lines{"a\rb"});
}
