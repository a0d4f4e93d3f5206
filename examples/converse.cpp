// converse: learns to answer in dialogues, measures it, and answers.
//
//   converse train --data dialogues.txt --test dialogues_test.txt --out run
//   converse evaluate --run run --part test
//   echo "Good morning . __eou__ Hello , how are you ?" | converse predict --run run --method sample --temperature 0.7

#include "common/task_program.h"
#include "heed/tasks/learner.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  TaskProgram program{.kind = heed::task_kind("converse"), .by_rule = "small talk"};
  program.train_flags = {{"--data", "data.file", "FILE"},
                         {"--valid", "data.valid", "FILE"},
                         {"--test", "data.test", "FILE"},
                         {"--valid-fraction", "data.valid_fraction", "X"},
                         {"--turns", "data.turns", "N"}};
  program.files = {{{"Dialogues to measure on; default: a part of the run's data"}, "--data"}};
  add_decoding_flags(program);
  return run_text_to_text_program(program, argc, argv);
}
