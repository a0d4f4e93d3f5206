// Readers of labelled texts, their parts, and ListOps.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>

#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/synthetic.h"
#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/tests/support.h"
#include "heed/tests/temporary_folder.h"

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

namespace {

const LabelledOptions lines_format{.format = "lines"};

std::vector<TableRow> csv_rows(const std::string& bytes) {
  std::vector<TableRow> rows;
  read_csv({bytes, "rows"}, [&](TableRow& row) { rows.push_back(row); });
  return rows;
}
std::vector<TableRow> tsv_rows(const std::string& bytes) {
  std::vector<TableRow> rows;
  read_tsv({bytes, "rows"}, [&](TableRow& row) { rows.push_back(row); });
  return rows;
}

void set_label(LabelledText& text, std::size_t index, const std::string& label) {
  std::vector<std::string> labels = text.labels.strings();
  labels[index] = label;
  text.labels = labels;
}

Names fields_of(const std::string& row) {
  return csv_rows(row).at(0).fields;
}

/// The value of an expression, with a stack, not by recursion as the generator has it.
int value_of(const std::string& expression) {
  std::istringstream tokens(expression);
  std::vector<std::pair<std::string, std::vector<int>>> open{{"", {}}};
  for (std::string token; tokens >> token;) {
    if (token[0] == '[') {
      open.push_back({token, {}});
    } else if (token != "]") {
      open.back().second.push_back(std::stoi(token));
    } else {
      auto [name, values] = open.back();
      open.pop_back();
      std::sort(values.begin(), values.end());
      const std::size_t n = values.size();
      int value = 0;
      for (const int each : values) value += each;
      value %= 10;
      if (name == "[MIN") value = values.front();
      if (name == "[MAX") value = values.back();
      if (name == "[MED") value = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
      open.back().second.push_back(value);
    }
  }
  REQUIRE(open.size() == 1);
  REQUIRE(open[0].second.size() == 1);
  return open[0].second[0];
}

/// A digit counts one, an operator two.
std::int64_t length_of(const std::string& expression) {
  return std::count(expression.begin(), expression.end(), ' ') + 1;
}

LabelledText numbered(std::size_t count) {
  LabelledText text;
  for (std::size_t i = 0; i < count; ++i)
    text.add("text " + std::to_string(i), i < count / 2 ? "a" : "b", "file:" + std::to_string(i + 1));
  return text;
}

}  // namespace

TEST_CASE("labelled text: members of members by a dot, and lists of labels") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& lines, LabelledOptions options) {
    write_file_atomically(folder / "data.jsonl", lines);
    return read_labelled_text((folder / "data.jsonl").string(), options);
  };
  const std::string nested =
      R"({"user": {"name": "x"}, "review": {"text": "fine", "said": {"stars": 5}}, "a.b": "c"})"
      "\n";
  LabelledOptions options;
  options.label_column = "review.said.stars";
  options.text_columns = {"review.text", "a.b"};
  const LabelledText text = read(nested, options);
  CHECK(text.labels[0] == "5");
  CHECK(text.texts[0] == "fine c");
  options.label_column = "review.said.moons";
  CHECK_THROWS_WITH_AS(read(nested, options), doctest::Contains("\"review.said.stars\""), Error);
  const std::string lists = R"({"text": "one", "label": ["a", "b"]})"
                            "\n"
                            R"({"text": "two", "label": []})"
                            "\n";
  CHECK_THROWS_WITH_AS(read(lists, {}), doctest::Contains("must be a text"), Error);
  const LabelledText several = read(lists, {.label_separator = "|"});
  CHECK(several.labels[0] == "a|b");
  CHECK(several.labels[1].empty());
  CHECK_THROWS_WITH_AS(read(R"({"text": "one", "label": ["a|b"]})"
                            "\n",
                            {.label_separator = "|"}),
                       doctest::Contains("expected texts without"), Error);
}

TEST_CASE("Labelled lines: a label, a space and a text, which may be empty") {
  const TemporaryFolder folder;
  const fs::path path = write_content(folder / "lines", "0 so  it goes \r\npos one\n1 \n1\n0 caf\xc3\xa9");
  const LabelledText text = read_labelled_text(path, lines_format);
  CHECK(text.labels == Names{"0", "pos", "1", "1", "0"});
  CHECK(text.texts == Names{"so  it goes ", "one", "", "", "caf\xc3\xa9"});
  CHECK(text.places[2] == path.string() + ":3");

  const fs::path windows = write_content(folder / "windows", "0 caf\xe9\n1 it\x92s\n");
  CHECK(contains(error_of([&] { read_labelled_text(windows, lines_format); }), windows.string() + ":1: "));
  CHECK(read_labelled_text(windows, {.format = "lines", .text = {.encoding = Encoding::cp1252}}).texts ==
        Names{"caf\xc3\xa9", "it\xe2\x80\x99s"});
  CHECK(contains(
      error_of([&] { read_labelled_text(write_content(folder / "gap", "0 a\n\n1 b\n"), lines_format); }),
      "gap:2: "));
  CHECK(contains(
      error_of([&] { read_labelled_text(write_content(folder / "space", "0 a\n b\n"), lines_format); }),
      "space:2: "));
  CHECK(contains(error_of([&] { read_labelled_text(write_content(folder / "empty", ""), lines_format); }),
                 "empty"));
  CHECK(contains(error_of([&] { read_labelled_text(folder / "none", lines_format); }), "none"));
}

