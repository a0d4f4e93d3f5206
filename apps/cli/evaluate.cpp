#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "heed/apps/cli/evaluation_table.h"
#include "heed/apps/cli/task_program.h"
#include "heed/apps/tasks/run.h"
#include "heed/base/file.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;

class EvaluateCommand {
 public:
  EvaluateCommand(CLI::App& command, const TaskProgram& program)
      : run_(command, program, program.evaluate_flags), files_(command, program) {
    part_.add(command, "--part", "NAME", "Part of the run's data: valid (the default), test or train");
    command.add_flag("--json", json_,
                     "Prints one JSON object; the default where standard output is no terminal");
    command.add_flag("--table", table_, "Prints figures for people; the default on a terminal");
    if (!program.has_labels) return;
    errors_.add(command, "--errors", "Writes the wrong answers as lines of JSON, the most confident first");
  }

  int run() {
    errors_.check();
    if (json_ && table_) throw SettingsError("--json and --table are two forms of one result: give one");
    const std::vector<std::string> files = files_.given();
    if (!files.empty() && part_.given())
      throw SettingsError("--part is of the run's own data: give it or " + files_.names());
    Run run = run_.open();
    const std::string part = part_.value("valid");
    const Measurement measurement = files.empty() ? run.measure(part) : run.measure_files(files);
    print_remarks(run_.program(), run.learner());
    if (errors_.given()) write_mistakes(measurement);
    Json result = files.empty() ? Json{{"part", part}} : Json{{"files", files}};
    result.update(Json::parse(measurement.json));
    if (table_ || (!json_ && isatty(STDOUT_FILENO) == 1))
      std::cout << evaluation_table(result, ProgressPrinter::style_of(STDOUT_FILENO).columns) << std::flush;
    else
      std::cout << json_text(result) << std::endl;
    return exit_success;
  }

 private:
  void write_mistakes(const Measurement& measurement) const {
    std::string lines;
    for (const Mistake& one : measurement.mistakes)
      lines += json_text({{"place", one.place},
                          {"expected", one.expected},
                          {"predicted", one.predicted},
                          {"probability", one.probability},
                          {"text", one.text}}) +
               "\n";
    write_output(errors_.value(), lines, errors_.overwrite);
  }

  RunFlags run_;
  DataFlags files_;
  TextFlag part_;
  OutputFlag errors_;
  bool json_ = false, table_ = false;
};

}  // namespace

std::function<int()> add_evaluate(CLI::App& app, const TaskProgram& program) {
  return add_command<EvaluateCommand>(app, program, "evaluate", "Measures a trained model");
}

}  // namespace heed::programs
