// A table that nobody has described: whether its first row is a header, and which columns are texts and labels,
// asked of small files as people have them, in several languages.

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/task.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/support.h"
#include "heed/tests/temporary_folder.h"

namespace {

using namespace heed;
using namespace heed::test;
using Lines = std::vector<std::string>;
using Json = nlohmann::json;

/// A cell of row `i`: of texts a beginning and an end, so that 30 rows differ; else one of the values in turn.
struct Column {
  Lines beginnings, ends = {};
  std::string at(std::size_t i) const {
    const std::string& begin = beginnings[i % beginnings.size()];
    return ends.empty() ? begin : begin + ends[i % ends.size()];
  }
};
const Column numbers = {{"id"}};  // the row's number

const Column english = {
    {"The film ", "This book ", "Her second album ", "A quiet play ", "The new series "},
    {"is a joy.", "drags on", "has no heart at all.", "surprised us!", "ends well", "was far too long"}};
const Column german = {{"Das Zimmer ", "Der Kellner ", "Unser Bad ", "Die Aussicht ", "Das Frühstück "},
                       {"war leider kalt.", "hat uns gefallen", "ist eine Frechheit!", "war sauber",
                        "lässt zu wünschen übrig", "übertraf alles."}};
const Column german_too = {{"Es ", "Man ", "Ein Gast ", "Niemand ", "Jeder "},
                           {"fand es kalt.", "lobt das Haus", "kommt gern wieder.", "war zufrieden",
                            "hat sich beschwert", "schläft dort gut."}};
const Column french = {
    {"Le repas ", "Ce vin ", "Notre serveur ", "La carte ", "Le dessert "},
    {"était froid.", "nous a plu", "reste à oublier", "vaut le détour !", "déçoit", "est parfait."}};
const Column portuguese = {{"Esse político ", "A imprensa ", "Meu vizinho ", "O povo ", "Ela "},
                           {"não sabe nada", "disse a verdade!", "precisa trabalhar", "mente sempre",
                            "merece respeito", "some daqui"}};
const Column russian = {
    {"Вчера Иван ", "Этим летом сосед ", "На балконе кот ", "Утром врач ", "Здесь никто "},
    {"не позвонил.", "долго спал.", "поехал в город.", "читает книгу.", "молчит.", "ждал весны."}};
const Column marathi = {{"हे सरकार ", "आमचा नेता ", "हा निर्णय ", "तो माणूस ", "ही बातमी "},
                        {"बरोबर आहे", "खोटे बोलते", "लोकांना आवडला", "फसवा आहे", "महत्वाची ठरली", "वाईट होती"}};
const Column chinese = {
    {"房间很干净，", "早餐不好，", "服务员热情，", "位置方便，", "隔音太差，"},
    {"下次还会来。", "不推荐。", "价格合理。", "朋友也喜欢。", "有点失望。", "值得一住。"}};
const Column japanese = {{"この商品は", "配送が", "店員さんは", "色合いが", "説明書は"},
                         {"とても良かったです。", "思ったより遅い。", "親切でした。", "期待外れ。",
                          "分かりにくい。", "気に入りました。"}};
const Column korean = {{"그는 오늘 ", "엄마가 ", "버스는 ", "우리 학교는 ", "친구가 "},
                       {"집에 왔다.", "전화를 걸었다.", "한마디도 하지 않았다.", "늦게 떠났다.",
                        "웃고 있었다.", "밥을 먹었다."}};
const Column korean_too = {{"누군가 ", "아무도 ", "사람이 ", "여자가 ", "아이가 "},
                           {"도착했다.", "말을 했다.", "조용했다.", "기다렸다.", "기뻤다.", "배가 고팠다."}};
const Column arabic = {
    {"هذا الخبر ", "فريقنا ", "الحكومة ", "هذه المدينة ", "صديقي "},
    {"جميل جدا", "خسر المباراة", "تكذب علينا", "تستحق الزيارة", "لا يعرف شيئا", "وصل أمس"}};
const Column persian = {
    {"این کتاب ", "شهر تهران ", "باران ", "معلم ما ", "این جنگ "},
    {"در قرن ششم نوشته شد.", "بسیار بزرگ است.", "دیروز بارید.", "مهربان بود.", "پایان یافت.", "فراموش شد."}};
const Column persian_too = {
    {"کتابی ", "پایتخت ", "هوا ", "مدرسه ", "صلح "},
    {"قدیمی است.", "جمعیت دارد.", "خشک ماند.", "تعطیل شد.", "برقرار شد.", "دور است."}};
const Column thai = {{"อาหารร้านนี้", "พนักงาน", "ห้องพัก", "วิวที่นี่", "ราคา"},
                     {"ดีมาก", "แย่ที่สุด", "น่าประทับใจ", "ไม่คุ้มเลย", "พอใช้ได้", "สวยงาม"}};
const Column questions = {{"how are glacier caves formed in the ice ?",
                           "what is the population of the old town ?",
                           "who wrote the first book about bees ?"}};
const Column addresses = {{"https://example.org/a/", "https://example.org/b/",
                           "http://example.com/c?d=", "www.e.org/", "https://f.net/"},
                          {"1", "2", "30", "4", "50", "6"}};
const Column days = {{"2024-01-1", "2024-02-1", "2023-11-2", "2024-03-0", "2022-12-0"},
                     {"1", "2", "3", "4", "5", "6"}};

std::string table(const std::string& header, const std::string& separator, const std::vector<Column>& columns,
                  std::size_t rows = 30) {
  std::string bytes = header.empty() ? "" : header + "\n";
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < columns.size(); ++k) {
      const bool is_number = columns[k].beginnings == numbers.beginnings;
      const std::string cell = is_number ? std::to_string(1000 + i * 37) : columns[k].at(i);
      bytes += (k == 0 ? "" : separator) + cell;
    }
    bytes += "\n";
  }
  return bytes;
}

