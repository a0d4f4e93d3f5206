// recommend: learns which news a user will click, measures it, and ranks news with it.
//
//   recommend train --data behaviors.tsv --news news.tsv --out runs/mind
//   recommend evaluate --run runs/mind --part test
//   printf 'N138 N64727\tN50329 N11853\n' | recommend predict --run runs/mind --json

#include "common/task_program.h"

int main(int argc, char** argv) {
  using namespace heed::programs;
  const std::vector<SettingFlag> text = {{"--encoding", "data.encoding", "NAME"},
                                         {"--on-bad-bytes", "data.on_bad_bytes", "NAME"}};
  TaskProgram program{.kind = heed::task_kind("recommend"), .by_rule = "which topics the users like"};
  program.train_flags = {{"--data", "data.file", "FILE"},
                         {"--news", "data.news", "FILE"},
                         {"--valid", "data.valid", "FILE"},
                         {"--test", "data.test", "FILE"},
                         {"--valid-fraction", "data.valid_fraction", "X"},
                         {"--test-fraction", "data.test_fraction", "X"}};
  program.evaluate_flags = {{"--news", "prediction.news", "FILE"},
                            {"--batch-size", "prediction.batch_size", "N"}};
  program.predict_flags = program.evaluate_flags;
  for (auto* flags : {&program.train_flags, &program.evaluate_flags, &program.predict_flags})
    flags->insert(flags->end(), text.begin(), text.end());
  program.files = {{{"Impressions to measure on; default: a part of the run's data"}, "--data"}};
  return run_task_program(program, argc, argv);
}
