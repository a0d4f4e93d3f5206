// embed_text: learns vectors of texts from pairs that belong together, measures them, and prints them.
//
//   embed_text train --data pairs.tsv --out runs/pairs
//   embed_text evaluate --run runs/pairs --data others.tsv
//   embed_text predict --run runs/pairs < texts > vectors

#include "common/task_program.h"
#include "heed/tasks/learner.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  TaskProgram program{.kind = heed::task_kind("embed_text"), .by_rule = "which number words say the same"};
  add_pair_flags(program);
  return run_task_program(program, argc, argv);
}
