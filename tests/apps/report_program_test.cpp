// The reports of runs from the outside: what is in them for every task, made again, side by side, and in a
// browser.

#include <doctest/doctest.h>

#include <clocale>
#include <cstdlib>
#include <locale>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "heed/apps/compare/comparison.h"
#include "heed/apps/data/formats.h"
#include "heed/apps/report/report.h"
#include "heed/apps/tasks/report.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/task.h"
#include "heed/tests/browser.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/page_json.h"
#include "heed/tests/temporary_folder.h"

namespace {

using namespace heed;
using namespace heed::test;
using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t most_page_bytes = 500'000;

/// A run of a task, trained for a moment.
fs::path with_report(const std::string& task, const fs::path& out, const Arguments& more) {
  const ProgramResult result = run_program(task, small_train(task, out, more));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  return out;
}

/// A classifier of the small texts with an attention.
fs::path classifier(const fs::path& out, const std::string& attention, const Arguments& more = {}) {
  const Arguments texts = {"--data", small_texts().string(), "--format", "lines", "--test-fraction", "0.2"};
  return with_report("classify", out, joined(joined(texts, {"--attention", attention}), more));
}

std::string report_of(const fs::path& run) {
  return content_of(run / "report.html");
}

json mistakes_in(const json& page) {
  for (const json& section : page.at("sections"))
    if (section.contains("mistakes")) return section["mistakes"];
  return json::object();
}

/// What a page is drawn from, which must be a whole page that has all its sections and loads nothing.
json checked(const std::string& page) {
  CHECK(page.starts_with("<!DOCTYPE html>"));
  CHECK(page.ends_with("</html>\n"));
  CHECK(page.size() < most_page_bytes);
  CHECK(contains(page, "MIT license"));
  CHECK_FALSE(contains(page, "src=\"http"));
  CHECK_FALSE(contains(page, "href="));
  const json drawn = page_json(page);
  for (const json& section : drawn.at("sections"))
    CHECK_MESSAGE(!section.contains("not_shown"), section.dump());
  return drawn;
}

json curves_in(const json& page) {
  return section_of(page, "Curves").at("curves");
}

json examples_in(const json& page) {
  return section_of(page, "What the model looks at").at("examples");
}

/// What the texts in colour of a page show: "cluster", "bucket", "weight".
std::set<std::string> strips_in(const json& page) {
  std::set<std::string> kinds;
  const json examples = examples_in(page);
  for (const json& example : examples.at("shown"))
    for (const json& strip : example.at("strips")) kinds.insert(strip.at("kind").get<std::string>());
  return kinds;
}

}  // namespace

TEST_CASE("report: every task has one, with maps of its examples") {
  for (const TaskEntry* entry : task_table()) {
    const std::string task(entry->name);
    CAPTURE(task);
    const json page = checked(report_of(small_run(task)));
    CHECK(page["task"] == task);
    for (const char* curve : {"training loss", "learning rate", "peak memory in MB"})
      CHECK(holds(curves_in(page)[0]["curves"], curve));
    const json settings = section_of(page, "Settings");
    std::set<std::string> changed;
    for (const json& row : settings["words"]) changed.insert(row[0]);
    CHECK(changed.contains("training.steps"));  // differs from the default
    CHECK_FALSE(changed.contains("training.accumulation"));
    CHECK(contains(settings["configuration"], "\"accumulation\""));
    CHECK(has_maps(examples_in(page)));
    const bool has_classes = task != "tag" && fs::exists(small_run(task) / "classes.json");  // of whole texts
    CHECK(section_of(page, "Quality").value("classes", json::object()).contains("confusion") == has_classes);
  }
}

TEST_CASE("report: a masked language model's shows what it fills in") {
  const TemporaryFolder folder;
  const json page =
      checked(report_of(with_report("language_model", folder / "run", {"--set", "objective=masked"})));
  CHECK(contains(examples_in(page).dump(), "<mask>"));
  CHECK(has_maps(examples_in(page)));
}

