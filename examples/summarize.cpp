// summarize: learns to write summaries and headlines of texts, measures it, and writes them.
//
//   summarize train --data articles.csv --source-column 3 --target-column 2 --test test.csv --out run
//   summarize evaluate --run run --part test
//   summarize predict --run run < texts > headlines

#include "common/task_program.h"
#include "heed/tasks/learner.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  TaskProgram program{.kind = heed::task_kind("summarize"), .by_rule = "headlines of short reports"};
  add_pair_flags(program);
  add_decoding_flags(program);
  return run_text_to_text_program(program, argc, argv);
}
