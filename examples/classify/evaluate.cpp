// classify evaluate: measures a trained model; the last line of standard output is one JSON object.

#include <iostream>

#include "../common/commands.h"
#include "../common/program.h"
#include "../common/result.h"
#include "labelled_data.h"
#include "quality.h"
#include "trained.h"

namespace heed::programs {
namespace {

struct EvaluateCommand {
  explicit EvaluateCommand(CLI::App& command) : run(command) {
    command.add_option("--data", data, "Labelled texts to measure on; default: a part of the run's data")
        ->type_name("PATH");
    command.add_option("--part", part, "Part of the run's data: valid, test or train")
        ->type_name("NAME")
        ->capture_default_str();
    add_format_flags(run.run.settings);
  }
  ClassifierFlags run;
  std::string data, part = "valid";
};

LabelledText text_to_measure(const EvaluateCommand& command, const Settings& settings) {
  check_name("part", command.part, {"valid", "test", "train"});
  if (!command.data.empty()) return read_labelled_text(settings, command.data);
  TextParts parts = load_text(settings);
  LabelledText text = std::move(command.part == "valid"  ? parts.valid
                                : command.part == "test" ? parts.test
                                                         : parts.train);
  if (text.size() == 0)
    throw UsageError("the " + command.part + " part of the run's data is empty: give --data");
  return text;
}

int evaluate(const EvaluateCommand& command) {
  Trained trained = open_run(command.run);
  const LabelledText text = text_to_measure(command, trained.settings);
  const LabelledTokens tokens{trained.encode(text), classes_of(text, trained.classes)};
  if (const std::string cut = trained.encode.cut_message(); !cut.empty())
    std::cerr << "classify: " << cut << '\n';
  print_result(to_json(measure(*trained.model, tokens, trained.batch_size), trained.classes));
  return exit_success;
}

}  // namespace

std::function<int()> add_evaluate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "evaluate", "Measures a trained model: accuracy, loss, precision and recall of each class");
  auto options = std::make_shared<EvaluateCommand>(*command);
  return [options] { return evaluate(*options); };
}

}  // namespace heed::programs