TEST_CASE("report: images are shown as images") {
  const TemporaryFolder folder;
  const auto big_endian = [](std::uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
    return bytes;
  };
  constexpr std::uint32_t count = 200, side = 8;
  std::string images = big_endian(0x803) + big_endian(count) + big_endian(side) + big_endian(side);
  std::string labels = big_endian(0x801) + big_endian(count);
  for (std::uint32_t i = 0; i < count;
       ++i) {  // noise: the labels cannot be learned, so that there are mistakes
    labels += static_cast<char>(i * 7919 / 13 % 2);
    for (std::uint32_t k = 0; k < side * side; ++k)
      images += static_cast<char>((i * 31 + k * 17) * 2654435761U >> 24);
  }
  write_content(folder / "set-images-idx3-ubyte", images);
  write_content(folder / "set-labels-idx1-ubyte", labels);
  const json page = checked(report_of(
      with_report("classify", folder / "run", {"--data", (folder / "set-images-idx3-ubyte").string()})));
  for (const json& one : {mistakes_in(page)["shown"][0], examples_in(page)["shown"][0]}) {
    const json& image = one["line"]["image"];
    CHECK(image["rows"] == side);
    CHECK(image["columns"] == side);
    CHECK(image["pixels"].get<std::string>().size() == 4 * ((side * side + 2) / 3));
  }
  CHECK(has_maps(examples_in(page)));
}

TEST_CASE("report: mechanisms show what they have, and nothing else") {
  const TemporaryFolder folder;
  const auto page_of = [&](const std::string& attention) {
    return checked(report_of(classifier(folder / attention, attention)));
  };
  const json clusters = page_of("clusterformer"), routed = page_of("routing_transformer"),
             hashed = page_of("reformer"), pooled = page_of("fastformer"), plain = page_of("dot_product");
  CHECK(holds(curves_in(clusters)[0]["curves"], "part of the loss: clustering"));
  CHECK(holds(curves_in(clusters)[0]["curves"], "part of the loss: centroid_sorting"));
  CHECK(holds(curves_in(routed)[0]["curves"], "part of the loss: commitment"));
  CHECK_FALSE(contains(curves_in(plain).dump(), "part of the loss"));
  CHECK(strips_in(clusters) == std::set<std::string>{"cluster"});
  CHECK(strips_in(routed) == std::set<std::string>{"cluster"});
  CHECK(strips_in(hashed) == std::set<std::string>{"bucket"});
  CHECK(strips_in(pooled) == std::set<std::string>{"weight"});
  CHECK(strips_in(plain).empty());
  CHECK_FALSE(has_maps(examples_in(pooled)));  // no weights between words
  CHECK(has_maps(examples_in(plain)));
}

TEST_CASE("report: mistakes come with their text, the most confident first") {
  const json page = checked(report_of(small_run("classify"))), quality = section_of(page, "Quality");
  const ProgramResult measured = run_program("classify", {"evaluate", "--run", small_run("classify").string(),
                                                          "--part", "test", "--set", "threads=1"});
  REQUIRE(measured.status == 0);
  const json found = json::parse(measured.output);
  std::int64_t wrong = found["texts"];
  for (std::size_t i = 0; i < found["confusion"].size(); ++i)
    wrong -= found["confusion"][i][i].get<std::int64_t>();
  const json mistakes = mistakes_in(page);
  CHECK(page["score"].get<std::string>().starts_with("test: accuracy "));
  CHECK(mistakes["all"] == wrong);
  CHECK(mistakes["count"] == found["texts"]);
  REQUIRE(mistakes["shown"].size() == static_cast<std::size_t>(std::min<std::int64_t>(wrong, 20)));
  for (std::size_t i = 1; i < mistakes["shown"].size(); ++i)
    CHECK(mistakes["shown"][i]["probability"] <= mistakes["shown"][i - 1]["probability"]);
  for (const json& one : mistakes["shown"]) CHECK_FALSE(one["line"]["text"].get<std::string>().empty());
  CHECK(quality["classes"]["confusion"] == found["confusion"]);
}

