// Texts larger than memory, and what readers of data take of it: beside the texts themselves at most 40 bytes
// for each line, nothing for what follows a bad line, and nothing for blank lines.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "heed/apps/data/formats.h"
#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/large_text.h"
#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/core/random.h"
#include "heed/tests/support.h"
#include "heed/tests/temporary_folder.h"
#include "heed/text/tokenizer.h"

using namespace heed;
using namespace heed::test;

namespace {

namespace fs = std::filesystem;

// More than two pieces of 16 MB, or more than one. A square takes minutes.
constexpr std::size_t large_bytes = (test::sanitized ? 17 : 50) << 20;
constexpr double most_cpu_seconds = test::sanitized ? 100 : 20;

std::string whole(const LargeText& text) {
  std::string all;
  for (std::size_t i = 0; i < text.size(); ++i) all += text[i].text;
  return all;
}

/// Lines of words of two alphabets, some of them empty or of spaces alone.
std::string some_lines(std::size_t bytes) {
  const std::vector<std::string> words = {"two", " ", "", "\xc3\xa9t\xc3\xa9", "words,", "12", "\t"};
  std::string text;
  for (std::uint64_t i = 0; text.size() < bytes; ++i)
    text.append(words[random_word({1, 0, 0}, i) % words.size()]).append(i % 5 == 4 ? "\n" : " ");
  return text;
}

}  // namespace

TEST_CASE("large text: what goes to a file is read back as what stays in memory") {
  const std::string text = some_lines(3 << 20);
  for (const std::int64_t memory : {std::int64_t{0}, std::int64_t{1} << 20, default_memory_bytes}) {
    Spool spool(memory);
    std::size_t at = 0;
    for (std::uint64_t i = 0; at < text.size(); ++i) {
      const std::size_t count = std::min<std::size_t>(random_word({2, 0, 0}, i) % 700'000, text.size() - at);
      spool.add(std::string_view(text).substr(at, count));
      at += count;
    }
    CHECK(spool.is_in_memory() == (memory == default_memory_bytes));
    CHECK(spool.size() == static_cast<std::int64_t>(text.size()));
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::size_t begin = random_word({3, 0, 0}, i) % text.size(),
                        count = random_word({4, 0, 0}, i) % (text.size() - begin + 1);
      CHECK(spool.read(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count)) ==
            text.substr(begin, count));
    }
    CHECK_THROWS_AS(spool.read(spool.size(), 1), Error);
    CHECK_THROWS_AS(spool.read(-1, 1), Error);
    CHECK_THROWS_AS(spool.read(1, INT64_MAX), Error);
  }
}

