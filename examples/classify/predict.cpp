// classify predict: lines in, labels out.

#include <cmath>
#include <cstdio>
#include <iostream>

#include "../common/capture_file.h"
#include "../common/commands.h"
#include "../common/line_reader.h"
#include "../common/program.h"
#include "classifier.h"
#include "heed/autograd/autograd.h"
#include "heed/core/error.h"
#include "trained.h"

namespace heed::programs {
namespace {

struct PredictCommand {
  explicit PredictCommand(CLI::App& command) : run(command) {
    command.add_option("--source", source, "Texts to label, one a line; default: standard input")
        ->type_name("FILE");
    command.add_flag("--probability", probability, "Writes a tab and the label's probability behind it");
    add_capture_flag(command, capture);
  }
  ClassifierFlags run;
  std::string source, capture;
  bool probability = false;
};

std::string line_of(const ClassScores& scores, const std::vector<std::string>& classes, bool probability) {
  const std::size_t best = best_class(scores);
  if (!probability) return classes[best];
  char number[16];
  std::snprintf(number, sizeof number, "\t%.4f", std::exp(static_cast<double>(scores[best])));
  return classes[best] + number;
}

/// One pass over a line, numbered from 0, in which the model shows its inside.
void show_inside(EncoderClassifier& model, const Tokens& tokens, std::size_t line, CaptureFile& file) {
  const NoGrad no_grad;
  Capture capture;
  Context context = Context::inference();
  context.capture = &capture;
  const PaddedTokens input = pad_tokens({&tokens, 1}, model.device());
  model.logits(input, context);
  const std::string example = "lines." + std::to_string(line);
  file.add(example + ".tokens", input.ids);
  file.add(example, capture);
}

int predict(const PredictCommand& command) {
  Trained trained = open_run(command.run);
  LineReader reader(command.source);
  const std::string origin = command.source.empty() ? "standard input" : command.source;
  CaptureFile inside(command.capture);
  std::size_t line = 0;
  const auto many = static_cast<std::size_t>(16 * trained.batch_size);
  for (std::vector<std::string> lines; !(lines = reader.next(many)).empty();) {
    std::vector<Tokens> texts;
    for (const std::string& text : lines)
      texts.push_back(trained.encode(text, concat_text(origin, ", line ", ++line)));
    for (const ClassScores& scores : classify(*trained.model, texts, trained.batch_size))
      std::cout << line_of(scores, trained.classes, command.probability) << '\n';
    flush_output();
    if (command.capture.empty()) continue;
    for (std::size_t i = 0; i < texts.size(); ++i)
      show_inside(*trained.model, texts[i], line - texts.size() + i, inside);
  }
  if (!command.capture.empty()) inside.save();
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