TEST_CASE("report: labels and texts that are markup stay text") {
  const TemporaryFolder folder;
  std::string texts;
  for (int i = 0; i < 200; ++i)
    texts += concat_text(
        i % 2 == 0 ? "</script><script>throw(1)</script>" : "<!--<img\"src=x'onerror=throw(2)>", '\t',
        i % 3 == 0 ? "<b>bold</b> </script> <script> " : "<!-- {\"a\": \"\\u003c\"} & &lt; ", i, '\n');
  write_content(folder / "texts.tsv", texts);
  const std::string page =
      report_of(with_report("classify", folder / "<b>run", {"--data", (folder / "texts.tsv").string()}));
  const json drawn = checked(page);
  CHECK(drawn["title"] == "<b>run");
  const std::string of_text =
      page.substr(page.find("id=\"page\">"), page.find("</script>") - page.find("id=\"page\">"));
  CHECK(contains(of_text, "throw(1)"));
  CHECK_FALSE(contains(of_text, "<"));
  if (const std::string program = browser(); !program.empty()) {
    const json said = pages_in_browser(program, folder.path(), {{page, 900}}, false)[0];
    CHECK_MESSAGE(said["findings"].empty(), said["findings"].dump());
    CHECK(said["charts"].get<int>() >= 5);
    CHECK(said["drawn"].get<int>() > 0);
    for (const char* text : {"&lt;b&gt;run", "&lt;/script&gt;&lt;script&gt;throw(1)&lt;/script&gt;",
                             "&lt;img\"src=x'onerror=throw(2)&gt;"})
      CHECK_MESSAGE(contains(said["text"], text), text);
  }
}

TEST_CASE("report: answers stand beside what was expected, and the confusion matrix says which is which") {
  const json page = checked(report_of(small_run("translate")));
  const json written = section_of(page, "Outputs for held-out examples")["written"];
  REQUIRE(written.size() == 12);
  for (const json& one : written)
    for (const char* name : {"source", "expected", "answer"}) CHECK(one[name]["text"].is_string());
  CHECK(section_of(checked(report_of(small_run("classify"))), "Outputs for held-out examples").empty());
}

TEST_CASE("heed report: makes the same page again, also beside others and without its data") {
  const TemporaryFolder folder;
  const fs::path texts = folder / "texts";
  fs::copy_file(small_texts(), texts);
  const std::string first = report_of(with_report(
      "classify", folder / "a", {"--data", texts.string(), "--format", "lines", "--valid-fraction", "0.2"}));
  fs::remove(folder / "a" / "report.html");
  const ProgramResult again = run_program("heed", {"report", (folder / "a").string()});
  CHECK(again.status == 0);
  CHECK(again.output == (folder / "a" / "report.html").string() + "\n");
  CHECK(report_of(folder / "a") == first);

  classifier(folder / "b", "fastformer", {"--seed", "2"});
  const Arguments both = {"report", (folder / "a").string(), (folder / "b").string()};
  CHECK(run_program("heed", both).status == 2);  // into which?
  const std::string out = (folder / "both.html").string();
  CHECK(run_program("heed", joined(both, {"--out", out})).status == 0);
  CHECK(run_program("heed", joined(both, {"--out", out})).status == 1);  // it is there
  CHECK(run_program("heed", joined(both, {"--out", out, "--overwrite"})).status == 0);
  const json page = checked(content_of(out));
  const json rows = section_of(page, "Settings that differ")["words"];
  CHECK(holds(rows, {"model.encoder_attention", "dot_product", "fastformer"}));
  CHECK(holds(rows, {"seed", "1", "2"}));
  CHECK_FALSE(contains(rows.dump(), "model.width"));
  CHECK(holds(section_of(page, "Results")["table"][0], "accuracy (kept)"));
  for (const std::size_t i : {0, 1}) {
    const json run = curves_in(page)[i];
    CHECK(run["name"] == (i == 0 ? "a" : "b"));
    CHECK(holds(run["curves"], "training loss"));
    CHECK(run["rows"].size() > 1);
  }

  fs::remove(texts);
  CHECK(run_program("heed", {"report", (folder / "a").string()}).status == 0);
  const json poor = page_json(report_of(folder / "a"));
  CHECK(contains(section_of(poor, "What the model looks at")["not_shown"], "texts"));
  CHECK(holds(curves_in(poor)[0]["curves"], "learning rate"));

  CHECK(run_program("heed", {"report", (folder / "none").string()}).status == 1);
}

