// translate: learns to translate from pairs of sentences, measures it, and translates with it.
//
//   translate train --source train.en.gz --target train.de.gz --valid-source val.en.gz --valid-target val.de.gz --out run
//   translate evaluate --run run --source test.en.gz --target test.de.gz
//   translate predict --run run < english > german

#include "heed/tasks/translate.h"
#include "common/task_program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  TaskProgram program{.kind = heed::translate_task(), .by_rule = "English number words to German ones"};
  program.has_preset = true;
  program.train_flags = {{"--source", "data.source", "FILE"},
                         {"--target", "data.target", "FILE"},
                         {"--valid-source", "data.valid_source", "FILE"},
                         {"--valid-target", "data.valid_target", "FILE"},
                         {"--encoding", "data.encoding", "NAME"},
                         {"--on-bad-bytes", "data.on_bad_bytes", "NAME"}};
  program.evaluate_flags = {{"--beam", "decoding.beam", "N"},
                            {"--length-penalty", "decoding.length_penalty", "X"},
                            {"--batch-size", "decoding.batch_size", "N"},
                            {"--encoding", "data.encoding", "NAME"},
                            {"--on-bad-bytes", "data.on_bad_bytes", "NAME"}};
  program.predict_flags = program.evaluate_flags;
  program.files = {{{"Sentences to translate, one a line; default: the run's validation data"}, "--source"},
                   {{"Their translations, line by line"}, "--target"}};
  return run_task_program(program, argc, argv);
}
