#include "heed/tests/cases/attention_advice.h"

#include <algorithm>
#include <cstdio>

#include "heed/base/error.h"

namespace heed {
namespace {

std::string number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string three_digits(double value) {
  return number(value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
}

std::string to_width(std::string text, std::size_t to) {
  text.resize(std::max(to, text.size()), ' ');
  return text;
}

std::string quoted(std::string_view name) {
  return concat_text('`', name, '`');
}

/// A row of a table in Markdown.
std::string row_of(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += concat_text(' ', cell, " |");
  return row + '\n';
}

std::string rule_of(std::size_t cells) {
  std::string rule = "|";
  for (std::size_t i = 0; i < cells; ++i) rule += "---|";
  return rule + '\n';
}

}  // namespace

std::string advice_text(const AdviceQuestion& question) {
  std::string text = to_width("mechanism", 32) + to_width("time", 9) + to_width("GFLOP", 9);
  for (const ArenaTask& task : arena_tasks()) text += to_width(std::string(task.name), 11);
  text += "mean\n";
  for (const AttentionNotes* const one : advise(question)) {
    text += to_width(std::string(one->name), 32) + to_width(std::string(one->growth), 9) +
            to_width(three_digits(one->gflop(question.length)), 9);
    for (const ArenaResult& result : one->arena) text += to_width(number("%.1f", result.accuracy), 11);
    text += number("%.1f", one->mean_accuracy()) + "\n    " + std::string(one->when) + '\n';
  }
  return text;
}

std::string arena_markdown() {
  std::vector<std::string> titles{"accuracy, %"}, lowest{"the most frequent answer"},
      costs{"steps per second, MB"};
  for (const ArenaTask& task : arena_tasks()) {
    titles.emplace_back(task.name);
    costs.emplace_back(task.name);
    lowest.push_back(number("%.1f", task.chance));
  }
  titles.emplace_back("mean");
  double mean = 0;
  for (const ArenaTask& task : arena_tasks()) mean += task.chance / static_cast<double>(arena_task_count);
  lowest.push_back(number("%.1f", mean));
  std::string accuracy = row_of(titles) + rule_of(titles.size()) + row_of(lowest),
              cost = row_of(costs) + rule_of(costs.size());
  for (const AttentionNotes& one : attention_notes()) {
    std::vector<std::string> cells{quoted(one.name)}, paid{quoted(one.name)};
    for (std::size_t i = 0; i < arena_task_count; ++i) {
      const ArenaResult& result = one.arena[i];
      cells.push_back(number("%.1f", result.accuracy) + " ± " + number("%.1f", result.deviation));
      paid.push_back(three_digits(result.steps_per_second) + ", " + number("%.0f", result.megabytes));
    }
    cells.push_back(number("%.1f", one.mean_accuracy()));
    accuracy += row_of(cells);
    cost += row_of(paid);
  }
  return accuracy + '\n' + cost;
}

std::string decisions_markdown() {
  std::vector<std::string> titles{"", "by the mean"};
  for (const ArenaTask& task : arena_tasks()) titles.emplace_back(task.name);
  std::string table = row_of(titles) + rule_of(titles.size());
  for (const bool causal : {false, true})
    for (const std::int64_t length : {1024, 4096}) {
      std::vector<std::string> cells{
          concat_text(length <= 1024 ? "up to 1,024 tokens" : "more tokens", causal ? ", causal" : "")};
      for (std::size_t task = 0; task < titles.size() - 1; ++task) {
        const std::string_view name = task == 0 ? "" : arena_tasks()[task - 1].name;
        const auto best = advise({.length = length, .causal = causal, .task = name});
        std::string cell;
        for (std::size_t i = 0; i < 3; ++i)
          cell += concat_text(i == 0 ? "" : ", ", quoted(best[i]->name), ' ',
                              number("%.1f", advised_accuracy(*best[i], name)));
        cells.push_back(cell);
      }
      table += row_of(cells);
    }
  return table;
}

}  // namespace heed
