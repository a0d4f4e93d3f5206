// Readers of tables, images and dialogues.

#include <doctest/doctest.h>
#include <zlib.h>

#include <chrono>
#include <fstream>
#include <set>

#include "heed/apps/data/formats.h"
#include "heed/apps/data/synthetic.h"
#include "heed/apps/data/table.h"
#include "heed/base/error.h"
#include "heed/tests/support.h"
#include "heed/tests/temporary_folder.h"
#include "heed/training/text_metrics.h"

using namespace heed;
using namespace heed::test;

using Names = std::vector<std::string>;

namespace {

/// What read_table_rows hands over, by column.
struct Table {
  Names names, places;
  std::vector<Names> columns;
};

Table read_table(const TextInput& input, const TableOptions& options = {}, ReadReport* report = nullptr) {
  Table table;
  const auto take = [&](const TableCells& row) {
    table.names = row.names;
    table.columns.resize(row.cells.size());
    for (std::size_t i = 0; i < row.cells.size(); ++i) table.columns[i].push_back(row.cells[i]);
    table.places.push_back(row.place());
  };
  read_table_rows(input, options, take, report);
  return table;
}

Table csv(const std::string& bytes, Names columns = {}, Header header = Header::detected) {
  return read_table({bytes, "f"}, {.format = "csv", .header = header, .columns = std::move(columns)});
}

Table jsonl(const std::string& bytes, Names columns = {}) {
  return read_table({bytes, "f"}, {.format = "jsonl", .columns = std::move(columns)});
}

/// The message of the Error that `body` throws, which must hold `part`.
template <class Body>
void check_message(const Body& body, const std::string& part) {
  const std::string message = error_of(body);
  CAPTURE(message);
  CHECK(message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("Columns of a table are chosen by number or by a name of the header") {
  const std::string bytes = "\xEF\xBB\xBFid,text,label\n7,\"a,\nb\",x\n8,c,y\n";
  const Table chosen = csv(bytes, {"label", "2", "label"}, Header::present);
  CHECK(chosen.names == Names{"label", "text", "label"});
  CHECK(chosen.columns == std::vector<Names>{{"x", "y"}, {"a,\nb", "c"}, {"x", "y"}});
  CHECK(chosen.places[0] == "f:2");
  CHECK(chosen.places[1] == "f:4");

  const Table all = csv(bytes, {}, Header::present);
  CHECK(all.names == Names{"id", "text", "label"});
  CHECK(csv(bytes, {}, Header::absent).places.size() == 3);
  CHECK(csv(bytes, {}, Header::absent).names == Names{"1", "2", "3"});
  CHECK(csv(bytes).names == all.names);

  const Table tabs = read_table({"\"a\t'b\"\n", "f"}, {.format = "tsv", .columns = {"2"}});
  CHECK(tabs.columns == std::vector<Names>{{"'b\""}});
}

TEST_CASE("Fields of csv end in what the first line shows, or in the delimiter that is given") {
  const auto fields = [](std::string_view bytes, std::string delimiter = {}) {
    ReadReport report;
    const Table table = read_table(
        {bytes, "f"},
        {.format = "csv", .header = Header::absent, .delimiter = std::move(delimiter), .columns = {"1", "2"}},
        &report);
    return std::pair(table.columns, report.remarks);
  };
  using Columns = std::vector<Names>;
  const auto semicolons = fields("x;\"a;b\"\ny;c, d\n");
  CHECK(semicolons.first == Columns{{"x", "y"}, {"a;b", "c, d"}});
  CHECK(semicolons.second == Names{"f: its fields are separated by semicolons"});
  CHECK(fields("x\t\"a\tb\"\n").first == Columns{{"x"}, {"a\tb"}});
  CHECK(fields("x;y,\"a;\"\n") == std::pair(Columns{{"x;y"}, {"a;"}}, Names{}));
  CHECK(fields("\"x,y\";a\n").first == Columns{{"x,y"}, {"a"}});
  CHECK(fields("5;good, but loud\n").first == Columns{{"5"}, {"good, but loud"}});  // a comma of a sentence
  CHECK(fields("x, y\n").first == Columns{{"x"}, {" y"}});
  CHECK(fields("x,y;a\n", "semicolon").first == Columns{{"x,y"}, {"a"}});
  check_message([&] { fields("x;\"a\" ;b\n"); }, "f:1: expected a semicolon after the closing quote");
  check_message([&] { fields("a,b\n", ";"); }, "unknown delimiter \";\"");
  check_message(
      [] {
        read_table({"a\tb\n", "f"}, {.format = "tsv", .delimiter = "tab"});
      },
      "a delimiter is for csv");
}

TEST_CASE("Whether the first row names the columns is found out, and always said") {
  const auto first = [](const std::string& bytes, TableOptions options = {}) {
    options.format = "csv";
    ReadReport report;
    const Table table = read_table({bytes, "f"}, options, &report);
    REQUIRE(report.remarks.size() == 1);
    const bool is_header =
        report.remarks[0].find("is read as a header; data.header=false") != std::string::npos;
    CHECK(is_header != (report.remarks[0].find("read as data; data.header=true") != std::string::npos));
    CHECK(table.places[0] == (is_header ? "f:2" : "f:1"));
    return table.columns[0][0];
  };
  const auto rows = [](const std::string& first_row, const std::vector<std::string>& others, int times) {
    std::string bytes = first_row + "\n";
    for (int i = 0; i < times; ++i) bytes += others[static_cast<std::size_t>(i) % others.size()] + "\n";
    return bytes;
  };
  const TableOptions labelled{.columns = {"1", "2"}, .usual_names = {"label", ""}};
  const Names reviews = {"good,\"a fine, quiet film that stays with you\"", "bad,not for me"};
  // names: a label that no other row has, numbers below, or what such columns are called
  CHECK(first(rows("kind,what it says", reviews, 10), labelled) == "good");
  CHECK(first(rows("\xEB\x9D\xBC\xEB\xB2\xA8,\xEB\xAC\xB8\xEC\x9E\xA5", reviews, 10), labelled) == "good");
  CHECK(first(rows("stars,opinion", {"5,fine", "1,poor"}, 3), labelled) == "5");
  CHECK(first("text,label\nso it goes,good\n", labelled) == "good");
  CHECK(first("Source,target\na,b\n", {.columns = {"1", "2"}}) == "a");
  CHECK(first("from,to,n\na,b,1\nc,d,2\ne,f,3\n", {.columns = {"1", "2"}}) == "a");
  CHECK(first(rows(",label,text", {"0,good,fine", "1,bad,poor"}, 2),
              {.columns = {"1"}, .usual_names = {"label"}}) == "good");
  CHECK(first(rows("a,b", {"c,d", "e,f"}, 20), {.columns = {"1", "2"}}) == "c");
  // data: a cell that comes again, few rows, sentences, numbers, and pairs that might be anything
  CHECK(first(rows("good,fine", reviews, 10), labelled) == "good");
  CHECK(first(rows("kind,what it says", reviews, 9), labelled) == "kind");
  CHECK(first(rows("odd,a real text that is longer than names are", reviews, 20), labelled) == "odd");
  CHECK(first(rows("odd,7", reviews, 20), labelled) == "odd");
  CHECK(first(rows("a,b", {"c,d", "e,f"}, 9), {.columns = {"1", "2"}}) == "a");
  CHECK(first("text,text\na,b\n", {.columns = {"1", "2"}}) == "text");
  CHECK(first("text,label\n", labelled) == "text");
  CHECK(first("question,hello\nanswer,fine\n", labelled) == "question");

  // what is given is not looked for
  ReadReport report;
  CHECK(read_table({"text,label\na,b\n", "f"}, {.format = "csv", .header = Header::absent}, &report)
            .places[0] == "f:1");
  CHECK(read_table({"1,2\n3,4\n", "f"}, {.format = "csv", .header = Header::present}, &report).places[0] ==
        "f:2");
  CHECK(report.remarks.empty());
  check_message([] { csv("a,b\n1,2\n", {"b"}, Header::absent); },
                "f: the column \"b\" is given by name, but the file has no header");
  // the rows behind those that are looked at come, too, in their order
  const Table long_one = csv(rows("n", {"1", "2", "3"}, 3000));
  CHECK(long_one.columns[0].size() == 3000);
  CHECK(long_one.places.back() == "f:3001");
  CHECK(long_one.columns[0][2998] == "2");
}

TEST_CASE("Rows of csv and tsv are written as they are read") {
  const Names cells = {"a", "b;c", "d,e", "say \"no\"", "two\nlines", ""};
  for (const char delimiter : {',', ';', '\t'}) {
    Names read;
    read_csv(
        {csv_row(cells, delimiter), "f"}, [&](TableRow& row) { read = row.fields; }, {}, nullptr, delimiter);
    CHECK(read == cells);
  }
  CHECK(csv_row(cells) == "a,b;c,\"d,e\",\"say \"\"no\"\"\",\"two\nlines\",");
  CHECK(tsv_row(Names{"a \"b\"", ",", ""}) == "a \"b\"\t,\t");
  check_message([] { tsv_row(Names{"a\tb"}); }, "a cell of tsv has a tab");
}

TEST_CASE("A column that a table lacks is named with file and line") {
  check_message([] { csv("a,b\n1,2\n", {"3"}); }, "f:1: there is no column 3; the rows have 2");
  check_message([] { csv("a,b\n1,2\n", {"0"}); }, "f:1: there is no column 0");
  check_message([] { csv("a,b\n1,2\n", {"99999999999999999999"}); }, "there is no column \"9999");
  check_message([] { csv("a,b\n1,2\n", {"-1"}); }, "there is no column \"-1\"");
  CHECK(csv("a,b\n1,2\n", {"b"}).columns ==
        std::vector<Names>{{"2"}});  // a name means that there is a header
  check_message([] { csv("1,2\n3,4\n", {"b"}); }, "there is no column \"b\" among \"1\", \"2\"");
  check_message([] { csv("a,b\n1,2\n", {"c"}, Header::present); },
                "f:1: there is no column \"c\" among \"a\", \"b\"");
  check_message([] { csv("a,a\n1,2\n", {"a"}, Header::present); }, "f:1: the column \"a\" occurs twice");
  const auto distinct = [](const char* bytes, const char* format, Header header, Names columns) {
    read_table({bytes, "f"},
               {.format = format, .header = header, .columns = std::move(columns), .distinct = true});
  };
  check_message(
      [&] {
        distinct("a,b\n1,2\n", "csv", Header::present, {"2", "b"});
      },
      "f: the columns \"2\" and \"b\" are one");
  check_message(
      [&] {
        distinct("{\"a\": 1}\n", "jsonl", Header::detected, {"a", "a"});
      },
      "f: the columns \"a\" and \"a\" are one");
  CHECK_NOTHROW(distinct("a,b\n1,2\n", "csv", Header::present, {"2", "a"}));
  check_message([] { csv("a,b\n", {"a"}, Header::present); }, "f: there is only a header");
  check_message([] { csv("a,b\n1\n", {"a"}, Header::present); }, "f:2: the row has 1 fields");
  check_message([] { csv(""); }, "f");
}

TEST_CASE("JSON lines: members are columns; texts, numbers, true and false are taken") {
  const std::string bytes =
      "\xEF\xBB\xBF{\"t\": \"caf\\u00e9\", \"n\": 3, \"x\": {}}\r\n"
      "{\"n\": 0.5, \"t\": \"\", \"more\": [1]}\n{\"t\": true, \"n\": -7}";
  const Table table = jsonl(bytes, {"n", "t"});
  CHECK(table.columns == std::vector<Names>{{"3", "0.5", "-7"}, {"caf\xc3\xa9", "", "true"}});
  CHECK(table.places[2] == "f:3");
  CHECK(jsonl("{\"b\": 1, \"a\": 2}\n{\"a\": 4, \"b\": 3}\n").names == Names{"b", "a"});
  CHECK(jsonl("{\"b\": 1, \"a\": 2}\n{\"a\": 4, \"b\": 3}\n").columns[0] == Names{"1", "3"});
  // A number is a name like any other here.
  CHECK(jsonl("{\"b\": 1, \"1\": 2}\n", {"1"}).columns[0] == Names{"2"});

  check_message([&] { jsonl(bytes, {"x"}); },
                "f:1: \"x\" must be a text, a number, true or false, not object");
  check_message([&] { jsonl(bytes, {"more"}); }, "f:1: there is no \"more\" among \"t\", \"n\", \"x\"");
  check_message([] { jsonl("{\"a\": 1}\n{\"b\": 1}\n"); }, "f:2: there is no \"a\"");
  check_message([] { jsonl("{\"a\": null}\n"); }, "f:1: \"a\" must be");
  check_message([] { jsonl("[1]\n"); }, "f:1: expected a JSON object, not number");
  check_message([] { jsonl("{\"a\": 1}\n[1]\n"); }, "f:2: expected a JSON object, not array");
  check_message([] { jsonl("{\"a\": 1}\n{\"a\": \n"); }, "f:2 is not valid JSON");
  check_message([] { jsonl("{\"a\": \"caf\xe9\"}\n"); }, "f:1: byte");
  check_message([] { jsonl("{\"a\": 1}\n{\"a\": 1, \"b\": {\"a\": 2}, \"a\": 3}\n"); },
                "f:2: the member \"a\" occurs twice");
  CHECK_NOTHROW(jsonl("{\"a\": 1, \"b\": 2}\n"));
  check_message([] { jsonl("{\"a\": 123456789012345678901}\n"); },
                "f:1: the number \"a\" has too many digits");
  CHECK(jsonl("{\"a\": 18446744073709551615}\n").columns[0][0] == "18446744073709551615");
  check_message([] { jsonl("{}\n" + std::string(100'000, '[')); }, "f:2 is nested too deeply");
  check_message([] { read_table({"{}", "f"}, {.format = "jsonl", .header = Header::present}); }, "header");
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
  check_message([&] { read_table(folder / "a.tsv.gz"); }, "a.tsv.gz:2: byte");
  std::ofstream(folder / "a.txt") << "1\tb\n";
  check_message([&] { read_table(folder / "a.txt"); }, "give data.format=csv, tsv or jsonl");
  CHECK(read_table(folder / "a.txt", {.format = "tsv"}).columns.size() == 2);
  check_message([&] { read_table(folder / "a.txt", {.format = "xml"}); }, "unknown format");
  check_message([&] { read_table(folder / "none.csv"); }, "none.csv");
}

// --- IDX files: images and labels, plain and gzip, and the traps of their sizes.

namespace {

constexpr std::uint64_t most = 1 << 20;

std::string idx(std::initializer_list<std::uint32_t> header, const std::string& values) {
  std::string bytes;
  for (const std::uint32_t number : header)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 255);
  return bytes + values;
}

}  // namespace

TEST_CASE("IDX: images and labels, and lines of images") {
  const Images images =
      parse_idx_images(idx({2051, 2, 1, 3}, {'\0', '\1', '\xff', 'a', 'b', 'c'}), "file", most);
  CHECK(images.rows == 1);
  CHECK(images.columns == 3);
  REQUIRE(images.pixels.size() == 2);
  CHECK(image_line(images, 0) == "1 3 0 1 255");
  CHECK(parse_image_line("1 3 0 1 255").pixels == TextList{images.pixels[0]});
  CHECK(parse_idx_labels(idx({2049, 2}, "\7\3"), "file", most) == std::vector<std::uint8_t>{7, 3});
}

TEST_CASE("IDX: errors say what is wrong") {
  const auto images = [](const std::string& bytes) { parse_idx_images(bytes, "file", most); };
  CHECK_THROWS_WITH_AS(images(""), doctest::Contains("magic number 2051"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2049, 1}, "a")), doctest::Contains("2049"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2051, 1}, "")), doctest::Contains("header"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2051, 1, 0, 3}, "")), doctest::Contains("extent 2"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2051, 2, 1, 3}, "abcde")),
                       doctest::Contains("6 values follow, but there are 5"), Error);
  CHECK_THROWS_WITH_AS(images(idx({2051, 1, 1, 3}, "abcd")), doctest::Contains("there are 4"), Error);
  CHECK_THROWS_AS(images(idx({2051, 0xffffffff, 0xffffffff, 0xffffffff}, "a")), Error);
  CHECK_THROWS_WITH_AS(parse_image_line("2 2 1 2 3"), doctest::Contains("has 4 values, but 3"), Error);
  CHECK_THROWS_WITH_AS(parse_image_line("1 1 256"), doctest::Contains("0 to 255"), Error);
  CHECK_THROWS_WITH_AS(parse_image_line("1 1 x"), doctest::Contains("number 3"), Error);
}

