// classify: learns to tell classes of texts, measures it, and labels texts with it.
//
//   classify train --data subj.all --format lines --encoding cp1252 --out runs/subj
//   classify evaluate --run runs/subj
//   classify predict --run runs/subj < texts > labels

#include "common/task_program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  TaskProgram program{.kind = heed::task_kind("classify"),
                      .by_rule = "the values of short ListOps expressions"};
  add_labelled_flags(program);
  program.train_flags.push_back({"--labels", "data.labels", "PATH"});
  program.files = {{{"Labelled texts to measure on; default: a part of the run's data"}, "--data"}};
  return run_task_program(program, argc, argv);
}
