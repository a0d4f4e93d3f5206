// The JSON of pages: what is kept of a long training, and what no text in it can do.

#include <doctest/doctest.h>

#include <cmath>

#include "heed/apps/report/report.h"
#include "heed/tests/page_json.h"

using namespace heed;
using namespace heed::test;

namespace {

/// The points of a curve: steps and values.
std::map<std::int64_t, double> points_of(const page::Json& run, const std::string& name) {
  std::map<std::int64_t, double> points;
  for (const page::Json& row : run["rows"])
    for (std::size_t i = 2; i < row.size(); i += 2)
      if (run["curves"][row[i].get<std::size_t>()] == name) points[row[0]] = row[i + 1];
  return points;
}

page::Json curves_of(const std::vector<Progress>& records) {
  const page::RunRecords run{"run", records};
  return page::curves({&run, 1})[0];
}

}  // namespace

TEST_CASE("report: a training of few records has all of them, with what is finite in them") {
  std::vector<Progress> records;
  for (int i = 1; i <= 300; ++i)
    records.push_back(
        {.step = 123'000 + i, .loss = 1.0 / i, .learning_rate = 0.1, .auxiliary = {{"part", 2}}});
  records[4].loss = NAN;
  Progress evaluation{.step = 123'300, .metrics = {{"bleu", 30.5}, {"loss", NAN}}};
  records.push_back(evaluation);
  const page::Json run = curves_of(records);
  CHECK(run["rows"].size() == 300);  // an evaluation joins what was recorded at its step
  CHECK(points_of(run, "training loss").size() == 299);
  CHECK(points_of(run, "training loss").at(123'003) == 0.333333);
  CHECK(points_of(run, "part of the loss: part").size() == 300);
  CHECK(points_of(run, "validation bleu") == std::map<std::int64_t, double>{{123'300, 30.5}});
  CHECK_FALSE(holds(run["curves"], "validation loss"));
  CHECK_FALSE(holds(run["curves"], "peak memory in MB"));  // 0: unknown
  CHECK(curves_of({})["rows"].empty());
  CHECK(page::summary({}).empty());
}

TEST_CASE("report: of a long training the highest and lowest points are kept") {
  std::vector<Progress> records;
  for (int i = 1; i <= 20'000; ++i)
    records.push_back({.step = i, .loss = 2 + std::sin(i), .learning_rate = 1.0 / i});
  records[7'777].gradient_norm = 99;
  records[12'345].loss = 50;
  records[12'400].loss = -5;
  const page::Json run = curves_of(records);
  CHECK(run["rows"].size() < 1'000);
  const auto losses = points_of(run, "training loss");
  CHECK(losses.at(12'346) == 50);
  CHECK(losses.at(12'401) == -5);
  CHECK(losses.contains(1));
  CHECK(losses.contains(20'000));
  CHECK(points_of(run, "gradient norm").at(7'778) == 99);
  std::int64_t last = 0;
  for (const auto& [step, value] : losses) {  // no gap in the curve
    CHECK(step - last < 500);
    last = step;
  }
}

TEST_CASE("report: no text ends the data of a page") {
  const std::string text = "</script><script>throw(1)</script><!-- \xff \" \\ \xe2\x80\xa8";
  const std::string html = page::html({{"title", text}, {"sections", page::Json::array()}});
  CHECK(page_json(html)["title"] == "</script><script>throw(1)</script><!-- \xef\xbf\xbd \" \\ \xe2\x80\xa8");
  CHECK(html.find("throw(1)</script") == html.npos);
  const std::string live = page::html({{"title", "a"}}, "0123");
  CHECK(live.find("<script>") == live.npos);
  CHECK(live.find("<script nonce=\"0123\">") != live.npos);
}