TEST_CASE("heed report: standard output that goes to a file gets the page whole, and the answer behind it") {
  const TemporaryFolder folder;
  const std::string file = (folder / "page").string();
  const ProgramResult result = run_program(
      "/bin/sh", in_shell("", "heed", {"report", small_run("match").string(), "--out", "/dev/stdout"},
                          " > '" + file + "'"));
  CHECK_MESSAGE(result.status == 0, result.errors);
  const std::string page = content_of(file);
  CHECK(page.starts_with("<!DOCTYPE html>"));
  CHECK(page.ends_with("/dev/stdout\n"));
}

TEST_CASE("--tensorboard writes event files, and a run that goes on has one more") {
  const TemporaryFolder folder;
  classifier(folder / "run", "dot_product", {"--tensorboard", "--steps", "10"});
  const auto files = [&] {
    return std::distance(fs::directory_iterator(folder / "run" / "tensorboard"), fs::directory_iterator());
  };
  CHECK(files() == 1);
  const ProgramResult result =
      run_program("classify", {"train", "--out", (folder / "run").string(), "--resume", "--steps", "20"});
  CHECK_MESSAGE(result.status == 0, result.errors);
  CHECK(files() == 2);
  classifier(folder / "without", "dot_product");
  CHECK_FALSE(fs::exists(folder / "without" / "tensorboard"));
}

TEST_CASE("report: in a browser nothing overflows and no script fails") {
  const std::string program = browser();
  if (program.empty()) {
    MESSAGE("skipped: no browser (chromium) is installed");
    return;
  }
  const TemporaryFolder folder;
  const fs::path clusters = classifier(folder / "clusters", "clusterformer");
  const std::string both = (folder / "both.html").string();
  REQUIRE(run_program("heed", {"report", clusters.string(), small_run("translate").string(), "--out", both})
              .status == 0);
  const std::vector<std::string> names = {"classify", "translate", "two runs"},
                                 pages = {report_of(clusters), report_of(small_run("translate")),
                                          content_of(both)};
  const auto check_page = [&](std::size_t page, int width, const json& said) {
    CAPTURE(names[page]);
    CAPTURE(width);
    CHECK(said["width"].get<int>() <= width);
    CHECK_MESSAGE(said["findings"].empty(), said["findings"].dump());
    CHECK(said["charts"].get<int>() >= 5);
    const json drawn = page_json(pages[page]);
    for (const json& section : drawn["sections"])
      CHECK((!section.contains("title") || holds(said["titles"], section["title"])));
    if (names[page] == "two runs") return;
    CHECK(contains(said["text"], "training.steps"));
    if (names[page] == "classify")
      for (const char* title : {"Classes", "Confusion", "Line 1", "Tokens of one colour share a cluster"})
        CHECK(contains(said["titles"].dump(), title));
    else
      CHECK(contains(said["text"], "written "));
    CHECK(said["drawn"].get<int>() > 0);  // a canvas for every head
    CHECK(said["cells"].get<int>() > 3);
  };
  for (const bool dark : {true, false}) {
    const std::vector<int> widths = dark ? std::vector{420} : std::vector{900, 1400};
    FramedPages framed;
    for (const std::string& page : pages)
      for (const int width : widths) framed.emplace_back(page, width);
    const json said = pages_in_browser(program, folder.path(), framed, dark);
    for (std::size_t i = 0; i < framed.size(); ++i) check_page(i / widths.size(), framed[i].second, said[i]);
  }
  // The probe finds what it looks for.
  const std::string broken =
      "<!DOCTYPE html><html><head><style></style></head><body><p style=\"width:3000px\">wide</p>"
      "<p "
      "style=\"width:5em;font-size:11px;overflow-wrap:anywhere\">incomprehensibilities</p><canvas></canvas>"
      "<script>console.error('no');no_such_function();</script></body></html>";
  const std::string said =
      pages_in_browser(program, folder.path(), {{broken, 390}}, false)[0]["findings"].dump();
  for (const char* finding :
       {"overflow: P", "script: ", "console: no", "small: incomp", "broken: incomp", "empty at first"})
    CHECK_MESSAGE(contains(said, finding), finding << " in " << said);
}