/// What a task takes the columns of a file for: as its settings have them when the file was read.
struct Found {
  std::string label, error, said;
  Lines texts;
  std::size_t lines = 0;
};
Found found_in(const std::string& task, const std::string& file, const Lines& more = {}) {
  Found found;
  const TaskEntry& entry = task_entry(task);
  Lines settings = more;
  settings.push_back("data.file=" + file);
  settings.emplace_back("data.valid_fraction=0");
  try {
    const auto task = entry.make(small_settings_of(entry, settings, true));
    task->read_data();
    for (const std::string& line : task->take_remarks()) found.said += line + "\n";
    const Json data = Json::parse(task->settings().json())["data"];
    found.lines = task->example_lines(1000).size();
    if (!data.contains("label_column")) return found;
    found.label = data["label_column"];
    if (data.contains("text_columns"))
      found.texts = data["text_columns"].get<Lines>();
    else
      found.texts = {data["first_column"], data["second_column"]};
  } catch (const Error& error) {
    found.error = error.what();
  }
  return found;
}

struct File {
  const char *task, *name;
  std::string bytes;
  const char* label;  // its column, by name where there is a header
  Lines texts;
};

const Column two = {{"good", "bad"}}, three = {{"0", "1", "2"}}, stars = {{"5", "1", "3", "2", "4"}};

