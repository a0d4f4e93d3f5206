// language_model evaluate: measures a trained model; standard output is one JSON object.

#include "../common/commands.h"
#include "../common/program.h"
#include "../common/result.h"
#include "heed/core/error.h"
#include "heed/data/agreement_text.h"
#include "trained.h"

namespace heed::programs {
namespace {

struct EvaluateCommand {
  explicit EvaluateCommand(CLI::App& command) : run(command) {
    command
        .add_option("--data", data,
                    "Text to measure with: a file or a folder; default: the run's validation text")
        ->type_name("PATH");
    run.settings.integer(
        "--stride", "evaluation.stride",
        "Tokens from one window to the next: each is predicted from at least context - stride "
        "others; 0: half of the context");
    command
        .add_option("--sentences", sentences,
                    "After training on the embedded text: sentences to write and to check against its rule")
        ->type_name("N")
        ->check(CLI::Range(0, 100000))
        ->capture_default_str();
  }
  RunFlags run;
  std::string data;
  std::int64_t sentences = 200;
};

Documents text_to_measure(const EvaluateCommand& command, const Settings& settings) {
  if (!command.data.empty()) return read_documents(settings, command.data);
  Documents documents = load_corpus(settings).valid;
  if (documents.empty()) throw UsageError("the run has no validation text: give --data");
  return documents;
}

/// Share of lines, each begun by a line break, that follow the rule of the embedded text.
double share_by_rule(const Trained& trained, std::int64_t count) {
  GenerationOptions options = generation_options(trained.settings, trained.tokenizer);
  const Tokens line_break = trained.tokenizer.encode("\n");
  options.end = line_break.front();
  std::int64_t right = 0;
  for (const Tokens& tokens : generate(*trained.model, line_break, count, options))
    right += follows_agreement(trained.tokenizer.decode(tokens)) ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(count);
}

int evaluate(const EvaluateCommand& command) {
  const Trained trained = open_run(command.run);
  const TextLossOptions windows = evaluation_windows(trained.settings);
  const Documents documents = text_to_measure(command, trained.settings);
  const Tokens stream = stream_of(trained.tokenizer, documents, "the text");
  const TextLoss loss = text_loss(*trained.model, stream, character_count(documents), windows);
  Json result = {{"loss", loss.nats_per_token()},
                 {"perplexity", loss.perplexity()},
                 {"nats_per_character", loss.nats_per_character()},
                 {"bits_per_character", loss.bits_per_character()},
                 {"tokens", loss.tokens},
                 {"characters", loss.characters},
                 {"context", windows.window},
                 {"stride", windows.stride}};
  if (!has_files(trained.settings) && command.sentences > 0) {
    result["sentences"] = command.sentences;
    result["by_rule"] = share_by_rule(trained, command.sentences);
  }
  print_result(result);
  return exit_success;
}

}  // namespace

std::function<int()> add_evaluate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "evaluate", "Measures a trained model: loss per token and per character, perplexity");
  auto options = std::make_shared<EvaluateCommand>(*command);
  return [options] { return evaluate(*options); };
}

}  // namespace heed::programs