TEST_CASE("large text: a folder for temporary files that is not there is named") {
  const TemporaryFolder folder;
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", (folder / "missing").c_str(), 1);
  Spool spool(3);
  spool.add("abc");
  CHECK_THROWS_WITH_AS(spool.add("d"), doctest::Contains((folder / "missing").c_str()), Error);
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST_CASE("large text: a file that is cut into pieces gives the tokens of the whole text") {
  const TemporaryFolder folder;
  const std::string text = some_lines((16 << 20) + 300'000);
  std::ofstream(folder / "text.txt", std::ios::binary) << text;
  LargeText pieces(1 << 20);
  read_large_text(folder / "text.txt", pieces);
  read_large_text(folder / "text.txt", pieces);
  REQUIRE(pieces.size() == 4);
  CHECK(pieces[0].begins);
  CHECK(!pieces[1].begins);
  CHECK(pieces[2].begins);
  CHECK(whole(pieces) == text + text);
  CHECK(pieces[0].text.size() + pieces[1].text.size() == text.size());

  TokenizerTraining training;
  training.vocabulary_size = 300;  // the 256 bytes, and few merges to learn
  const std::vector<std::string> sample = {some_lines(20'000)};
  for (const Tokenizer& tokenizer :
       {Tokenizer::train(sample, training), Tokenizer::train_words(sample, training, {"\n"}),
        Tokenizer::train_characters(sample, {}, {})}) {
    // Around the cut: the whole would take long.
    const std::string before = pieces[0].text.substr(pieces[0].text.size() - 3000),
                      after = pieces[1].text.substr(0, 3000);
    Tokens apart = tokenizer.encode(before);
    for (const std::int32_t token : tokenizer.encode(after)) apart.push_back(token);
    CHECK(tokenizer.encode(before + after) == apart);
  }
}

TEST_CASE("large text: what has no line break that follows a word is cut in linear time") {
  const TemporaryFolder folder;
  const std::size_t bytes = large_bytes;
  std::string words, spaces(bytes, ' '), crlf;
  while (words.size() < bytes) words += "word and ";
  while (crlf.size() < bytes) crlf += "word\r\n";
  for (const std::string& text :
       {std::string(bytes, '\n'), std::string(bytes, 'a'), words, spaces, crlf, "a\n" + spaces}) {
    std::ofstream(folder / "text.txt", std::ios::binary) << text;
    LargeText pieces;
    const double begin = cpu_seconds();
    read_large_text(folder / "text.txt", pieces);
    CHECK(cpu_seconds() - begin < most_cpu_seconds);
    REQUIRE(pieces.size() >= bytes / (16 << 20));
    for (std::size_t i = 0; i < pieces.size(); ++i) CHECK(pieces.bytes(i) <= (16 << 20) + 8);
    CHECK((whole(pieces) == text));
    const std::string second = pieces[1].text.substr(0, 5);
    if (text.starts_with("word and")) CHECK((second == " word" || second == " and "));
    if (text.starts_with("word\r")) CHECK(second == "\r\nwor");
  }
  std::string accents;
  while (accents.size() < (20 << 20)) accents += "\xc3\xa9\xe2\x82\xac";
  std::ofstream(folder / "text.txt", std::ios::binary) << accents;
  LargeText pieces;
  read_large_text(folder / "text.txt", pieces);
  REQUIRE(pieces.size() == 2);
  CHECK((static_cast<unsigned char>(pieces[1].text[0]) & 0xC0) == 0xC0);  // no character is cut
}

TEST_CASE("large text: a text is split at a character, and a document that is cut begins anew") {
  LargeText text;
  text.add("ab\xc3\xa9", true);
  text.add("cd", false);
  text.add("ef", true);
  CHECK(text.characters() == 7);
  for (std::int64_t at = 0; at <= 7; ++at) {
    const auto [first, second] = split_large_text(text, at);
    CHECK(first.characters() == at);
    CHECK(second.characters() == 7 - at);
    CHECK(whole(first) + whole(second) ==
          "ab\xc3\xa9"
          "cdef");
    if (at < 7) CHECK(second[0].begins);
    if (at == 2) CHECK(!second[1].begins);
  }
}

TEST_CASE("large text: a stream holds tokens of two and of four bytes") {
  for (const std::int64_t vocabulary : {std::int64_t{65536}, std::int64_t{65537}}) {
    TokenStream stream(vocabulary, 100);
    Tokens tokens;
    for (std::uint64_t i = 0; i < 2'000'000; ++i)
      tokens.push_back(
          static_cast<std::int32_t>(random_word({5, 0, 0}, i) % static_cast<std::uint64_t>(vocabulary)));
    tokens[7] = static_cast<std::int32_t>(vocabulary - 1);
    stream.add(tokens);
    stream.add(Tokens{});
    REQUIRE(stream.size() == 2'000'000);
    CHECK(stream.read(0, 2'000'000) == tokens);
    CHECK(stream.read(7, 1) == Tokens{static_cast<std::int32_t>(vocabulary - 1)});
    CHECK(stream.read(1'999'999, 1) == Tokens{tokens.back()});
    CHECK_THROWS_WITH_AS(stream.read(1'999'999, 2), doctest::Contains("2000000 tokens has no 2"), Error);
  }
}

// --- What readers of data take of memory: beside the texts themselves at most 40 bytes for each line,
// nothing for what follows a bad line, and nothing for blank lines.

// Sanitizers keep what was freed and pad what is there: numbers of bytes say nothing then.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

namespace fs = std::filesystem;

/// A field of /proc/self/status, in bytes.
std::int64_t own_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;)
    if (name == field) {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes << 10;
    }
  return 0;
}

/// How far the memory of this process grows at the most while `work` runs.
std::int64_t growth(const std::function<void()>& work) {
  std::ofstream("/proc/self/clear_refs") << "5";  // forgets the peak before
  const std::int64_t before = own_memory("VmRSS:");
  work();
  return own_memory("VmHWM:") - before;
}

std::string repeated(const std::string& line, std::size_t count) {
  std::string text;
  text.reserve(line.size() * count);
  for (std::size_t i = 0; i < count; ++i) text += line;
  return text;
}

struct ReaderCase {
  std::string name, line;
  std::function<std::size_t(const fs::path&)> read;  ///< how many lines were kept
};

LabelledText labelled(const fs::path& path, const char* format, const char* second = "") {
  LabelledOptions options{.format = format, .second_column = second};
  if (*second != '\0') options.text_columns = {"3"};
  return read_labelled_text(path, options);
}

const std::vector<ReaderCase> readers = {
    {"lines", "ab\n", [](const fs::path& path) { return read_lines(path).size(); }},
    {"labelled lines", "a b\n", [](const fs::path& path) { return labelled(path, "lines").size(); }},
    {"labelled csv", "a,b\n", [](const fs::path& path) { return labelled(path, "csv").size(); }},
    {"labelled tsv", "a\tb\n", [](const fs::path& path) { return labelled(path, "tsv").size(); }},
    {"labelled jsonl", "{\"label\":1,\"a\":2}\n",
     [](const fs::path& path) { return labelled(path, "jsonl").size(); }},
    {"labelled pairs", "a,b,c\n", [](const fs::path& path) { return labelled(path, "csv", "2").size(); }},
    {"two files", "a\n", [](const fs::path& path) { return read_parallel_text(path, path).size(); }},
};

}  // namespace

TEST_CASE("memory of readers: at most 40 bytes a line beside its text") {
  const TemporaryFolder folder;
  constexpr std::size_t count = 1'000'000;
  for (const ReaderCase& one : readers) {
    CAPTURE(one.name);
    const std::string text = repeated(one.line, count);
    write_file_atomically(folder / "plain", text);
    std::size_t kept = 0;
    const std::int64_t grown = growth([&] { kept = one.read(folder / "plain"); });
    CHECK(kept == count);
    CHECK(grown < static_cast<std::int64_t>(40 * count + 2 * text.size() + (8 << 20)));
  }
}

TEST_CASE("memory of readers: a small gzip file of blank lines takes none, and a bad line ends the reading") {
  const TemporaryFolder folder;
  const std::string member = gzip(std::string(1 << 20, '\n'));
  std::string bomb;
  for (int i = 0; i < 40; ++i) bomb += member;
  REQUIRE(bomb.size() < 60'000);
  const fs::path path = folder / "bomb";
  write_file_atomically(path, bomb);
  std::vector<ReaderCase> all(readers.begin() + 1, readers.end());
  NewsNames names;
  all.push_back({"dialogues", "", [](const fs::path& file) { return read_dialogues(file).size(); }});
  all.push_back({"news", "", [&](const fs::path& file) { return read_news(file, names).size(); }});
  all.push_back(
      {"impressions", "", [&](const fs::path& file) { return read_impressions(file, names).size(); }});
  all.push_back({"text", "", [](const fs::path& file) {
                   LargeText text(0);
                   read_large_text(file, text);
                   return std::size_t{0};
                 }});
  for (const ReaderCase& one : all) {
    CAPTURE(one.name);
    const std::int64_t most = one.name == "text" ? 96 << 20 : 8 << 20;  // two pieces of the text
    const std::int64_t grown = growth([&] {
      try {
        const std::size_t kept = one.read(path);
        CHECK(kept == 0);
      } catch (const Error& error) {
        const std::string message = error.what();
        CHECK_MESSAGE(
            (message.find(":1: ") != std::string::npos || message.find(":1 is") != std::string::npos ||
             message.find("all are blank") != std::string::npos),
            message);
      }
    });
    CHECK(grown < most);
  }
  ReadReport report;
  CHECK(read_parallel_text(path, path, {}, &report).size() == 0);
  CHECK(report.blank == 40 << 20);
}

TEST_CASE("memory of readers: a row of separators is refused before its fields take more than it does") {
  const std::string row(50 << 20, ',');
  std::string error;
  const std::int64_t grown = growth([&] {
    try {
      read_csv({row, "f"}, [](TableRow&) {});
    } catch (const Error& caught) {
      error = caught.what();
    }
  });
  CHECK(error ==
        "f:1: the row has more than 65536 fields; is this a table of texts?; "
        "data.on_bad_rows=drop leaves such rows out");
  CHECK(grown < 4 * (50 << 20));
}

#endif

TEST_CASE("blank lines of parallel files and of tables are counted and left out") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "source", "a\n\n\nb\n");
  write_file_atomically(folder / "target", "A\n\nC\nB\n");
  ReadReport report;
  const ParallelText pairs = read_parallel_text(folder / "source", folder / "target", {}, &report);
  CHECK(pairs.source == TextList{"a", "", "b"});
  CHECK(pairs.target == TextList{"A", "C", "B"});
  CHECK(report.blank == 1);
  report = {};
  std::vector<std::string> rows;
  const auto take = [&](const TableCells& row) {
    rows.push_back(row.place() + " " + row.cells.at(0) + row.cells.at(1));
  };
  read_table_rows({"\n1,2\n\n\n3,4\n\n", "f"}, {.format = "csv"}, take, &report);
  CHECK(rows == std::vector<std::string>{"f:2 12", "f:5 34"});
  CHECK(report.blank == 4);
}

TEST_CASE("a list of texts gives back what it got, and shares it with its copies") {
  TextList list;
  std::vector<std::string> expected;
  for (std::size_t i = 0; i < 300; ++i)
    list.push_back(expected.emplace_back(i * i * (i % 7 == 6 ? 30 : 1), static_cast<char>('a' + i % 26)));
  CHECK(list.strings() == expected);
  TextList copy = list;
  copy.push_back("one");
  list.push_back("other");
  CHECK(copy.back() == "one");
  CHECK(list.back() == "other");
  CHECK(copy[7].data() == list[7].data());
  const std::vector<std::size_t> indices = {299, 0, 17};
  TextList some = list.picked(indices);
  list = {};
  some.push_back("more");
  CHECK(some == TextList{expected[299], expected[0], expected[17], "more"});
}
