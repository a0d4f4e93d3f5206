#include <CLI/CLI.hpp>
#include <iomanip>
#include <nlohmann/json.hpp>

#include "heed/apps/cli/task_program.h"
#include "heed/apps/tasks/text_to_text.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;

class ScoreCommand {
 public:
  ScoreCommand(CLI::App& command, const TaskProgram& program)
      : run_(command, program, program.evaluate_flags), files_(command, program) {
    command.add_flag("--json", json_, "Writes a line of JSON for each pair");
  }

  int run() {
    const std::vector<std::string> files = files_.given();
    if (files.empty()) throw SettingsError("score needs the pairs to score: " + files_.names());
    Run run = run_.open();
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

std::function<int()> add_score(CLI::App& app, const TaskProgram& program) {
  return add_command<ScoreCommand>(app, program, "score",
                                   "Says how likely given targets are: a line with the log-probability "
                                   "(natural) and the perplexity of each");
}

}  // namespace heed::programs