std::vector<File> small_files() {
  const std::string comma = ",", tab = "\t", semicolon = ";";
  return {
      // with a header
      {"classify", "en.csv", table("text,category", comma, {english, two}), "category", {"text"}},
      {"classify", "zh.csv", table("label,review", comma, {three, chinese}), "label", {"review"}},
      {"classify",
       "pt.csv",
       table("id,comentario,label_final", comma, {numbers, portuguese, two}),
       "label_final",
       {"comentario"}},
      {"classify",
       "mr.csv",
       table("tweet,label,political", comma, {marathi, three, {{"0", "-1"}}}),
       "label",
       {"tweet"}},
      {"classify",
       "de.csv",
       table("Bewertung;Thema", semicolon, {german, {{"Zimmer", "Essen", "Preis"}}}),
       "Thema",
       {"Bewertung"}},
      {"classify", "ja.csv", table("本文,分類", comma, {japanese, {{"良い", "悪い"}}}), "分類", {"本文"}},
      {"classify",
       "ar.tsv",
       table("النص\tالتصنيف", tab, {arabic, {{"سلبي", "إيجابي"}}}),
       "التصنيف",
       {"النص"}},
      {"classify", "fr.csv", table("avis,étoiles", comma, {french, stars}), "étoiles", {"avis"}},
      {"classify",
       "news.csv",
       table("link,headline,date,section", comma, {addresses, english, days, two}),
       "section",
       {"headline"}},
      {"classify",
       "index.csv",
       table(",kind,title,body", comma, {numbers, two, english, german}),
       "kind",
       {"title", "body"}},
      {"classify",
       "th.csv",
       table("ข้อความ,อารมณ์", comma, {thai, {{"pos", "neg", "neu"}}}),
       "อารมณ์",
       {"ข้อความ"}},
      {"match",
       "ko.tsv",
       table("sentence1\tsentence2\tgold_label", tab, {korean, korean_too, two}),
       "gold_label",
       {"sentence1", "sentence2"}},
      {"match",
       "de.tsv",
       table("label\tsatz A\tsatz B", tab, {two, german, german_too}),
       "label",
       {"satz A", "satz B"}},
      {"match",
       "fa.csv",
       table("premise\thypothesis\tlabel\thard(overlap)", tab,
             {persian, persian_too, {{"e", "c", "n"}}, {{"0", "1"}}}),
       "label",
       {"premise", "hypothesis"}},
      {"match",
       "ids.tsv",
       table("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", tab,
             {{{"1", "0"}}, numbers, numbers, german, german_too}),
       "Quality",
       {"#1 String", "#2 String"}},
      // without one
      {"classify", "plain.csv", table("", comma, {{{"3", "4", "1"}}, english, german}), "1", {"2", "3"}},
      {"classify", "last.csv", table("", comma, {english, three}), "2", {"1"}},
      {"classify", "plain_ar.tsv", table("", tab, {arabic, {{"OBJ", "NEG", "POS"}}}), "2", {"1"}},
      {"classify", "plain_zh.csv", table("", comma, {{{"好", "坏"}}, chinese}), "1", {"2"}},
      {"classify", "plain_ru.tsv", table("", tab, {numbers, russian, {{"да", "нет"}}}), "3", {"2"}},
      {"match", "plain_fa.tsv", table("", tab, {persian, persian_too, three}), "3", {"1", "2"}},
      {"match", "quora.tsv", table("", tab, {{{"1", "0"}}, german, german_too, numbers}), "1", {"2", "3"}},
      {"match",
       "wiki.tsv",
       table("", tab, {questions, english, {{"0", "0", "1", "0", "0"}}}),
       "3",
       {"1", "2"}},
  };
}

}  // namespace

TEST_CASE("Header, label and texts are found by the data, in small files of several languages") {
  const TemporaryFolder folder;
  for (const File& file : small_files()) {
    CAPTURE(file.name);
    const Found found = found_in(file.task, write_content(folder / file.name, file.bytes).string());
    CHECK(found.error == "");
    CHECK(found.label == file.label);
    CHECK(found.texts == file.texts);
    const bool is_named = !std::isdigit(static_cast<unsigned char>(file.label[0]));
    CHECK(contains(found.said, is_named ? "is read as a header; data.header=false"
                                        : "is read as data; data.header=true"));
    CHECK(contains(found.said, concat_text("the label from ", is_named ? "\"" : "column ", file.label)));
  }
}