namespace {

/// While it lives, C++ and, where German is installed or can be made, C write 1,5 and 1.000.
class GermanNumbers {
 public:
  GermanNumbers() {
    struct Commas : std::numpunct<char> {
      char do_decimal_point() const override { return ','; }
      char do_thousands_sep() const override { return '.'; }
      std::string do_grouping() const override { return "\3"; }
    };
    const std::string make =
        "localedef -i de_DE -f UTF-8 '" + (folder_ / "de_DE.UTF-8").string() + "' 2>/dev/null";
    if (std::system(make.c_str()) == 0) ::setenv("LOCPATH", folder_.path().c_str(), 1);
    if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr)
      MESSAGE("there is no de_DE.UTF-8: C's locale is left out");
    ::unsetenv("LOCPATH");
    before_ = std::locale::global(std::locale(std::locale(), new Commas));
  }
  ~GermanNumbers() {
    std::locale::global(before_);
    std::setlocale(LC_ALL, "C");
  }
  GermanNumbers(const GermanNumbers&) = delete;
  GermanNumbers& operator=(const GermanNumbers&) = delete;

 private:
  const TemporaryFolder folder_{"heed-locale"};
  std::locale before_;
};

}  // namespace

TEST_CASE("report: a program's locale changes neither what is trained nor how numbers are written") {
  const TemporaryFolder folder("heed-locale-run");
  const TaskEntry& classify = task_entry("classify");
  const auto trained = [&](const fs::path& run) {
    const TaskEntry& entry = run.filename() == "rate" ? task_entry("rate") : classify;
    train_run(entry, small_settings_of(entry, {"training.steps=4"}), {run});
    return tensors_of(run / "model.safetensors");
  };
  const auto written = [&] {
    const ComparisonPlan plan{classify,
                              small_settings_of(classify),
                              {},
                              {{"model.dropout", {"0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.35"}},
                               {"model.norm", {"pre", "post"}}}};
    const std::vector<ComparisonCell> cells = plan_cells(plan);
    std::vector<std::optional<CellResult>> results(cells.size());
    for (std::size_t i = 0; i < results.size(); ++i)
      results[i].emplace().metrics = {{"accuracy", static_cast<double>(i * 5 % 7) / 10, true}};
    const Tensor values = Tensor::from<float>({1234.5f, -0.25f}, {2});
    std::string text = concat_text(1234567, ' ', 0.5, ' ', 1e-9, ' ', 1234567.25, ' ', values, '\n');
    text += comparison_text(comparison_rows(cells, results));
    std::ostringstream shown;
    ProgressPrinter printer(shown, {});
    for (const double value : {0.000123456, 1.5, 2351.25, 12345.678, -1e-7, 1e300, 0.0}) {
      Measurement measurement;
      measurement.metrics = {{"loss", value}};
      text += concat_text(metrics_text(measurement), ' ', value, '\n');
      Progress progress;
      progress.step = 12'345, progress.steps = 1'234'567, progress.loss = value;
      progress.learning_rate = value, progress.tokens_per_second = 12'345.6;
      printer.show(progress);
      const page::RunRecords run{"", {progress}};
      text += page::html({{"summary", page::summary(run.records)}, {"curves", page::curves({&run, 1})}});
    }
    return text + shown.str();
  };
  const std::string weights = trained(folder / "plain"), text = written();
  const std::string rated = trained(folder / "rate");
  fs::remove_all(folder / "rate");
  const GermanNumbers german;
  CHECK(written() == text);
  CHECK(trained(folder / "german") == weights);
  CHECK(trained(folder / "rate") == rated);
  checked(report_of(folder / "german"));
  CHECK(content_of(folder / "german/config.json") == content_of(folder / "plain/config.json"));
}

TEST_CASE("report: many names in a line of metrics take time by their number, not by the square of it") {
  Progress progress;
  progress.step = progress.steps = 1;
  for (int i = 0; i < 100'000; ++i) progress.auxiliary.emplace_back("name" + std::to_string(i), 0.5);
  const double begin = cpu_seconds();
  const std::string line = metrics_line(progress);
  const Progress read = parse_metrics_line(line);
  CHECK(read.auxiliary == progress.auxiliary);
  for (const std::size_t runs : {1, 2}) {
    const page::Json drawn = page::curves(std::vector<page::RunRecords>(runs, {"run", {read}}));
    CHECK(holds(drawn[0]["curves"], "part of the loss: name99999"));
  }
  CHECK(cpu_seconds() - begin < (sanitized ? 40 : 4));
}
