#include "task_program.h"

#include <CLI/CLI.hpp>
#include <iomanip>
#include <nlohmann/json.hpp>

#include "heed/tasks/text_to_text.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;

void append(std::vector<SettingFlag>& flags, const std::vector<SettingFlag>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
}

class ScoreCommand {
 public:
  ScoreCommand(CLI::App& command, const TaskProgram& program)
      : run_(command, program, program.evaluate_flags), files_(command, program) {
    command.add_flag("--json", json_, "Writes a line of JSON for each pair");
  }

  int run() {
    const std::vector<std::string> files = files_.given();
    if (files.empty()) throw SettingsError("score needs the pairs to score: " + files_.names());
    Run run = run_.open(RunUse::scores);
    TextToTextLearner& learner = text_to_text(run.learner());
    for (const TargetScore& score : learner.score(learner.read_files(files))) {
      if (json_)
        std::cout << Json{{"log_probability", score.log_probability},
                          {"perplexity", score.perplexity()},
                          {"tokens", score.tokens}}
                  << '\n';
      else
        std::cout << std::fixed << std::setprecision(4) << score.log_probability << '\t' << score.perplexity()
                  << '\n';
    }
    flush_output();
    print_remarks(run_.program(), run.learner());
    return exit_success;
  }

 private:
  RunFlags run_;
  DataFlags files_;
  bool json_ = false;
};

}  // namespace

void add_pair_flags(TaskProgram& program) {
  program.train_flags = {"data.source",      "data.target",        "data.valid_source", "data.valid_target",
                         "data.test_source", "data.test_target",   "data.file",         "data.valid",
                         "data.test",        "data.valid_fraction"};
  add_table_flags(program, {"data.source_column"});
  for (auto* flags : {&program.train_flags, &program.evaluate_flags})  // predict reads no targets
    flags->emplace_back("data.target_column");
  program.parallel_files = {{{"In place of --data: sources, one a line"}, "--source"},
                            {{"What was to be written for them, line by line"}, "--target"}};
}

void add_decoding_flags(TaskProgram& program) {
  for (auto* flags : {&program.evaluate_flags, &program.predict_flags})
    append(*flags, {"decoding.beam",
                    "decoding.n_best",
                    "decoding.method",
                    "decoding.temperature",
                    "decoding.top_k",
                    "decoding.top_p",
                    {"decoding.seed", "--decoding-seed"},
                    "decoding.length_penalty",
                    "decoding.batch_size"});
}

std::function<int()> add_score(CLI::App& app, const TaskProgram& program) {
  return add_command<ScoreCommand>(app, program, "score",
                                   "Says how likely given targets are: a line with the log-probability "
                                   "(natural) and the perplexity of each");
}

}  // namespace heed::programs