TEST_CASE("One rule reads smaller tables, to learn from them and to answer them") {
  struct Small {
    const char* format;
    std::string bytes;
    Lines columns;  // label and texts
    Lines texts;
  };
  std::string many = "sentence,stars\n";
  for (int i = 0; i < 12; ++i) many += i % 2 == 0 ? "\"a fine film, truly\",1\n" : "\"dull, endless\",0\n";
  const Small learned[] = {
      {"csv",
       "sentence,stars\n\"a fine film, truly\",1\n\"dull, endless\",0\n",
       {"stars", "sentence"},
       {"a fine film, truly", "dull, endless"}},
      {"csv", "text,label,\na fine film,good,\ndull,bad,\n", {"label", "text"}, {"a fine film", "dull"}},
      {"csv", "a fine film,good,\ndull,bad,\nfine,good,\n", {"2", "1"}, {"a fine film", "dull", "fine"}},
      {"csv",
       "Kommentar;Note\nnett, aber laut;4\nlang;1\n",
       {"Note", "Kommentar"},
       {"nett, aber laut", "lang"}},
      {"csv", "4;nett, aber laut\n1;lang\n", {"1", "2"}, {"nett, aber laut", "lang"}},
      {"csv", "review_body,points\nfine,3\n", {"points", "review_body"}, {"fine"}},
      {"csv", "points,review_body\n3,fine\n", {"points", "review_body"}, {"fine"}},
      {"csv", "comment,verdict\na b,good\nc d,bad\ne f,good\n", {"2", "1"}, {"comment", "a b", "c d", "e f"}},
      {"csv",
       "comment,verdict,n\na b,up,1\nc d,up,2\ne f,no,9\n",
       {"verdict", "comment"},
       {"a b", "c d", "e f"}},
      {"csv", "good,fine film\nbad,poor film\n", {"1", "2"}, {"fine film", "poor film"}},
      {"tsv", "label\ttitle\tbody\nx\ta\tb\n", {"label", "title", "body"}, {"a b"}},
  };
  for (const Small& one : learned) {
    CAPTURE(one.bytes);
    const LabelledText found = read_labelled_text({one.bytes, "f"}, {.format = one.format});
    CHECK(found.columns == one.columns);
    CHECK(found.texts == one.texts);
  }
  CHECK(read_labelled_text({many, "f"}, {.format = "csv"}).columns == Lines{"stars", "sentence"});

  const Small answered[] = {
      {"csv",
       "sentence,stars\n\"a fine film, truly\",1\n\"dull, endless\",0\n",
       {},
       {"a fine film, truly", "dull, endless"}},
      {"csv", "text\na fine film\ndull\n", {}, {"a fine film", "dull"}},
      {"csv", "a fine film\ndull\n", {}, {"a fine film", "dull"}},
      {"csv", "text,label,\na fine film,good,\ndull,bad,\n", {}, {"a fine film", "dull"}},
      {"csv", "id,comment\n17,a fine film\n21,dull\n", {}, {"a fine film", "dull"}},
      {"csv", ",text\n0,a fine film\n1,dull\n", {}, {"a fine film", "dull"}},
      {"csv", "title,body\na,b\nc,d\n", {}, {"a b", "c d"}},
      {"csv", "text;stars\nnett, aber laut;4\n", {}, {"nett, aber laut"}},
      {"csv", "good,fine film\nbad,poor film\n", {}, {"fine film", "poor film"}},
      {"tsv", "kind\ttext\tn\nx\ta, b\t7\n", {}, {"x a, b"}},
      {"jsonl", R"({"sentence": "a fine film, truly", "stars": 1})", {}, {"a fine film, truly"}},
      {"jsonl", R"({"label": "good", "id": 3, "meta": {"title": "a"}, "body": "b"})", {}, {"a b"}},
  };
  for (const Small& one : answered) {
    CAPTURE(one.bytes);
    Lines texts;
    read_texts_of_table({one.bytes, "f"}, {.format = one.format},
                        [&](std::string text, const TableCells&) { texts.push_back(std::move(text)); });
    CHECK(texts == one.texts);
  }
}

