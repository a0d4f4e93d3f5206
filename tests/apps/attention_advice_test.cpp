// What `heed variants` says of the mechanisms, and which it advises to take.

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "heed/base/file.h"
#include "heed/base/names.h"
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

std::string growth_of(const std::string& name) {
  for (const Json& one : notes()["mechanisms"])
    if (one["name"] == name) return one["growth"];
  return "";
}

ProgramResult variants(Words flags) {
  flags.insert(flags.begin(), "variants");
  return run_program("heed", flags);
}

/// The columns of each mechanism that `heed variants --advise` lists, best first.
std::vector<Words> advised(const Words& question) {
  std::istringstream lines(variants(joined({"--advise"}, question)).output);
  std::vector<Words> rows;
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);)
    if (!line.starts_with("    ")) {
      replace_all(line, "N log N", "NlogN");
      std::istringstream words(line);
      rows.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
    }
  return rows;
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

/// The table of docs/explanation/which_attention.md: the first of the advice by length, form and task.
std::string decisions_markdown() {
  Words titles{"", "by the mean"};
  for (const Json& task : notes()["tasks"]) titles.push_back(task["name"]);
  std::string table = head_of(titles);
  for (const bool causal : {false, true})
    for (const char* const length : {"1024", "4096"}) {
      Words cells{
          concat_text(length[0] == '1' ? "up to 1,024 tokens" : "more tokens", causal ? ", causal" : "")};
      for (std::size_t task = 0; task < titles.size() - 1; ++task) {
        Words question{"--length", length};
        if (causal) question.emplace_back("--causal");
        if (task > 0) question.insert(question.end(), {"--task", titles[task + 1]});
        const std::vector<Words> best = advised(question);
        std::string cell;
        for (std::size_t i = 0; i < 3; ++i)
          cell += concat_text(i == 0 ? "`" : ", `", best[i][0], "` ",
                              best[i][task == 0 ? best[i].size() - 1 : 2 + task]);
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

TEST_CASE("advice: only those that can serve") {
  const auto names = [](const Words& question) {
    std::set<std::string> found;
    for (const Words& row : advised(question)) found.insert(row[0]);
    return found;
  };
  CHECK(names({}).size() == notes()["mechanisms"].size());
  CHECK(names({}).contains("linformer"));
  CHECK_FALSE(names({"--causal"}).contains("linformer"));
  CHECK(names({"--cross"}).contains("linformer"));
  CHECK_FALSE(names({"--cross"}).contains("local"));
  for (const std::string& name : names({"--length", "4096", "--causal"}))
    CHECK(attention_variant(name).capabilities.causal);
}

TEST_CASE("advice: by accuracy while texts are short; where they are long, those of slow growth come first") {
  for (const std::size_t column : {8, 3, 7}) {  // the mean, listops, pixels
    CAPTURE(column);
    Words task;
    if (column < 8) task = {"--task", column == 3 ? "listops" : "pixels"};
    const auto accuracy = [&](const Words& row) { return row.size() == 9 ? std::stod(row[column]) : -1; };
    const auto sorted = [&](auto begin, auto end) {
      return std::is_sorted(begin, end,
                            [&](const Words& a, const Words& b) { return accuracy(a) > accuracy(b); });
    };
    const auto at_short = advised(task), at_long = advised(joined({"--length", "4096"}, task));
    CHECK(sorted(at_short.begin(), at_short.end()));
    const auto is_dear = [](const Words& row) { return growth_of(row[0]) == "N^2"; };
    const auto first_dear = std::ranges::find_if(at_long, is_dear);
    CHECK(first_dear != at_long.begin());
    CHECK(sorted(at_long.begin(), first_dear));
    CHECK(sorted(first_dear, at_long.end()));
    CHECK(std::all_of(first_dear, at_long.end(), is_dear));
  }
}

TEST_CASE("advice: GFLOP go through the measured ones") {
  for (const auto& [length, which] : {std::pair("1024", 0), {"8192", 1}})
    for (const Words& row : advised({"--length", length}))
      for (const Json& one : notes()["mechanisms"])
        if (one["name"] == row[0])  // none grows by less than N
          CHECK(std::stod(row[2]) ==
                doctest::Approx(one["gflop"][static_cast<std::size_t>(which)].get<double>()).epsilon(0.1));
}

TEST_CASE("advice: questions that have no answer") {
  CHECK(variants({"--advise", "--causal", "--cross"}).status == 2);
  const ProgramResult chess = variants({"--advise", "--task", "chess"});
  CHECK(chess.status == 2);
  CHECK(contains(chess.errors, "'chess' among the measured tasks: listops, text"));
  CHECK(contains(variants({"--advise", "--length", "0"}).errors, "at least 1"));
  CHECK(variants({"--length", "4096"}).status == 2);
}

TEST_CASE("advice: the table in docs is the one that the notes make") {
  check_made_part("docs/explanation/experiments.md", "arena", arena_markdown());
  check_made_part("docs/explanation/which_attention.md", "decisions", decisions_markdown());
}