TEST_CASE("IDX: labels are found by the name of the images, and both have the same number") {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return folder / name;
  };
  const auto path = write("a-images-idx3-ubyte", idx({2051, 2, 1, 1}, "ab"));
  write("a-labels-idx1-ubyte", idx({2049, 2}, std::string("\0\11", 2)));
  const LabelledText text = read_labelled_images(path, {}, {});
  CHECK(text.labels == std::vector<std::string>{"0", "9"});
  CHECK(text.texts == std::vector<std::string>{"1 1 97", "1 1 98"});
  const auto one = write("one", idx({2049, 1}, "\1"));
  CHECK_THROWS_WITH_AS(read_labelled_images(path, one, {}), doctest::Contains("2 images"), Error);
  CHECK_THROWS_WITH_AS(read_labelled_images(one, {}, {}), doctest::Contains("data.labels"), Error);
}

// --- Dialogues, the small talk and the reports that are made by rule, and how varied answers are.

namespace {

std::string dialogues_error(const std::string& bytes) {
  return error_of([&] { read_dialogues({bytes, "f"}); });
}

}  // namespace

TEST_CASE("dialogues: turns end in __eou__, and errors name file and line") {
  const std::vector<Dialogue> found =
      read_dialogues({"Hello . __eou__ Hi ! __eou__\r\n  one turn__eou__  \n", "f"});
  CHECK(found == std::vector<Dialogue>{{"Hello .", "Hi !"}, {"one turn"}});
  CHECK(dialogues_error("a __eou__ b __eou__\na __eou__ b\n") ==
        "f:2: the last turn has no __eou__ behind it; every turn ends in one");
  CHECK(dialogues_error("no mark\n") == "f:1: the line has no __eou__ behind it; every turn ends in one");
  CHECK(dialogues_error("a __eou__\n\nb __eou__\n") ==
        "f:2: the line is blank; expected a dialogue whose turns end in __eou__");
  CHECK(dialogues_error("a __eou__ __eou__ b __eou__\n") == "f:1: turn 2 is empty");
  CHECK(dialogues_error("") != "");
  CHECK(dialogues_error("a \xff __eou__\n") != "");
}

