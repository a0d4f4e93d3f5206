#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Advice on heed's own mechanisms: descriptions, when to use them, and measured results. The data
// is in attention_advice.json; the tables in docs/ and `heed variants --advise` are generated from
// it.

namespace heed {

/// A task of bench/arena.py.
struct ArenaTask {
  std::string name;
  double chance;  ///< percent right of the most frequent answer
};
std::span<const ArenaTask> arena_tasks();

/// The result of a mechanism on a task, after as many training steps as fit in the budget of
/// processor time.
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
  /// GFLOP of the matrix products and attention of a layer with width 512 and 8 heads, forward and
  /// backward, at 1,024 and 8,192 positions (docs/explanation/attention_costs.md).
  double gflop_1024, gflop_8192;
  std::vector<ArenaResult> arena;  ///< in the order of arena_tasks(); empty: not yet measured

  /// The mean over the tasks, in percent; -1 if not measured.
  double mean_accuracy() const;
  /// The estimated GFLOP at a length: a N + b N^2 through both figures.
  double gflop(std::int64_t length) const;
};

/// Returns the notes on heed's own mechanisms, in the order of attention_variants().
std::span<const AttentionNotes> attention_notes();
/// Returns the notes on a mechanism; null for one that an application registered.
const AttentionNotes* attention_notes(std::string_view name);

struct AdviceQuestion {
  std::int64_t length = 1024;
  bool causal = false;
  bool cross = false;
  std::string_view task = {};  ///< rank by its accuracy; empty: by the mean over all tasks
};

/// Returns the mechanisms that can serve, by decreasing accuracy; unmeasured ones come last. Beyond
/// 1,024 positions, mechanisms whose time grows more slowly than N^2 come first. Throws an Error
/// for an unknown task and a length below 1.
std::vector<const AttentionNotes*> advise(const AdviceQuestion& question);
/// Returns the accuracy by which advise() ranks; -1 if not measured.
double advised_accuracy(const AttentionNotes& notes, std::string_view task);
/// Returns the advice as a table for a terminal, best first: growth, GFLOP at that length, accuracy
/// by task, and when to use it.
std::string advice_text(const AdviceQuestion& question);

}  // namespace heed
