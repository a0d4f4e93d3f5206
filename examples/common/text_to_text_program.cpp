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
  for (const char* part : {"", "valid-", "test-"})
    for (const std::string side : {"source", "target"}) {
      std::string setting = std::string(part) + side;
      std::replace(setting.begin(), setting.end(), '-', '_');
      program.train_flags.push_back({"--" + std::string(part) + side, "data." + setting, "FILE"});
    }
  append(program.train_flags, {{"--data", "data.file", "FILE"},
                               {"--valid", "data.valid", "FILE"},
                               {"--test", "data.test", "FILE"},
                               {"--valid-fraction", "data.valid_fraction", "X"}});
  const std::vector<SettingFlag> format = {{"--format", "data.format", "NAME"},
                                           {"--source-column", "data.source_column", "COLUMN"},
                                           {"--target-column", "data.target_column", "COLUMN"}};
  append(program.train_flags, format);
  append(program.evaluate_flags, format);
  program.files = {{{"A table of pairs to measure on; default: a part of the run's data"}, "--data"}};
  program.parallel_files = {{{"In place of --data: sources, one a line"}, "--source"},
                            {{"What was to be written for them, line by line"}, "--target"}};
}

void add_decoding_flags(TaskProgram& program) {
  const std::vector<SettingFlag> text = {{"--encoding", "data.encoding", "NAME"},
                                         {"--on-bad-bytes", "data.on_bad_bytes", "NAME"}};
  append(program.train_flags, text);
  for (auto* flags : {&program.evaluate_flags, &program.predict_flags}) {
    append(*flags, {{"--beam", "decoding.beam", "N"},
                    {"--n-best", "decoding.n_best", "N"},
                    {"--method", "decoding.method", "NAME"},
                    {"--temperature", "decoding.temperature", "X"},
                    {"--top-k", "decoding.top_k", "N"},
                    {"--top-p", "decoding.top_p", "X"},
                    {"--decoding-seed", "decoding.seed", "N"},
                    {"--length-penalty", "decoding.length_penalty", "X"},
                    {"--batch-size", "decoding.batch_size", "N"}});
    append(*flags, text);
  }
}

int run_text_to_text_program(const TaskProgram& program, int argc, char** argv) {
  CLI::App app(description_of(program), std::string(program.kind.name));
  return run_commands(
      app, argc, argv,
      {add_train(app, program), add_evaluate(app, program), add_predict(app, program),
       add_command<ScoreCommand>(app, program, "score",
                                 "Says how likely given targets are: a line with the log-probability "
                                 "(natural) and the perplexity of each")});
}

}  // namespace heed::programs
