// translate: learns to translate from pairs of sentences, measures it, and translates with it.
//
//   translate train --source train.en.gz --target train.de.gz --valid-source val.en.gz --valid-target val.de.gz --out run
//   translate evaluate --run run --source test.en.gz --target test.de.gz
//   translate predict --run run < english > german
//   translate score --run run --source english --target german

#include "common/task_program.h"
#include "heed/tasks/learner.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  TaskProgram program{.kind = heed::task_kind("translate"), .by_rule = "English number words to German ones"};
  program.has_preset = true;
  add_pair_flags(program);
  add_decoding_flags(program);
  return run_text_to_text_program(program, argc, argv);
}
