// What `heed variants` says of the mechanisms, and which of them docs/ advises to take.

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "heed/base/file.h"
#include "heed/base/plain_numbers.h"
#include "heed/models/attention/attention.h"
#include "heed/tests/made_part.h"
#include "heed/tests/program_runner.h"

namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

const Json& notes() {
  static const Json read =
      Json::parse(read_file(std::string(HEED_SOURCE_DIR) + "/apps/cli/attention_advice.json"));
  return read;
}

ProgramResult variants(Words flags) {
  flags.insert(flags.begin(), "variants");
  return run_program("heed", flags);
}

/// The mechanisms that can be causal, if that is needed, with their accuracy: on a task, or in the mean (0). The best
/// come first; where texts are long, those whose time grows more slowly than N^2 do.
std::vector<std::pair<std::string, double>> ranked(bool is_long, bool causal, std::size_t column) {
  std::vector<std::tuple<bool, double, std::string>> able;
  for (const Json& one : notes()["mechanisms"]) {
    const std::string name = one["name"];
    if (one["arena"].empty() || (causal && !attention_variant(name).capabilities.causal)) continue;
    double sum = 0;
    for (const Json& result : one["arena"]) sum += result[0].get<double>();
    const double accuracy = column == 0 ? sum / static_cast<double>(one["arena"].size())
                                        : one["arena"][column - 1][0].get<double>();
    able.emplace_back(is_long && one["growth"] == "N^2", -accuracy, name);
  }
  std::ranges::stable_sort(able, {},
                           [](const auto& one) { return std::pair(std::get<0>(one), std::get<1>(one)); });
  std::vector<std::pair<std::string, double>> found;
  for (const auto& [is_slow, loss, name] : able) found.emplace_back(name, -loss);
  return found;
}

/// A row of a table in Markdown.
std::string row_of(const Words& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += concat_text(' ', cell, " |");
  return row + '\n';
}

/// Its head: titles, and the line below them.
std::string head_of(const Words& titles) {
  std::string rule = "|";
  for (std::size_t i = 0; i < titles.size(); ++i) rule += "---|";
  return row_of(titles) + rule + '\n';
}

std::string percent(double value) {
  return formatted("%.1f", value);
}

/// The tables of docs/explanation/experiments.md: accuracy, and cost, of every mechanism on every task.
std::string arena_markdown() {
  Words titles{"accuracy, %"}, lowest{"the most frequent answer"}, costs{"steps per second, MB"};
  const auto tasks = static_cast<double>(notes()["tasks"].size());
  double mean = 0;
  for (const Json& task : notes()["tasks"]) {
    titles.push_back(task["name"]);
    costs.push_back(task["name"]);
    lowest.push_back(percent(task["chance"]));
    mean += task["chance"].get<double>() / tasks;
  }
  titles.emplace_back("mean");
  lowest.push_back(percent(mean));
  std::string accuracy = head_of(titles) + row_of(lowest), cost = head_of(costs);
  for (const Json& one : notes()["mechanisms"]) {
    Words cells{concat_text('`', one["name"].get<std::string>(), '`')}, paid = cells;
    double sum = 0;
    for (const Json& result : one["arena"]) {
      sum += result[0].get<double>();
      cells.push_back(concat_text(percent(result[0]), " ± ", percent(result[1])));
      const double speed = result[2];
      paid.push_back(formatted("%.*f, %.0f",
                               speed >= 100  ? 0
                               : speed >= 10 ? 1
                                             : 2,
                               speed, result[3].get<double>()));
    }
    if (one["arena"].empty()) continue;
    cells.push_back(percent(sum / tasks));
    accuracy += row_of(cells);
    cost += row_of(paid);
  }
  return accuracy + '\n' + cost;
}

/// The table of docs/explanation/which_attention.md: the best by length, form and task.
std::string decisions_markdown() {
  Words titles{"", "by the mean"};
  for (const Json& task : notes()["tasks"]) titles.push_back(task["name"]);
  std::string table = head_of(titles);
  for (const bool causal : {false, true})
    for (const bool is_long : {false, true}) {
      Words cells{concat_text(is_long ? "more tokens" : "up to 1,024 tokens", causal ? ", causal" : "")};
      for (std::size_t column = 0; column < titles.size() - 1; ++column) {
        const auto best = ranked(is_long, causal, column);
        std::string cell;
        for (std::size_t i = 0; i < 3; ++i)
          cell += concat_text(i == 0 ? "`" : ", `", best[i].first, "` ", percent(best[i].second));
        cells.push_back(cell);
      }
      table += row_of(cells);
    }
  return table;
}

}  // namespace

TEST_CASE("advice: every mechanism of heed has its notes, a line each, and figures") {
  const std::string list = variants({}).output;
  for (std::size_t i = 0; i < notes()["mechanisms"].size(); ++i) {
    const Json& one = notes()["mechanisms"][i];
    CAPTURE(one.dump());
    CHECK(one["name"] == attention_variants()[i].name);
    const std::string what = one["what"], when = one["when"];
    for (const std::string& line : {what, when}) {
      CHECK(line.size() <= 92);
      CHECK(line.ends_with('.'));
    }
    CHECK(when.starts_with("Use it "));
    CHECK(contains(list, concat_text("    ", what, "\n    ", when, "\n")));
    CHECK((one["arena"].empty() || one["arena"].size() == notes()["tasks"].size()));
    for (const Json& result : one["arena"])
      for (const int positive : {0, 2, 3}) CHECK(result[static_cast<std::size_t>(positive)] > 0);
  }
}

TEST_CASE("advice: the table in docs is the one that the notes make") {
  check_made_part("docs/explanation/experiments.md", "arena", arena_markdown());
  check_made_part("docs/explanation/which_attention.md", "decisions", decisions_markdown());
}