TEST_CASE("Tables of many columns take time by their size, not by the square of it") {
  const auto seconds = [](const std::string& format, std::size_t columns) {
    std::string names, bytes;
    for (std::size_t i = 0; i < columns; ++i) names += concat_text(i == 0 ? "" : ",", "column", i);
    for (std::size_t row = 0; row < 12; ++row) {
      std::string line = concat_text(R"("label":"l)", row % 2, '"');
      for (std::size_t i = 0; i < columns; ++i)
        line += concat_text(R"(,"column)", i, R"(":"text )", row * (i + 1), '"');
      if (format == "jsonl") bytes += "{" + line + "}\n";
      if (format != "jsonl" && row == 0) bytes += "label," + names + "\n";
      for (std::size_t i = 0; format != "jsonl" && i <= columns; ++i)
        bytes += i == 0 ? concat_text("l", row % 2) : concat_text(",text ", row * i);
      if (format != "jsonl") bytes += "\n";
    }
    const double begin = cpu_seconds();
    ReadReport report;
    LabelledOptions options{.format = format};
    const LabelledText found = read_labelled_text({bytes, "f"}, options, &report);
    CHECK(found.columns.size() == columns + 1);
    options.label_column = found.columns[0];
    options.text_columns = {found.columns.begin() + 1, found.columns.end()};
    CHECK(read_labelled_text({bytes, "f"}, options).texts == found.texts);
    return cpu_seconds() - begin;
  };
  for (const std::string format : {"csv", "jsonl"}) {
    CAPTURE(format);
    CHECK(seconds(format, 20'000) < (sanitized ? 30 : 3));
  }
}

TEST_CASE("A file of JSON lines is read by what its members hold") {
  const TemporaryFolder folder;
  std::string bytes;
  for (std::size_t i = 0; i < 30; ++i)
    bytes +=
        Json{{"uid", 1000 + i}, {"meta", {{"n", i}}}, {"utterance", english.at(i)}, {"intent", two.at(i)}}
            .dump() +
        "\n";
  const Found found = found_in("classify", write_content(folder / "a.jsonl", bytes).string());
  CHECK(found.error == "");
  CHECK(found.label == "intent");
  CHECK(found.texts == Lines{"utterance"});
}

TEST_CASE("What is read and what is passed over stands in one line") {
  const TemporaryFolder folder;
  const auto said = [&](const char* task, const std::string& bytes, const Lines& more = {}) {
    const Found found = found_in(task, write_content(folder / "data.csv", bytes).string(), more);
    CHECK(found.error == "");
    return found.said;
  };
  const std::string tweets = table("tweet,label,political", ",", {marathi, three, {{"0", "-1"}}});
  CHECK(contains(
      said("classify", tweets),
      "data.csv: reads the text from \"tweet\", the label from \"label\"; passes over \"political\", "
      "which has 2 values\n"));
  CHECK(contains(
      said("classify", table("link,headline,date,section,n", ",", {addresses, english, days, two, numbers})),
      "passes over \"link\" and \"date\", which hold ids, dates or addresses, and \"n\", which holds "
      "numbers\n"));
  CHECK(contains(
      said("match", table("", "\t", {{{"1", "0"}}, german, german_too, numbers})),
      "data.csv: reads the texts from columns 2 and 3, the label from column 1; passes over column 4, "
      "which holds numbers\n"));
  // what is given is taken, and the rest still found
  CHECK(contains(
      said("classify", tweets, {"data.label_column=political"}),
      "reads the text from \"tweet\", the label from \"political\"; passes over \"label\", which has 3 "
      "values\n"));
  CHECK(contains(said("classify", tweets, {R"(data.text_columns=["tweet","political"])"}),
                 "reads the text from \"tweet\" and \"political\", the label from \"label\"\n"));
  CHECK_FALSE(
      contains(said("classify", tweets, {"data.label_column=label", R"(data.text_columns=["tweet"])"}),
               "reads the text"));
}

TEST_CASE("Where the data cannot tell, the error names the columns") {
  const TemporaryFolder folder;
  const auto error = [&](const char* task, const std::string& bytes) {
    return found_in(task, write_content(folder / "data.csv", bytes).string()).error;
  };
  const std::string of_labels =
      error("classify", table("id,sentence,acceptable,error_type", ",", {numbers, russian, two, three}));
  CHECK(contains(of_labels,
                 "data.csv: \"acceptable\" (2 values) and \"error_type\" (3 values) could both be the "
                 "label"));
  CHECK(contains(of_labels, "data.label_column"));
  const std::string of_texts = error("match", table("a,b,c,label", ",", {german, german_too, french, two}));
  CHECK(contains(of_texts, "data.csv: \"a\", \"b\" and \"c\" hold texts"));
  CHECK(contains(of_texts, "data.first_column"));
}

TEST_CASE("Pairs of texts: a first row of names above sentences is a header") {
  const TemporaryFolder folder;
  const auto pairs = [&](const char* task, const std::string& bytes) {
    return found_in(task, write_content(folder / "pairs.tsv", bytes).string()).said;
  };
  for (const char* const task : {"translate", "embed_text"}) {
    CHECK(contains(pairs(task, table("Deutsch\tfranzösisch", "\t", {german, french})),
                   "is read as a header; data.header=false"));
    CHECK(contains(pairs(task, table("", "\t", {german, french})), "is read as data"));
    CHECK(contains(pairs(task, table("Hallo\tBonjour", "\t",
                                     {{{"Nein", "Ja", "Gut"}, {"", ".", "!", " doch"}}, french})),
                   "is read as data"));
    CHECK(contains(pairs(task, table("中文\t日本語", "\t", {chinese, japanese})),
                   "is read as a header; data.header=false"));
  }
}
