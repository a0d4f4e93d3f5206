#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What heed's own mechanisms are, when to take them, and what they came to in measurements: the
// figures of attention_advice.json, of which the tables of docs/ and `heed variants --advise` are
// made.

namespace heed {

/// A task of bench/arena.py.
struct ArenaTask {
  std::string name;
  double chance;  ///< percent right of the most frequent answer
};
std::span<const ArenaTask> arena_tasks();

/// A mechanism on a task, after training it for as many steps as the budget of processor time held.
struct ArenaResult {
  double accuracy;          ///< percent, the mean over three seeds
  double deviation;         ///< its standard deviation over them
  double steps_per_second;  ///< of processor time
  double megabytes;         ///< peak of all tensors
};

struct AttentionNotes {
  std::string name;
  std::string what, when;  ///< a line each
  std::string growth;      ///< of the time with the length N: "N", "N^1.5", "N^2"
  /// Products and attention of a layer of width 512 with 8 heads, forward and backward, at 1,024
  /// and 8,192 positions (docs/explanation/attention_costs.md).
  double gflop_1024, gflop_8192;
  std::vector<ArenaResult> arena;  ///< in the order of arena_tasks(); empty: not yet measured

  /// Mean over the tasks, in percent; -1 for what was not measured.
  double mean_accuracy() const;
  /// GFLOP at a length: a N + b N^2 through both figures.
  double gflop(std::int64_t length) const;
};

/// Of heed's own mechanisms, in the order of attention_variants().
std::span<const AttentionNotes> attention_notes();
/// Null for a mechanism of an application.
const AttentionNotes* attention_notes(std::string_view name);

struct AdviceQuestion {
  std::int64_t length = 1024;
  bool causal = false;
  bool cross = false;
  std::string_view task = {};  ///< whose accuracy decides; empty: the mean over all
};

/// The mechanisms that can serve, best first, by accuracy; those not yet measured last. Beyond
/// 1,024 positions those whose time grows by less than N^2 come before all others. Throws an Error
/// for an unknown task and a length below 1.
std::vector<const AttentionNotes*> advise(const AdviceQuestion& question);
/// What decides in advise(); -1 for what was not measured.
double advised_accuracy(const AttentionNotes& notes, std::string_view task);
/// The advice for a question as a table, best first: growth, GFLOP at that length, accuracy by
/// task, and when to take it. For a terminal.
std::string advice_text(const AdviceQuestion& question);

}  // namespace heed
