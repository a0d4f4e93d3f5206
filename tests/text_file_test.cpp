#include "heed/data/text_file.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <filesystem>

#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/core/unicode.h"
#include "heed/data/parallel_text.h"

using namespace heed;
using Lines = std::vector<std::string>;

namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// A folder that is gone at the end of the test.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "heed_text_file_test";
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("Lines end in LF or CRLF, and the last may lack it") {
  CHECK(parse_lines("a\nb\n", "f") == Lines{"a", "b"});
  CHECK(parse_lines("a\r\nb", "f") == Lines{"a", "b"});
  CHECK(parse_lines("\n\n", "f") == Lines{"", ""});
  CHECK(parse_lines("a\rb\u2028c\n", "f") == Lines{"a\rb\u2028c"});
  CHECK(parse_lines("\xEF\xBB\xBFü\n", "f") == Lines{"ü"});
}

TEST_CASE("A file without text is refused") {
  CHECK_THROWS_WITH_AS(parse_lines("", "f"), "f: the file is empty", Error);
  CHECK_THROWS_WITH_AS(parse_lines("\xEF\xBB\xBF", "f"), "f: the file is empty", Error);
  CHECK_THROWS_WITH_AS(parse_lines(gzip(""), "f"), "f: the file is empty", Error);
}

TEST_CASE("Text that is not UTF-8 is refused with its line, never guessed at") {
  CHECK_THROWS_WITH_AS(parse_lines("ok\nna\xefve\n", "in.txt"),
                       "in.txt:2: byte 3 of the line (0xEF) is not UTF-8; if the file is in another "
                       "encoding, name it (latin-1 or cp1252)",
                       Error);
  // overlong, surrogate, above U+10FFFF, cut off
  for (const char* bad :
       {"\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xFF"})
    CHECK_THROWS_AS(parse_lines(bad, "f"), Error);
  CHECK(parse_lines("\xF4\x8F\xBF\xBF", "f").size() == 1);
}

TEST_CASE("Named encodings become UTF-8") {
  CHECK(parse_lines("na\xefve \x80", "f", Encoding::latin1) == Lines{"naïve \u0080"});
  CHECK(parse_lines("na\xefve \x80 \x93q\x94", "f", Encoding::cp1252) == Lines{"naïve € “q”"});
  CHECK_THROWS_WITH_AS(parse_lines("a\n\x81", "f", Encoding::cp1252),
                       "f:2: the byte 0x81 stands for nothing in cp1252", Error);
  CHECK(encoding_from_name("latin-1") == Encoding::latin1);
  CHECK_THROWS_WITH_AS(encoding_from_name("utf-16"),
                       "unknown text encoding \"utf-16\": use utf-8, latin-1 or cp1252", Error);
}

TEST_CASE("Gzip files of one or several members are unpacked") {
  CHECK(parse_lines(gzip("a\nb\n"), "f") == Lines{"a", "b"});
  CHECK(parse_lines(gzip("a\nb") + gzip("c\n"), "f") == Lines{"a", "bc"});
  const std::string large(300'000, 'x');
  CHECK(parse_lines(gzip(large), "f") == Lines{large});
}

TEST_CASE("Damaged gzip files are refused") {
  const std::string whole = gzip("some text that is long enough to be cut\n");
  for (std::size_t length = 2; length < whole.size(); ++length)
    CHECK_THROWS_AS(parse_lines(std::string_view(whole).substr(0, length), "f"), Error);
  CHECK_THROWS_WITH_AS(parse_lines(whole + "tail", "f"), "f: the gzip data is followed by 4 other bytes",
                       Error);
  std::string flipped = whole;
  flipped[whole.size() - 6] = static_cast<char>(flipped[whole.size() - 6] ^ 1);  // inside the checksum
  CHECK_THROWS_AS(parse_lines(flipped, "f"), Error);
}

TEST_CASE("What the fuzzer starts from and has found gives an Error or valid UTF-8") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(HEED_SOURCE_DIR) /
                                                               "tests/fuzz/corpus/text")) {
    CAPTURE(entry.path().string());
    const std::string bytes = read_file(entry.path());
    for (const Encoding encoding : {Encoding::utf8, Encoding::latin1, Encoding::cp1252}) {
      try {
        for (const auto& line : parse_lines(bytes, "corpus", encoding))
          CHECK(unicode::find_invalid(line) == std::string::npos);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).starts_with("corpus:"));
      }
    }
    ++files;
  }
  CHECK(files > 0);
}

TEST_CASE("Files are read by path, and errors name it") {
  const Folder folder;
  const auto source = folder.path / "a.txt", target = folder.path / "b.txt.gz";
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
  for (const auto& missing : {folder.path / "missing.txt", folder.path}) {
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
  CHECK(parse_text("one\r\n\ntwo", "t") == "one\r\n\ntwo");
  CHECK(parse_text("\xEF\xBB\xBFone\n", "t") == "one\n");
  CHECK(parse_text("caf\xe9\n", "t", Encoding::latin1) == "café\n");
  CHECK_THROWS_WITH_AS(parse_text("", "t"), "t: the file is empty", Error);
  CHECK_THROWS_AS(parse_text("one\ncaf\xe9", "t"), Error);
  try {
    parse_text("one\ncaf\xe9", "t");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).starts_with("t:2: byte 4"));
  }
}
