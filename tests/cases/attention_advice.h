#pragma once

#include <string>

#include "heed/models/attention/advice.h"

namespace heed {

/// The advice for a question as a table, best first: growth, GFLOP at that length, accuracy by task, and when
/// to take it. For a terminal.
std::string advice_text(const AdviceQuestion& question);

/// The tables of docs/explanation/experiments.md: accuracy, and cost, of every mechanism on every task.
std::string arena_markdown();
/// The table of docs/explanation/which_attention.md: the first of advise() by length, form and task.
std::string decisions_markdown();

}  // namespace heed
