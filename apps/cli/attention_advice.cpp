#include "heed/apps/cli/attention_advice.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/models/attention/attention.h"

namespace heed {

extern const std::string_view attention_advice_json;  // attention_advice.json (cmake/page.cmake)

namespace {

struct Figures {
  std::vector<ArenaTask> tasks;
  std::vector<AttentionNotes> notes;
};

const Figures& figures() {
  static const Figures all = [] {
    const auto json = nlohmann::json::parse(attention_advice_json);
    Figures read;
    for (const auto& one : json.at("tasks"))
      read.tasks.push_back({one.at("name"), one.at("length"), one.at("chance")});
    for (const auto& one : json.at("mechanisms")) {
      read.notes.push_back({one.at("name"),
                            one.at("what"),
                            one.at("when"),
                            one.at("growth"),
                            one.at("gflop").at(0),
                            one.at("gflop").at(1),
                            {}});
      for (std::size_t i = 0; i < arena_task_count; ++i) {
        const auto& own = one.at("arena").at(i);
        read.notes.back().arena[i] = {own.at(0), own.at(1), own.at(2), own.at(3)};
      }
    }
    return read;
  }();
  return all;
}

std::string number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string to_width(std::string text, std::size_t to) {
  text.resize(std::max(to, text.size()), ' ');
  return text;
}

constexpr std::string_view quadratic = "N^2";
/// The longest text for which growth is no matter.
constexpr std::int64_t short_enough = 1024;

}  // namespace

std::span<const ArenaTask> arena_tasks() {
  return figures().tasks;
}

double AttentionNotes::mean_accuracy() const {
  double sum = 0;
  for (const ArenaResult& result : arena) sum += result.accuracy;
  return sum / static_cast<double>(arena.size());
}

double AttentionNotes::gflop(std::int64_t length) const {
  const double n = static_cast<double>(length), one = gflop_1024 / 1024, eight = gflop_8192 / 8192;
  const double b = std::max(0.0, (eight - one) / (8192 - 1024)), a = std::max(0.0, eight - b * 8192);
  return a * n + b * n * n;
}

std::span<const AttentionNotes> attention_notes() {
  return figures().notes;
}

const AttentionNotes* attention_notes(std::string_view name) {
  const auto found = std::ranges::find(figures().notes, name, &AttentionNotes::name);
  return found == figures().notes.end() ? nullptr : &*found;
}

double advised_accuracy(const AttentionNotes& notes, std::string_view task) {
  if (task.empty()) return notes.mean_accuracy();
  const std::vector<ArenaTask>& tasks = figures().tasks;
  const auto found = std::ranges::find(tasks, task, &ArenaTask::name);
  if (found == tasks.end()) {
    std::string names;
    for (const ArenaTask& one : tasks) names += concat_text(names.empty() ? "" : ", ", one.name);
    fail("there is no task '", task, "' among those that were measured: ", names);
  }
  return notes.arena[static_cast<std::size_t>(found - tasks.begin())].accuracy;
}

std::vector<const AttentionNotes*> advise(const AdviceQuestion& question) {
  check(question.length >= 1, "advise: the length is ", question.length, "; it must be at least 1");
  std::vector<const AttentionNotes*> able;
  for (const AttentionNotes& notes : figures().notes) {
    const Capabilities& can = attention_variant(notes.name).capabilities;
    if ((!question.causal || can.causal) && (!question.cross || can.cross)) able.push_back(&notes);
  }
  const auto is_cheap = [&](const AttentionNotes* one) {
    return question.length <= short_enough || one->growth != quadratic;
  };
  std::ranges::stable_sort(able, [&](const AttentionNotes* a, const AttentionNotes* b) {
    if (is_cheap(a) != is_cheap(b)) return is_cheap(a);
    return advised_accuracy(*a, question.task) > advised_accuracy(*b, question.task);
  });
  return able;
}

std::string advice_text(const AdviceQuestion& question) {
  std::string text = to_width("mechanism", 32) + to_width("time", 9) + to_width("GFLOP", 9);
  for (const ArenaTask& task : arena_tasks()) text += to_width(task.name, 11);
  text += "mean\n";
  for (const AttentionNotes* const one : advise(question)) {
    const double gflop = one->gflop(question.length);
    text += to_width(one->name, 32) + to_width(one->growth, 9) +
            to_width(number(gflop >= 100  ? "%.0f"
                            : gflop >= 10 ? "%.1f"
                                          : "%.2f",
                            gflop),
                     9);
    for (const ArenaResult& result : one->arena) text += to_width(number("%.1f", result.accuracy), 11);
    text += number("%.1f", one->mean_accuracy()) + "\n    " + one->when + '\n';
  }
  return text;
}

}  // namespace heed
