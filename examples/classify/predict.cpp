// classify predict: lines in, labels out.

#include <cmath>
#include <cstdio>
#include <iostream>

#include "../common/commands.h"
#include "../common/line_reader.h"
#include "../common/program.h"
#include "classifier.h"
#include "heed/core/error.h"
#include "trained.h"

namespace heed::programs {
namespace {

struct PredictCommand {
  explicit PredictCommand(CLI::App& command) : run(command) {
    command.add_option("--source", source, "Texts to label, one a line; default: standard input")
        ->type_name("FILE");
    command.add_flag("--probability", probability, "Writes a tab and the label's probability behind it");
  }
  ClassifierFlags run;
  std::string source;
  bool probability = false;
};

std::string line_of(const ClassScores& scores, const std::vector<std::string>& classes, bool probability) {
  const std::size_t best = best_class(scores);
  if (!probability) return classes[best];
  char number[16];
  std::snprintf(number, sizeof number, "\t%.4f", std::exp(static_cast<double>(scores[best])));
  return classes[best] + number;
}

int predict(const PredictCommand& command) {
  Trained trained = open_run(command.run);
  LineReader reader(command.source);
  const std::string origin = command.source.empty() ? "standard input" : command.source;
  std::size_t line = 0;
  const auto many = static_cast<std::size_t>(16 * trained.batch_size);
  for (std::vector<std::string> lines; !(lines = reader.next(many)).empty();) {
    std::vector<Tokens> texts;
    for (const std::string& text : lines)
      texts.push_back(trained.encode(text, concat_text(origin, ", line ", ++line)));
    for (const ClassScores& scores : classify(*trained.model, texts, trained.batch_size))
      std::cout << line_of(scores, trained.classes, command.probability) << '\n';
    flush_output();
  }
  if (const std::string cut = trained.encode.cut_message(); !cut.empty())
    std::cerr << "classify: " << cut << '\n';
  return exit_success;
}

}  // namespace

std::function<int()> add_predict_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "Labels lines: one label out for each line in");
  auto options = std::make_shared<PredictCommand>(*command);
  return [options] { return predict(*options); };
}

}  // namespace heed::programs
