// classify: learns to tell classes of texts, measures it, and labels texts with it.
//
//   classify train --data subj.all --format lines --encoding cp1252 --out runs/subj
//   classify evaluate --run runs/subj
//   classify predict --run runs/subj < texts > labels

#include "heed/tasks/classify.h"
#include "common/task_program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  const std::vector<SettingFlag> format = {{"--format", "data.format", "NAME"},
                                           {"--encoding", "data.encoding", "NAME"},
                                           {"--on-bad-bytes", "data.on_bad_bytes", "NAME"}};
  TaskProgram program{.kind = heed::classify_task(), .by_rule = "the values of short ListOps expressions"};
  program.train_flags = {{"--data", "data.file", "PATH"},
                         {"--valid", "data.valid", "PATH"},
                         {"--test", "data.test", "PATH"},
                         {"--labels", "data.labels", "PATH"},
                         {"--valid-fraction", "data.valid_fraction", "X"},
                         {"--test-fraction", "data.test_fraction", "X"}};
  program.train_flags.insert(program.train_flags.end(), format.begin(), format.end());
  program.evaluate_flags = program.predict_flags = format;
  program.evaluate_flags.push_back({"--batch-size", "prediction.batch_size", "N"});
  program.predict_flags.push_back({"--batch-size", "prediction.batch_size", "N"});
  program.files = {{{"Labelled texts to measure on; default: a part of the run's data"}, "--data"}};
  return run_task_program(program, argc, argv);
}
