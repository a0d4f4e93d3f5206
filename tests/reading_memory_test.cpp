// What readers of data take of memory: beside the texts themselves at most 40 bytes for each line, nothing
// for what follows a bad line, and nothing for blank lines.

#include <doctest/doctest.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gzip_support.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/data/dialogues.h"
#include "heed/data/labelled_text.h"
#include "heed/data/large_text.h"
#include "heed/data/mind.h"
#include "heed/data/table.h"
#include "heed/data/text_file.h"
#include "temporary_folder.h"

using namespace heed;

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
    {"table", "a,b\n", [](const fs::path& path) { return read_table(path, {.format = "csv"}).size(); }},
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
      parse_csv(row, "f", [](TableRow&) {});
    } catch (const Error& caught) {
      error = caught.what();
    }
  });
  CHECK(error == "f:1: the row has more than 65536 fields; is this a table of texts?");
  CHECK(grown < 4 * (50 << 20));
}

#endif

TEST_CASE("blank lines of two files of lines and of tables are counted and left out") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "source", "a\n\n\nb\n");
  write_file_atomically(folder / "target", "A\n\nC\nB\n");
  ReadReport report;
  const ParallelText pairs = read_parallel_text(folder / "source", folder / "target", {}, &report);
  CHECK(pairs.source == TextList{"a", "", "b"});
  CHECK(pairs.target == TextList{"A", "C", "B"});
  CHECK(report.blank == 1);
  report = {};
  const Table table = parse_table("\n1,2\n\n\n3,4\n\n", "f", {.format = "csv"}, &report);
  CHECK(table.columns == std::vector<TextList>{{"1", "3"}, {"2", "4"}});
  CHECK(table.places[1] == "f:5");
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
