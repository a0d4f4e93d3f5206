// translate evaluate: measures a trained model; the last line of standard output is one JSON object.

#include <iostream>

#include "../common/commands.h"
#include "../common/program.h"
#include "../common/result.h"
#include "heed/core/error.h"
#include "task.h"
#include "trained.h"

namespace heed::programs {
namespace {

struct EvaluateCommand {
  explicit EvaluateCommand(CLI::App& command) : run(command) {
    command
        .add_option("--source", source,
                    "Sentences to translate, one a line; default: the run's validation data")
        ->type_name("FILE");
    command.add_option("--target", target, "Their translations, line by line")->type_name("FILE");
  }
  TranslatorFlags run;
  std::string source, target;
};

ParallelText text_to_measure(const EvaluateCommand& command, const Settings& settings) {
  if (command.source.empty() != command.target.empty())
    throw UsageError("--source and --target go together, but only one is given");
  return command.source.empty() ? load_validation(settings)
                                : read_text(settings, command.source, command.target);
}

int evaluate(const EvaluateCommand& command) {
  Trained trained = open_run(command.run);
  const ParallelText text = text_to_measure(command, trained.settings);
  const TranslationQuality quality = measure(*trained.model, trained.tokenizer, text, trained.translator);
  if (const std::int64_t cut = trained.translator.cut_lines(); cut > 0)
    std::cerr << cut << " sources are longer than decoding.max_source_tokens and were cut\n";
  const Json result = {{"bleu", rounded(quality.bleu)},
                       {"loss", quality.loss},
                       {"exact", quality.exact},
                       {"sentences", text.size()},
                       {"signature", quality.signature}};
  print_result(result);
  return exit_success;
}

}  // namespace

std::function<int()> add_evaluate_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("evaluate", "Measures a trained model: BLEU, loss, share of exact translations");
  auto options = std::make_shared<EvaluateCommand>(*command);
  return [options] { return evaluate(*options); };
}

}  // namespace heed::programs