TEST_CASE("dialogues: a line to answer may lack the last mark, and holds no empty turn") {
  CHECK(split_turns("a __eou__ b") == Dialogue{"a", "b"});
  CHECK(split_turns("a __eou__ __eou__b__eou__") == Dialogue{"a", "b"});
  CHECK(split_turns(" ").empty());
  CHECK(split_turns("__eou__").empty());
}

TEST_CASE("dialogues: every turn but the first is an answer to those before it") {
  const ParallelText pairs = answers_in({{"a", "b", "c", "d"}, {"alone"}, {"x", "y"}}, 2);
  CHECK(pairs.source == std::vector<std::string>{"a", "a__eou__b", "b__eou__c", "x"});
  CHECK(pairs.target == std::vector<std::string>{"b", "c", "d", "y"});
}

TEST_CASE("dialogues: small talk is the same every time, and what is held out is not learned") {
  const auto made = small_talk(1, 500, 50), again = small_talk(1, 500, 50);
  CHECK(made.train == again.train);
  CHECK(made.held_out == again.held_out);
  CHECK(made.train.size() == 500);
  const std::set<Dialogue> held_out(made.held_out.begin(), made.held_out.end());
  CHECK(held_out.size() == 50);
  for (const Dialogue& turns : made.train) {
    CHECK(!held_out.contains(turns));
    CHECK(turns.size() == 7);
  }
  CHECK(small_talk(2, 500, 50).train != made.train);
  CHECK_THROWS_AS(small_talk(1, 0, 1), Error);
  CHECK_THROWS_AS(small_talk(1, 1, 100'000), Error);
}

TEST_CASE("headlines: reports are the same every time, and their headline follows from them") {
  const Reports made = headline_reports(1, 500, 50), again = headline_reports(1, 500, 50);
  CHECK(made.train.source == again.train.source);
  const std::set<std::string> held_out(made.held_out.source.begin(), made.held_out.source.end());
  CHECK(held_out.size() == 50);
  for (std::size_t i = 0; i < made.train.size(); ++i) {
    const std::string report(made.train.source[i]);
    CHECK(!held_out.contains(report));
    const std::string headline(made.train.target[i]);
    const std::string who = headline.substr(0, headline.find(' ')),
                      whom = headline.substr(headline.rfind(' ') + 1);
    CAPTURE(report);
    CAPTURE(headline);
    const bool passive = report.find(" by the ") != std::string::npos;
    CHECK(report.find(who) != std::string::npos);
    CHECK((report.find(" " + who) < report.find(" " + whom)) == !passive);
  }
  CHECK_THROWS_AS(headline_reports(1, 0, 1), Error);
  CHECK_THROWS_AS(headline_reports(1, 1, 2'000'000), Error);
}

TEST_CASE("distinct runs of words over all of them") {
  const std::vector<std::string> texts = {"a b a", "a b."};
  CHECK(distinct_share(texts, 1) == doctest::Approx(3.0 / 6.0));  // a, b and the full stop
  CHECK(distinct_share(texts, 2) == doctest::Approx(3.0 / 4.0));  // a b, b a, b .
  CHECK(distinct_share(texts, 4) == 0);
  CHECK(distinct_share({}, 1) == 0);
}

TEST_CASE("JSON lines: blank lines are left out and counted, the first one, too") {
  ReadReport report;
  const Table table =
      read_table({"\n{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n\n", "f"}, {.format = "jsonl"}, &report);
  CHECK(table.names == Names{"text"});
  CHECK(table.columns == std::vector<Names>{{"a", "b"}});
  CHECK(table.places == Names{"f:2", "f:4"});
  CHECK(report.blank == 3);
  check_message([] { jsonl("\n\n"); }, "f: there are 2 lines, but all are blank");
}

TEST_CASE("JSON lines: an object of many members takes time by their number, not by the square of it") {
  std::string line = "{\"text\": \"a\"";
  for (int i = 0; i < 60'000; ++i) line += ", \"name" + std::to_string(i) + "\": 0";
  const auto begin = std::chrono::steady_clock::now();
  CHECK(jsonl(line + "}\n", {"text"}).columns == std::vector<Names>{{"a"}});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(sanitized ? 20 : 2));
  check_message([&] { jsonl(line + ", \"text\": \"b\"}\n", {"text"}); }, "\"text\" occurs twice");
}

TEST_CASE("CSV: a line end within a cell stays what it was") {
  const Table table = csv("text\r\n\"a\r\nb\"\r\n\"c\nd\"\r\n", {}, Header::present);
  CHECK(table.columns == std::vector<Names>{{"a\r\nb", "c\nd"}});
}

TEST_CASE("word vectors: a plus sign, and numbers nearer to 0 than any but 0") {
  const TemporaryFolder folder;
  const auto path = folder / "vectors";
  std::ofstream(path) << "a +0.5 1e-46\nb -1e-60 2\n";
  std::vector<std::vector<float>> found;
  const auto take = [&](std::string_view, std::span<const float> values) {
    found.emplace_back(values.begin(), values.end());
  };
  read_word_vectors(path.string(), 2, take);
  CHECK(found == std::vector<std::vector<float>>{{0.5f, 0}, {0, 2}});
  for (const char* bad : {"+-1", "++1", "1e99", "+", "inf"}) {
    CAPTURE(bad);
    std::ofstream(path) << "a 1 " << bad << "\n";
    check_message([&] { read_word_vectors(path.string(), 2, take); }, "finite numbers are expected");
  }
}
