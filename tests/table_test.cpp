// Columns of tables: csv, tsv and JSON lines.

#include "heed/data/table.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <fstream>

#include "heed/base/error.h"
#include "heed/tests/gzip_support.h"
#include "heed/tests/temporary_folder.h"

using namespace heed;
using Names = std::vector<std::string>;

namespace {

Table csv(const std::string& bytes, Names columns = {}, bool header = false) {
  return parse_table(bytes, "f", {.format = "csv", .header = header, .columns = std::move(columns)});
}

Table jsonl(const std::string& bytes, Names columns = {}) {
  return parse_table(bytes, "f", {.format = "jsonl", .columns = std::move(columns)});
}

/// The message of the Error that `body` throws, which must hold `part`.
template <class Body>
void check_error(const Body& body, const std::string& part) {
  std::string message;
  try {
    body();
  } catch (const Error& error) {
    message = error.what();
  }
  CAPTURE(message);
  CHECK(message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("Columns of a table are chosen by number or by a name of the header") {
  const std::string bytes = "\xEF\xBB\xBFid,text,label\n7,\"a,\nb\",x\n8,c,y\n";
  const Table chosen = csv(bytes, {"label", "2", "label"}, true);
  CHECK(chosen.names == Names{"label", "2", "label"});
  CHECK(chosen.columns == std::vector<TextList>{{"x", "y"}, {"a,\nb", "c"}, {"x", "y"}});
  CHECK(chosen.places[0] == "f:2");
  CHECK(chosen.places[1] == "f:4");
  CHECK(chosen.column("2") == Names{"a,\nb", "c"});
  check_error([&] { chosen.column("text"); }, "no column \"text\"");

  const Table all = csv(bytes, {}, true);
  CHECK(all.names == Names{"id", "text", "label"});
  CHECK(csv(bytes).size() == 3);
  CHECK(csv(bytes).names == Names{"1", "2", "3"});
  const Table others =
      parse_table(bytes, "f", {.format = "csv", .header = true, .columns = {"3"}, .others = true});
  CHECK(others.names == Names{"3", "id", "text"});

  const Table tabs = parse_table("\"a\t'b\"\n", "f", {.format = "tsv", .columns = {"2"}});
  CHECK(tabs.columns == std::vector<TextList>{{"'b\""}});
}

TEST_CASE("A column that a table lacks is named with file and line") {
  check_error([] { csv("a,b\n1,2\n", {"3"}); }, "f:1: there is no column 3; the rows have 2");
  check_error([] { csv("a,b\n1,2\n", {"0"}); }, "f:1: there is no column 0");
  check_error([] { csv("a,b\n1,2\n", {"99999999999999999999"}); }, "there is no column \"9999");
  check_error([] { csv("a,b\n1,2\n", {"-1"}); }, "there is no column \"-1\"");
  check_error([] { csv("a,b\n1,2\n", {"b"}); }, "no header names the columns");
  check_error([] { csv("a,b\n1,2\n", {"c"}, true); }, "f:1: there is no column \"c\" among \"a\", \"b\"");
  check_error([] { csv("a,a\n1,2\n", {"a"}, true); }, "f:1: the column \"a\" occurs twice");
  const auto distinct = [](const char* bytes, const char* format, bool header, Names columns) {
    parse_table(bytes, "f",
                {.format = format, .header = header, .columns = std::move(columns), .distinct = true});
  };
  check_error(
      [&] {
        distinct("a,b\n1,2\n", "csv", true, {"2", "b"});
      },
      "f: the columns \"2\" and \"b\" are one");
  check_error(
      [&] {
        distinct("{\"a\": 1}\n", "jsonl", false, {"a", "a"});
      },
      "f: the columns \"a\" and \"a\" are one");
  CHECK_NOTHROW(distinct("a,b\n1,2\n", "csv", true, {"2", "a"}));
  check_error([] { csv("a,b\n", {"a"}, true); }, "f: there is nothing but a header");
  check_error([] { csv("a,b\n1\n", {"a"}, true); }, "f:2: the row has 1 fields");
  check_error([] { csv(""); }, "f");
}

TEST_CASE("JSON lines: members are columns; texts, numbers, true and false are taken") {
  const std::string bytes =
      "\xEF\xBB\xBF{\"t\": \"caf\\u00e9\", \"n\": 3, \"x\": {}}\r\n"
      "{\"n\": 0.5, \"t\": \"\", \"more\": [1]}\n{\"t\": true, \"n\": -7}";
  const Table table = jsonl(bytes, {"n", "t"});
  CHECK(table.columns == std::vector<TextList>{{"3", "0.5", "-7"}, {"caf\xc3\xa9", "", "true"}});
  CHECK(table.places[2] == "f:3");
  CHECK(jsonl("{\"b\": 1, \"a\": 2}\n{\"a\": 4, \"b\": 3}\n").names == Names{"b", "a"});
  CHECK(jsonl("{\"b\": 1, \"a\": 2}\n{\"a\": 4, \"b\": 3}\n").columns[0] == Names{"1", "3"});
  // A number is a name like any other here.
  CHECK(jsonl("{\"b\": 1, \"1\": 2}\n", {"1"}).columns[0] == Names{"2"});

  check_error([&] { jsonl(bytes, {"x"}); }, "f:1: \"x\" must be a text, a number, true or false, not object");
  check_error([&] { jsonl(bytes, {"more"}); }, "f:1: there is no \"more\" among \"t\", \"n\", \"x\"");
  check_error([] { jsonl("{\"a\": 1}\n{\"b\": 1}\n"); }, "f:2: there is no \"a\"");
  check_error([] { jsonl("{\"a\": null}\n"); }, "f:1: \"a\" must be");
  check_error([] { jsonl("[1]\n"); }, "f:1: expected a JSON object, not array");
  check_error([] { jsonl("{\"a\": 1}\n\n{\"a\": 1}\n"); }, "f:2 is not valid JSON");
  check_error([] { jsonl("{\"a\": 1}\n{\"a\": \n"); }, "f:2 is not valid JSON");
  check_error([] { jsonl("{\"a\": \"caf\xe9\"}\n"); }, "f:1: byte");
  check_error([] { jsonl("{\"a\": 1}\n{\"a\": 1, \"b\": {\"a\": 2}, \"a\": 3}\n"); },
              "f:2: the member \"a\" stands twice");
  CHECK_NOTHROW(jsonl("{\"a\": 1, \"b\": 2}\n"));
  check_error([] { jsonl("{\"a\": 123456789012345678901}\n"); }, "f:1: the number \"a\" has more digits");
  CHECK(jsonl("{\"a\": 18446744073709551615}\n").columns[0][0] == "18446744073709551615");
  check_error([] { jsonl("{}\n" + std::string(100'000, '[')); }, "f:2 is nested too deeply");
  check_error([] { parse_table("{}", "f", {.format = "jsonl", .header = true}); }, "header");
}

TEST_CASE("The name of a table's file tells its format, packed or not") {
  CHECK(table_format("a/b.csv") == "csv");
  CHECK(table_format("a/b.tsv.gz") == "tsv");
  CHECK(table_format("b.jsonl.gz") == "jsonl");
  CHECK(table_format("b.txt").empty());
  const TemporaryFolder folder;
  std::ofstream(folder / "a.tsv.gz", std::ios::binary) << gzip("1\tb\n2\tcaf\xe9\n");
  ReadReport report;
  const TableOptions replace{.columns = {"2"}, .text = {.bad_bytes = BadBytes::replace}};
  CHECK(read_table(folder / "a.tsv.gz", replace, &report).columns[0] == Names{"b", "caf\uFFFD"});
  CHECK(report.replaced == 1);
  check_error([&] { read_table(folder / "a.tsv.gz"); }, "a.tsv.gz:2: byte");
  std::ofstream(folder / "a.txt") << "1\tb\n";
  check_error([&] { read_table(folder / "a.txt"); }, "give --format csv, tsv or jsonl");
  CHECK(read_table(folder / "a.txt", {.format = "tsv"}).columns.size() == 2);
  check_error([&] { read_table(folder / "a.txt", {.format = "xml"}); }, "unknown format");
  check_error([&] { read_table(folder / "none.csv"); }, "none.csv");
}