TEST_CASE("Labels that would break a line of answers, or JSON, are refused with their place") {
  const auto refused = [](const std::string& bytes, const char* format, const char* place) {
    CHECK_THROWS_WITH_AS(read_labelled_text({bytes, "x"}, {.format = format}), doctest::Contains(place),
                         Error);
  };
  refused("a,one\n\"b\nc\",two\n", "csv", "x:2: the label \"b\\x0ac\"");
  refused("{\"label\":\"a\\rb\",\"text\":\"one\"}\n", "jsonl", "x:1: the label");
  refused(std::string(1'000'000, 'b') + " one\n", "lines", "bbb…\" has 1000000 bytes");
  const TemporaryFolder folder;
  write_content(folder / "all" / "caf\xe9" / "1", "one");
  CHECK_THROWS_WITH_AS(read_labelled_text(folder / "all", {}), doctest::Contains("is not UTF-8"), Error);
}

TEST_CASE("CSV: quotes as RFC 4180 has them, and a backslash is no escape") {
  CHECK(fields_of("3,a b,\n") == Names{"3", "a b", ""});
  CHECK(fields_of("\"3\",\"a, b\",\"he said \"\"no\"\"\"\r\n") == Names{"3", "a, b", "he said \"no\""});
  CHECK(fields_of("\"DMCA.  \\\",3") == Names{"DMCA.  \\", "3"});
  CHECK(fields_of("\"\",\"\"\"\"") == Names{"", "\""});
  CHECK(fields_of("\"two\nlines\",1") == Names{"two\nlines", "1"});
  const auto rows = csv_rows("1,\"a\n\nb\"\n2,c\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].fields[1] == "a\n\nb");
  CHECK(rows[1].line == 4);
}

TEST_CASE("CSV that is not well formed is named with its line") {
  const auto error = [](const std::string& bytes) { return error_of([&] { csv_rows(bytes); }); };
  CHECK(contains(error("1,a\n2,b \"c\"\n"), "rows:2: a quote"));
  CHECK(contains(error("1,a\n\"2\" ,b\n"), "rows:2: expected a comma"));
  CHECK(contains(error("1,a\n2,\"b\nc\n"), "rows:2: a quoted field is never closed"));
  CHECK(contains(error("1,\"a\nb\"\n2,b,c\n"), "rows:3: the row has 3 fields"));
  CHECK(contains(error("\n\n"), "rows: there are 2 lines, but all are blank"));
  CHECK(contains(error("1,caf\xe9\n"), "rows:1: "));
  CHECK(contains(error(""), "empty"));
}

TEST_CASE("Rows that cannot be read are errors, or dropped and counted; an array of objects is a table") {
  const auto read = [](const std::string& name, const std::string& content, BadRows bad_rows) {
    LabelledOptions options;
    options.text.bad_rows = bad_rows;
    ReadReport report;
    const LabelledText text = read_labelled_text(TextInput(content, name), options, &report);
    return std::tuple(text.size(), report.bad_rows, report.first_bad_row);
  };
  const std::string csv = "label,text\na ,x y\nb,5\" z\nb,u v,w\nb,w x\na,z y\n";
  CHECK_ERROR(read("f.csv", csv, BadRows::error),
              "f.csv:3: a quote inside an unquoted field: 5\" z; data.on_bad_rows=drop");
  const auto expected = std::tuple(std::size_t{3}, std::int64_t{2},
                                   std::string("f.csv:3: a quote inside an unquoted field: 5\" z"));
  CHECK(read("f.csv", csv, BadRows::drop) == expected);
  CHECK_ERROR(read("f.csv", csv + "b,\"open\nb,c d\n", BadRows::drop),
              "f.csv:7: a quoted field is never closed");
  CHECK_ERROR(read("f.tsv", "label;text\na;x y\n", BadRows::error), "a single field; is data.format right");
  const std::string lines =
      "{\"label\": \"a\", \"text\": \"x y\"}\n{\"label\": \n7\n{\"label\": \"b\", \"text\": \"z\"}\n";
  CHECK(std::get<1>(read("f.jsonl", lines, BadRows::drop)) == 2);
  const std::string array = "[{\"label\": \"a \", \"text\": \"x y\"},\n {\"label\": \"b\", \"text\": \"z\"}]";
  CHECK(std::get<0>(read("f.json", array, BadRows::error)) == 2);
  CHECK_ERROR(read("f.json", "[{\"label\": \"a\", \"text\": \"x\"}, 7]", BadRows::drop),
              "f.json:2: expected a JSON object, not number");
  // A label of csv loses spaces at its end; one of JSON keeps them.
  CHECK(read_labelled_text(TextInput("label,text\na ,x y\na,z\n", "f.csv")).labels[0] == "a");
  CHECK(read_labelled_text(TextInput(array, "f.json")).labels[0] == "a ");
}

TEST_CASE("Labelled CSV: any column may be the label, and several may be the text") {
  const TemporaryFolder folder;
  const fs::path path =
      write_content(folder / "news.csv", "class,title,story\n3,\"A, b\",c\n4,d,\"e\"\"\"\n");
  LabelledOptions columns;
  columns.header = Header::present;
  const LabelledText all = read_labelled_text(path, columns);
  CHECK(all.labels == Names{"3", "4"});
  CHECK(all.texts == Names{"A, b c", "d e\""});
  CHECK(all.places[0] == path.string() + ":2");
  columns.label_column = "2";
  columns.text_columns = {"3", "class"};
  CHECK(read_labelled_text(path, columns).texts == Names{"c 3", "e\" 4"});
  columns.text_columns = {"4"};
  CHECK(contains(error_of([&] { read_labelled_text(path, columns); }), "no column 4"));
  CHECK(contains(error_of([&] { read_labelled_text(write_content(folder / "one.csv", "a\nb\n")); }),
                 "no text"));
  CHECK(contains(error_of([&] { read_labelled_text(write_content(folder / "gap.csv", "1,a\n,b\n")); }),
                 "gap.csv:2: "));
}

TEST_CASE("Folders of documents: a folder for each class, a file for each document") {
  const TemporaryFolder folder;
  const fs::path root = folder / "set";
  write_content(root / "pos" / "2_9.txt", "good\r\nfilm\n");
  write_content(root / "pos" / "1_7.txt", "fine");
  write_content(root / "neg" / "1_1.txt", "bad \xc3\xa9");
  for (const char* hidden : {".DS_Store", ".git/config", "pos/.DS_Store", "pos/.ipynb_checkpoints/1_7.txt"})
    write_content(root / hidden, "\xff");
  const LabelledText text = read_labelled_text(root);
  CHECK(text.labels == Names{"neg", "pos", "pos"});
  CHECK(text.texts == Names{"bad \xc3\xa9", "fine", "good\nfilm"});
  CHECK(text.places[2] == (root / "pos" / "2_9.txt").string());

  write_content(root / "neg" / "2_1.txt", "a\ncaf\xe9\n");
  CHECK(contains(error_of([&] { read_labelled_text(root); }), "2_1.txt:2: "));
  CHECK(read_labelled_text(root, {.text = {.encoding = Encoding::latin1}}).texts[1] == "a\ncaf\xc3\xa9");
  write_content(root / "neg" / "2_1.txt", "");
  CHECK(contains(error_of([&] { read_labelled_text(root); }), "2_1.txt"));
  fs::remove(root / "neg" / "2_1.txt");
  write_content(root / "urls.txt", "x");
  CHECK(contains(error_of([&] { read_labelled_text(root); }), "urls.txt"));
  fs::remove(root / "urls.txt");
  fs::create_directories(root / "neg" / "deep");
  CHECK(contains(error_of([&] { read_labelled_text(root); }), "deep"));
  CHECK(contains(error_of([&] { read_labelled_text(folder / "none", {.format = "folders"}); }), "none"));
}

TEST_CASE("Labelled text: a folder of files has a class in each, a text on each line") {
  const TemporaryFolder folder;
  write_content(folder / "polarity" / "p.neg", "bad film\r\nno\n");
  write_content(folder / "polarity" / "p.pos", "good film\n");
  for (const char* format : {"", "folders", "lines"}) {
    const LabelledText text = read_labelled_text(folder / "polarity", {.format = format});
    CHECK(text.texts == Names{"bad film", "no", "good film"});
    CHECK(text.labels == Names{"p.neg", "p.neg", "p.pos"});
    CHECK(text.places[1] == (folder / "polarity" / "p.neg").string() + ":2");
  }
  write_content(folder / "polarity" / "p.pos", "good film\n\nfine\n");
  CHECK(contains(error_of([&] { read_labelled_text(folder / "polarity"); }), "p.pos:2: the line is empty"));
  write_content(folder / "polarity" / "p.pos", "");
  CHECK(contains(error_of([&] { read_labelled_text(folder / "polarity"); }), "p.pos"));
  fs::remove(folder / "polarity" / "p.pos");
  fs::remove(folder / "polarity" / "p.neg");
  CHECK(contains(error_of([&] { read_labelled_text(folder / "polarity"); }), "the folder is empty"));
}

TEST_CASE("Labelled text: a folder of data sets is not taken for one of classes, unless the format says so") {
  const TemporaryFolder folder;
  const fs::path trec = folder / "trec", parts = folder / "parts";
  write_content(trec / "train.all", "num when ?\n");
  write_content(trec / "train.l", "0\n");
  for (const char* format : {"", "lines"}) {
    const std::string message = error_of([&] { read_labelled_text(trec, {.format = format}); });
    CHECK(contains(message,
                   "\"train.all\" does not look like the name of a class; the folder holds \"train.all\", "
                   "\"train.l\". Name the training file, such as data.file=" +
                       (trec / "train.all").string() + " and data.format=lines"));
  }
  CHECK(read_labelled_text(trec, {.format = "folders"}).labels == Names{"train.all", "train.l"});
  write_content(parts / "Test" / "1", "a");
  write_content(parts / "train" / "1", "b");
  CHECK(contains(error_of([&] { read_labelled_text(parts); }), "others with data.valid or data.test"));
  CHECK(read_labelled_text(parts, {.format = "folders"}).labels == Names{"Test", "train"});
  for (const char* name : {"reviews.csv", "b.jsonl.gz", "README", "dev.txt", "test_2"}) {
    CAPTURE(name);
    write_content(folder / name / "good.txt", "a\n");
    CHECK(read_labelled_text(folder / name).labels == Names{"good.txt"});
    write_content(folder / name / name, "a\n");
    CHECK(contains(error_of([&] { read_labelled_text(folder / name); }), "does not look like"));
  }
  for (const char* name : {"devices", "tests", "trains.txt", "p.pos"}) {
    CAPTURE(name);
    CHECK(read_labelled_text(write_content(folder / "classes" / name, "a\n").parent_path()).size() > 0);
  }
}

TEST_CASE("Labelled tables: columns have usual names, and texts are read without a label") {
  const auto labelled = [](std::string_view bytes, LabelledOptions options = {}) {
    options.format = "csv";
    return read_labelled_text({bytes, "f"}, options);
  };
  const LabelledText named = labelled("text,label\n\"so, it goes\",good\nno,bad\n");
  CHECK(named.labels == Names{"good", "bad"});
  CHECK(named.columns == Names{"label", "text"});
  CHECK(labelled("text,label\na,b\n", {.label_column = "1"}).columns == Names{"text", "label"});
  CHECK(labelled("b,a\n").columns == Names{"1", "2"});
  CHECK(labelled("label,\nb,a\n", {.header = Header::present}).columns ==
        Names{"1", "2"});  // one has no name
  CHECK(labelled("b,a\n", {.label_column = "1", .text_columns = {"2"}}).columns.empty());

  const std::string gaps = "text,label\na,good\nb,\n,bad\nc,bad\n";
  CHECK(contains(error_of([&] { labelled(gaps); }),
                 "f:3: the label in column label is empty; data.missing=drop"));
  ReadReport report;
  const LabelledOptions dropping = {.format = "csv", .drop_missing = true};
  CHECK(read_labelled_text({gaps, "f"}, dropping, &report).labels == Names{"good", "bad"});
  CHECK(report.missing == 2);
  CHECK(contains(error_of([&] { labelled("text,label\na,\n,b\n", dropping); }), "every row lacks"));
  const std::string lines = "{\"text\":\"a\",\"label\":1}\n{\"text\":null,\"label\":2}\n{\"text\":\"b\"}\n";
  const LabelledOptions of_lines = {
      .format = "jsonl", .label_column = "label", .text_columns = {"text"}, .drop_missing = true};
  CHECK(read_labelled_text({lines, "f"}, of_lines).labels == Names{"1"});

  using Rows = std::vector<std::pair<std::string, Names>>;
  const auto texts = [](std::string_view bytes, LabelledOptions options, std::string format = "csv") {
    options.format = std::move(format);
    Rows rows;
    ReadReport report;
    read_texts_of_table(
        {bytes, "f"}, options,
        [&](std::string text, const TableCells& row) {
          rows.emplace_back(std::move(text), Names(row.row.begin(), row.row.end()));
        },
        &report);
    CHECK((contains(report.remarks.back(), "f: the text is read from the column") ||
           contains(report.remarks.back(), "f: reads the text from ")));
    return rows;
  };
  const LabelledOptions by_name{.label_column = "label", .text_columns = {"text"}};
  CHECK(texts("id,text\n7,\"a\nb\"\n", by_name) == Rows{{"a\nb", {"7", "a\nb"}}});
  CHECK(texts("text,label,id\na,b,7\n", {.label_column = "label"}) == Rows{{"a", {"a", "b", "7"}}});
  CHECK(texts("text,id\na,7\n", {.label_column = "label"}) == Rows{{"a", {"a", "7"}}});
  CHECK(texts("b,a\n", {}) == Rows{{"a", {"b", "a"}}});
  CHECK(texts("a,b\n", {.label_column = "2"}) == Rows{{"a", {"a", "b"}}});
  CHECK(texts("{\"text\": \"a\", \"label\": 3}\n", {}, "jsonl") ==
        Rows{{"a", {"{\"text\": \"a\", \"label\": 3}"}}});
  const LabelledOptions pairs{.label_column = "3", .text_columns = {"1"}, .second_column = "2"};
  CHECK(texts("\"a\tb\",c\n", pairs) == Rows{{"a b\tc", {"a\tb", "c"}}});
  CHECK(texts("a\n", {}) == Rows{{"a", {"a"}}});
  CHECK(contains(error_of([&] { texts("a a\n", {}, "lines"); }), "a table is expected"));
}

TEST_CASE("Classes have a fixed order, and an unknown label is named with its place") {
  LabelledText text;
  text.add("x", "pos", "file:1");
  text.add("y", "neg", "file:2");
  text.add("z", "pos", "file:3");
  CHECK(class_names(text) == Names{"neg", "pos"});
  CHECK(classes_of(text, class_names(text)) == std::vector<std::int32_t>{1, 0, 1});
  CHECK(contains(error_of([&] { classes_of(text, Names{"a", "pos"}); }), "file:2: the label \"neg\""));
  CHECK(error_of([&] { classes_of(text, Names(20, std::string(10'000, 'x'))); }).size() < 2500);
  text.labels = {"10", "9", "-10", "-9", "0", "123456789012345678901"};
  CHECK(class_names(text) == Names{"-10", "-9", "0", "9", "10", "123456789012345678901"});
  CHECK(class_names(text, false).front() == "-10");
  text.labels = {"10", "9", "09"};  // no integer
  CHECK(class_names(text) == Names{"09", "10", "9"});
  text.labels = {"pos", "pos", "pos"};
  CHECK(contains(error_of([&] { class_names(text); }), "two classes"));
}

TEST_CASE("The parts of a text are fixed by the seed and hold every text once") {
  const LabelledText text = numbered(1000);
  const TextParts parts = split_text(text, {.valid_fraction = 0.1, .test_fraction = 0.2, .seed = 3});
  CHECK(parts.test.size() == 200);
  CHECK(parts.valid.size() == 100);
  CHECK(parts.train.size() == 700);
  std::set<std::string> all;
  for (const LabelledText* part : {&parts.train, &parts.valid, &parts.test})
    all.insert(part->texts.begin(), part->texts.end());
  CHECK(all.size() == 1000);
  // The data is sorted by class, and no part is.
  const auto share = std::count(parts.valid.labels.begin(), parts.valid.labels.end(), "a");
  CHECK(share > 30);
  CHECK(share < 70);

  CHECK(split_text(text, {.valid_fraction = 0.3, .test_fraction = 0.2, .seed = 3}).test.texts ==
        parts.test.texts);
  CHECK(split_text(text, {.valid_fraction = 0.1, .test_fraction = 0.2, .seed = 4}).test.texts !=
        parts.test.texts);
  CHECK(split_text(text, {}).train.texts == text.texts);
  CHECK(contains(error_of([&] { split_text(text, {.valid_fraction = 0.5, .test_fraction = 0.5}); }),
                 "fractions"));
  CHECK(contains(error_of([&] { split_text(text, {.valid_fraction = -0.5}); }), "fractions"));
}

TEST_CASE("ListOps: values, lengths and shape of the expressions are those of the rule") {
  ListOpsRule rule;
  rule.max_depth = 4;
  rule.max_arguments = 5;
  rule.longer_than = 3;
  rule.shorter_than = 40;
  const LabelledText text = draw_listops(7, 2000, rule);
  REQUIRE(text.size() == 2000);
  CHECK(std::set(text.texts.begin(), text.texts.end()).size() == 2000);
  std::int64_t nested = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string expression(text.texts[i]);
    CAPTURE(expression);
    CHECK(std::to_string(value_of(expression)) == text.labels[i]);
    CHECK(length_of(expression) > 3);
    CHECK(length_of(expression) < 40);
    std::int64_t depth = 0, deepest = 0;
    for (const char c : expression) {
      depth += c == '[' ? 1 : c == ']' ? -1 : 0;
      deepest = std::max(deepest, depth);
    }
    CHECK(deepest <= 3);  // at the largest depth there are only digits
    nested += deepest > 1 ? 1 : 0;
  }
  CHECK(nested > 500);
  for (const char* name : {"[MIN", "[MAX", "[MED", "[SM"}) {
    const auto starts = [&](std::string_view one) { return one.starts_with(std::string(name) + " "); };
    CHECK(std::count_if(text.texts.begin(), text.texts.end(), starts) > 300);
  }
}

TEST_CASE("ListOps: the same seed gives the same expressions, and the benchmark's lengths can be had") {
  const LabelledText few = draw_listops(1, 3), more = draw_listops(1, 5), other = draw_listops(2, 3);
  CHECK(std::equal(few.texts.begin(), few.texts.end(), more.texts.begin()));
  CHECK(few.texts != other.texts);
  for (const std::string& expression : more.texts.strings()) {
    CHECK(length_of(expression) > 500);
    CHECK(length_of(expression) < 2000);
  }
  ListOpsRule narrow;
  narrow.longer_than = 3;
  narrow.shorter_than = 5;
  narrow.max_depth = 2;
  // [OP a b] has length 4: there are 400 of them.
  CHECK(draw_listops(1, 400, narrow).size() == 400);
  CHECK(contains(error_of([&] { draw_listops(1, 401, narrow); }), "hardly any"));
  CHECK(contains(error_of([&] { draw_listops(1, 1, {.max_arguments = 1}); }), "max_arguments"));
}

TEST_CASE("Tab-separated values: all but tabs is text") {
  const auto rows = tsv_rows("1\t\"a\", \"\"b\n\n2\t\r\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].fields == Names{"1", "\"a\", \"\"b"});
  CHECK(rows[1].fields == Names{"2", ""});
  CHECK(rows[1].line == 3);
  CHECK(contains(error_of([] { tsv_rows("1\ta\n2\n"); }), "rows:2: the row has 1 fields"));

  const TemporaryFolder folder;
  const fs::path path =
      write_content(folder / "pairs.tsv", "\xEF\xBB\xBFlabel\tone\ttwo\n1\tsay \"a\tb\n0\tc\td\n");
  const LabelledText text = read_labelled_text(path, {.header = Header::present});
  CHECK(text.labels == Names{"1", "0"});
  CHECK(text.texts == Names{"say \"a b", "c d"});
  CHECK(text.places[0] == path.string() + ":2");
}

TEST_CASE("Labelled JSON lines: a label is a text or a number") {
  const TemporaryFolder folder;
  const fs::path path = write_content(folder / "a.jsonl", R"({"label": 3, "title": "a", "text": "b c"})"
                                                          "\n"
                                                          R"({"text": "", "title": "d", "label": "bad"})");
  const LabelledText all = read_labelled_text(path);
  CHECK(all.labels == Names{"3", "bad"});
  CHECK(all.texts == Names{"a b c", "d "});
  CHECK(all.places[1] == path.string() + ":2");
  CHECK(read_labelled_text(path, {.label_column = "title", .text_columns = {"text"}}).labels ==
        Names{"a", "d"});
  CHECK(contains(error_of([&] { read_labelled_text(path, {.label_column = "class"}); }),
                 "a.jsonl:1: there is no \"class\" among \"label\", \"title\", \"text\""));
  CHECK(contains(error_of([&] { read_labelled_text(write_content(folder / "b.jsonl", "{\"label\": 1}\n")); }),
                 "no text"));
}

TEST_CASE("The name tells how labelled texts are laid out, or the format is named") {
  CHECK(labelled_formats() == Names{"lines", "csv", "tsv", "jsonl", "folders"});
  const TemporaryFolder folder;
  CHECK(read_labelled_text(write_content(folder / "a.csv", "1,\"a\tb\"\n")).texts == Names{"a\tb"});
  CHECK(read_labelled_text(write_content(folder / "a.tsv", "1\t\"a\"\n")).texts == Names{"\"a\""});
  const fs::path plain = write_content(folder / "subj.all", "1 a,b\n");
  CHECK(contains(error_of([&] { read_labelled_text(plain); }), "give data.format=lines or data.format=csv"));
  CHECK(read_labelled_text(plain, lines_format).texts == Names{"a,b"});
  CHECK(read_labelled_text(plain, {.format = "csv"}).labels == Names{"1 a"});
  CHECK(read_labelled_text(folder / "a.csv", lines_format).size() == 1);
  CHECK(contains(error_of([&] { read_labelled_text(plain, {.format = "xml"}); }), "unknown format"));
  CHECK(contains(error_of([&] { read_labelled_text(folder / "none.csv"); }),
                 "none.csv: there is no such file"));
  CHECK(contains(error_of([&] {
                   read_labelled_text({"1 a", "f"}, {.format = "folders"});
                 }),
                 "not of the format"));
  // Options of columns say nothing about lines.
  CHECK(contains(error_of([&] { read_labelled_text(plain, {.format = "lines", .header = Header::present}); }),
                 "csv and tsv"));
}

TEST_CASE("Every format reads with the options of texts, and counts what it replaced") {
  const TextOptions replace{.bad_bytes = BadBytes::replace};
  for (const std::string bytes : {"a caf\xe9", "a,caf\xe9", "a\tcaf\xe9"}) {
    CAPTURE(bytes);
    const std::string format = bytes[1] == ' ' ? "lines" : bytes[1] == ',' ? "csv" : "tsv";
    ReadReport report;
    CHECK(read_labelled_text({bytes, "f"}, {.format = format, .text = replace}, &report).texts[0] ==
          "caf\uFFFD");
    CHECK(report.replaced == 1);
    CHECK(contains(error_of([&] { read_labelled_text({bytes, "f"}, {.format = format}); }), "f:1: byte"));
    CHECK(contains(error_of([&] {
                     read_labelled_text({bytes, "f"}, {.format = format, .text = {.max_bytes = 3}});
                   }),
                   "data.max_bytes"));
  }
  const TemporaryFolder folder;
  write_content(folder / "set" / "a" / "1", "caf\xe9");
  ReadReport report;
  CHECK(read_labelled_text(folder / "set", {.text = replace}, &report).texts[0] == "caf\uFFFD");
  CHECK(report.replaced == 1);
}

TEST_CASE("Folders of documents hold regular files only") {
  const TemporaryFolder folder;
  write_content(folder / "set" / "a" / "1", "text");
  const fs::path pipe = folder / "set" / "a" / "2";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(contains(error_of([&] { read_labelled_text(folder / "set"); }),
                 pipe.string() + ": expected a document, but this is not a regular file"));
  fs::remove(pipe);
  fs::create_symlink(folder / "nowhere", pipe);
  CHECK(contains(error_of([&] { read_labelled_text(folder / "set"); }), pipe.string()));
}

TEST_CASE("Stratified parts have the same share of every class") {
  LabelledText text = numbered(1000);
  for (std::size_t i = 0; i < 40; ++i) set_label(text, i * 25, "rare");
  const SplitOptions options{.valid_fraction = 0.1, .test_fraction = 0.25, .seed = 5, .stratified = true};
  const TextParts parts = split_text(text, options);
  const auto count = [](const LabelledText& part, const char* label) {
    return std::count(part.labels.begin(), part.labels.end(), label);
  };
  CHECK(count(parts.test, "rare") == 10);
  CHECK(count(parts.valid, "rare") == 4);
  CHECK(count(parts.train, "rare") == 26);
  CHECK(count(parts.test, "a") == 120);
  CHECK(count(parts.test, "b") == 120);
  CHECK(parts.train.size() + parts.valid.size() + parts.test.size() == 1000);
  SplitOptions larger = options;
  larger.valid_fraction = 0.4;
  CHECK(split_text(text, larger).test.texts == parts.test.texts);
}

TEST_CASE("Stratified, every class keeps a text in training, and small classes are held out by turns") {
  LabelledText text = numbered(1000);
  const auto count = [](const LabelledText& part, const std::string& label) {
    return std::count(part.labels.begin(), part.labels.end(), label);
  };
  set_label(text, 7, "once");
  for (std::size_t i = 0; i < 40; ++i) set_label(text, i * 25, concat_text("twice ", i / 2));
  SplitOptions options{.valid_fraction = 0.3, .test_fraction = 0.6, .seed = 5, .stratified = true};
  const TextParts parts = split_text(text, options);
  CHECK(count(parts.train, "once") == 1);
  std::size_t held_out = 0;
  for (int i = 0; i < 20; ++i) {
    CHECK(count(parts.train, concat_text("twice ", i)) == 1);
    held_out += static_cast<std::size_t>(count(parts.test, concat_text("twice ", i)));
  }
  CHECK(held_out > 10);
  options.valid_fraction = 0;
  CHECK(split_text(text, options).test.texts == parts.test.texts);

  // the shares are those of the whole, however many classes there are
  LabelledText many;
  for (int i = 0; i < 600; ++i) many.add("text", concat_text("class ", i % 150), "f");
  CHECK(split_text(many, {.valid_fraction = 0.05, .stratified = true}).valid.size() == 30);
  std::multiset<std::string> classes_tested;
  for (std::int64_t fold = 1; fold <= 10; ++fold) {
    const TextParts one =
        split_text(many, {.valid_fraction = 0.05, .stratified = true, .folds = 10, .fold = fold});
    CHECK(one.test.size() == 60);
    CHECK(one.valid.size() == 27);
    classes_tested.insert(one.test.labels.begin(), one.test.labels.end());
  }
  for (int i = 0; i < 150; ++i) CHECK(classes_tested.count(concat_text("class ", i)) == 4);
  std::ptrdiff_t tested = 0;
  for (std::int64_t fold = 1; fold <= 5; ++fold)
    tested += count(split_text(text, {.stratified = true, .folds = 5, .fold = fold}).test, "once");
  CHECK(tested == 0);  // there would be nothing to learn it from
}

TEST_CASE("Stratified, the class of pairs with one first text is the rarest among them") {
  LabelledText text;
  for (int i = 0; i < 100; ++i) {
    text.add_pair(concat_text("question ", i), "wrong", "0", "f");
    text.add_pair(concat_text("question ", i), "right", i == 50 ? "only" : i % 10 == 0 ? "1" : "0", "f");
  }
  const TextParts parts = split_text(text, {.valid_fraction = 0.3, .test_fraction = 0.3, .stratified = true});
  CHECK(std::count(parts.train.labels.begin(), parts.train.labels.end(), "only") == 1);
  CHECK(std::count(parts.test.labels.begin(), parts.test.labels.end(), "1") == 3);
}

TEST_CASE("Folds: every text is a test text once, and all parts follow the seed") {
  const LabelledText text = numbered(103);
  std::multiset<std::string> tested;
  for (std::int64_t fold = 1; fold <= 5; ++fold) {
    const TextParts parts = split_text(text, {.valid_fraction = 0.25, .seed = 3, .folds = 5, .fold = fold});
    tested.insert(parts.test.texts.begin(), parts.test.texts.end());
    CHECK((parts.test.size() == 20 || parts.test.size() == 21));
    CHECK(parts.valid.size() == (103 - parts.test.size() + 2) / 4);
    std::set<std::string> all;
    for (const LabelledText* part : {&parts.train, &parts.valid, &parts.test})
      all.insert(part->texts.begin(), part->texts.end());
    CHECK(all.size() == 103);
  }
  CHECK(tested.size() == 103);
  CHECK(std::set(tested.begin(), tested.end()).size() == 103);
  LabelledText rare = text;
  for (std::size_t i = 0; i < 10; ++i) set_label(rare, i * 9, "rare");
  const TextParts one = split_text(rare, {.seed = 3, .stratified = true, .folds = 5, .fold = 4});
  CHECK(std::count(one.test.labels.begin(), one.test.labels.end(), "rare") == 2);
  for (const auto& [folds, fold] : {std::pair{5, 6}, {5, 0}, {1, 1}, {104, 1}})
    CHECK_THROWS_AS(split_text(text, {.folds = folds, .fold = fold}), Error);
  set_label(rare, 50, "once");
  CHECK(contains(error_of([&] { split_text(rare, {.folds = 5, .fold = 1}); }),
                 "the class \"once\" has one text"));
  CHECK_NOTHROW(split_text(rare, {}));
}

TEST_CASE("Pairs: columns of a table, and those with the same first text stay in one part") {
  LabelledOptions options{.format = "tsv", .label_column = "3", .text_columns = {"1"}};
  options.second_column = "2";
  const LabelledText few = read_labelled_text({"q\ta\t1\nq\t\t0\nr\ta\t0\nq\tb\t1\n", "f"}, options);
  CHECK(few.texts == Names{"q", "q", "r", "q"});
  CHECK(few.seconds == Names{"a", "", "a", "b"});
  CHECK(few.labels == Names{"1", "0", "0", "1"});
  CHECK(group_by_first_text(few) == std::vector<std::size_t>{0, 0, 1, 2});
  options.second_column = "4";
  CHECK(contains(error_of([&] {
                   read_labelled_text({"q\ta\t1\n", "f"}, options);
                 }),
                 "f:1: there is no column 4"));
  CHECK(group_by_first_text(numbered(3)) == std::vector<std::size_t>{0, 1, 2});

  LabelledText text;
  for (int i = 0; i < 300; ++i)
    text.add_pair("question " + std::to_string(i % 100), "answer " + std::to_string(i),
                  i % 3 == 1 ? "1" : "0", "f");
  const TextParts parts = split_text(text, {.valid_fraction = 0.1, .test_fraction = 0.2, .stratified = true});
  CHECK(parts.test.size() == 60);
  CHECK(parts.valid.size() == 30);
  CHECK(parts.test.seconds.size() == 60);
  std::set<std::string> of_train(parts.train.texts.begin(), parts.train.texts.end());
  for (const LabelledText* part : {&parts.valid, &parts.test})
    for (const std::string_view question : part->texts) CHECK_FALSE(of_train.contains(std::string(question)));
}

TEST_CASE("As many classes as texts take no more than n log n steps, and few words in errors") {
  LabelledText text;
  for (int i = 0; i < 200'000; ++i) text.add("x", "label " + std::to_string(i), "file");
  const double begin = cpu_seconds();
  const std::vector<std::string> classes = class_names(text);
  CHECK(classes_of(text, classes).size() == 200'000);
  CHECK(cpu_seconds() - begin < 10);  // the square of them takes minutes
  set_label(text, 5, "other");
  const std::string error = error_of([&] { classes_of(text, classes); });
  CHECK(error.size() < 1000);
  CHECK(contains(error, "and 199980 more"));
}

TEST_CASE("ListOps: numbers that no machine could follow are refused") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(contains(error_of([&] { draw_listops(1, 1, {.max_arguments = most}); }), "max_arguments"));
  CHECK(contains(error_of([&] { draw_listops(1, 1, {.max_depth = most}); }), "max_depth"));
  CHECK(contains(error_of([&] { draw_listops(1, 1, {.shorter_than = most}); }), "shorter_than"));
  CHECK(contains(error_of([&] { draw_listops(1, most); }), "count"));
  CHECK(contains(error_of([&] { draw_listops(1, 1, {.operator_share = 2}); }), "operator_share"));
  // Every tree is as long as it may be, and none is kept.
  const double begin = cpu_seconds();
  const ListOpsRule vain{
      .max_depth = 1000, .operator_share = 1, .longer_than = 1'000'000, .shorter_than = 1'000'000};
  CHECK(contains(error_of([&] { draw_listops(1, 1, vain); }), "hardly any"));
  CHECK(cpu_seconds() - begin < 60);
}
