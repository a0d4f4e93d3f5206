// match: learns to tell classes of pairs of texts, measures it, and labels pairs with it.
//
//   match train --data WikiQA-train.txt --valid WikiQA-dev.txt --config examples/configs/wikiqa.json --out runs/wikiqa
//   match evaluate --run runs/wikiqa --data WikiQA-test.txt
//   match predict --run runs/wikiqa < pairs > labels

#include "common/task_program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  TaskProgram program{.kind = heed::task_kind("match"), .by_rule = "to answer simple questions"};
  add_labelled_flags(program);
  program.files = {{{"Pairs to measure on; default: a part of the run's data"}, "--data"}};
  return run_task_program(program, argc, argv);
}
