#include "heed/apps/cli/attention_advice.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/apps/cli/attention_cost.h"
#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
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
    for (const auto& one : json.at("tasks")) read.tasks.push_back({one.at("name"), one.at("chance")});
    for (const auto& one : json.at("mechanisms")) {
      const auto& gflop = one.at("gflop");
      AttentionNotes& notes = read.notes.emplace_back(AttentionNotes{
          one.at("name"), one.at("what"), one.at("when"), one.at("growth"), gflop.at(0), gflop.at(1), {}});
      for (const auto& own : one.at("arena"))
        notes.arena.push_back({own.at(0), own.at(1), own.at(2), own.at(3)});
    }
    return read;
  }();
  return all;
}

/// The longest text for which the growth of the time does not matter.
constexpr std::int64_t short_enough = 1024;

}  // namespace

std::span<const ArenaTask> arena_tasks() {
  return figures().tasks;
}

double AttentionNotes::mean_accuracy() const {
  if (arena.empty()) return -1;
  double sum = 0;
  for (const ArenaResult& result : arena) sum += result.accuracy;
  return sum / static_cast<double>(arena.size());
}

double AttentionNotes::gflop(std::int64_t length) const {
  const programs::CostAtLength measured[] = {{1024, gflop_1024}, {8192, gflop_8192}};
  return programs::expected_cost(measured, static_cast<double>(length)).value();
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
  std::vector<std::string> names;
  for (const ArenaTask& one : arena_tasks()) {
    if (one.name == task) return notes.arena.empty() ? -1 : notes.arena[names.size()].accuracy;
    names.push_back(one.name);
  }
  fail("there is no task '", task, "' among the measured tasks: ", listed(names));
}

std::vector<const AttentionNotes*> advise(const AdviceQuestion& question) {
  check(question.length >= 1, "advise: the length is ", question.length, "; it must be at least 1");
  std::vector<const AttentionNotes*> able;
  for (const AttentionNotes& notes : figures().notes) {
    const Capabilities& can = attention_variant(notes.name).capabilities;
    if ((!question.causal || can.causal) && (!question.cross || can.cross)) able.push_back(&notes);
  }
  const auto is_cheap = [&](const AttentionNotes* one) {
    return question.length <= short_enough || one->growth != "N^2";
  };
  std::ranges::stable_sort(able, [&](const AttentionNotes* a, const AttentionNotes* b) {
    if (is_cheap(a) != is_cheap(b)) return is_cheap(a);
    return advised_accuracy(*a, question.task) > advised_accuracy(*b, question.task);
  });
  return able;
}

std::string advice_text(const AdviceQuestion& question) {
  std::string text = formatted("%-32s", "mechanism") + formatted("%-9s", "time") + formatted("%-9s", "GFLOP");
  for (const ArenaTask& task : arena_tasks()) text += formatted("%-11s", task.name.c_str());
  text += "mean\n";
  for (const AttentionNotes* const one : advise(question)) {
    const double gflop = one->gflop(question.length);
    text += formatted("%-32s", one->name.c_str()) + formatted("%-9s", one->growth.c_str()) +
            formatted(gflop >= 100  ? "%-9.0f"
                      : gflop >= 10 ? "%-9.1f"
                                    : "%-9.2f",
                      gflop);
    for (const ArenaResult& result : one->arena) text += formatted("%-11.1f", result.accuracy);
    text += one->arena.empty() ? "not yet measured" : formatted("%.1f", one->mean_accuracy());
    text += "\n    " + one->when + '\n';
  }
  return text;
}

}  // namespace heed
