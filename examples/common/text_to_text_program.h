#pragma once

#include "task_program.h"

// The programs of tasks that write a text for a text (tasks/text_to_text.h) have more in common than all programs.

namespace heed::programs {

/// --data, --source, --target and the others that name pairs, and how tables are read.
void add_pair_flags(TaskProgram& program);
/// How outputs are searched for or drawn.
void add_decoding_flags(TaskProgram& program);

/// The whole program: train, evaluate, predict, and score, which says how likely given targets are.
int run_text_to_text_program(const TaskProgram& program, int argc, char** argv);

}  // namespace heed::programs
