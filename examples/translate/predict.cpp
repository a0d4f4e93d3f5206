// translate predict: lines in, translated lines out.

#include <iostream>

#include "../common/capture_file.h"
#include "../common/commands.h"
#include "../common/line_reader.h"
#include "../common/program.h"
#include "heed/core/error.h"
#include "trained.h"

namespace heed::programs {
namespace {

struct PredictCommand {
  explicit PredictCommand(CLI::App& command) : run(command) {
    command.add_option("--source", source, "Sentences to translate, one a line; default: standard input")
        ->type_name("FILE");
    add_capture_flag(command, capture);
  }
  TranslatorFlags run;
  std::string source, capture;
};

int predict(const PredictCommand& command) {
  Trained trained = open_run(command.run);
  CaptureFile inside(command.capture);
  if (!command.capture.empty()) trained.translator.capture_to(&inside);
  LineReader reader(command.source);
  const auto many = static_cast<std::size_t>(16 * trained.settings.get<std::int64_t>("decoding.batch_size"));
  for (std::vector<std::string> lines; !(lines = reader.next(many)).empty();) {
    for (const std::string& translation : trained.translator(lines)) std::cout << translation << '\n';
    flush_output();
  }
  if (!command.capture.empty()) inside.save();
  if (const std::int64_t cut = trained.translator.cut_lines(); cut > 0)
    std::cerr << "translate: " << cut << " lines are longer than decoding.max_source_tokens and were cut\n";
  return exit_success;
}

}  // namespace

std::function<int()> add_predict_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "Translates lines: one line out for each line in");
  auto options = std::make_shared<PredictCommand>(*command);
  return [options] { return predict(*options); };
}

}  // namespace heed::programs
