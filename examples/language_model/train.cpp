// language_model train: learns a tokenizer and a decoder-only model from text.

#include "../common/attention_flags.h"
#include "../common/commands.h"
#include "../common/program.h"
#include "../common/runtime.h"
#include "../common/tokenizer_settings.h"
#include "../common/training_run.h"
#include "heed/core/error.h"
#include "task.h"

namespace heed::programs {
namespace {

struct TrainCommand {
  explicit TrainCommand(CLI::App& command)
      : settings(command), train(command, settings), attention(command, Stacks::decoder) {
    settings.text("--data", "data.file", "Text to learn from: a file, plain or gzip, or a folder of files",
                  "PATH");
    settings.text("--valid", "data.valid", "Text to measure progress on; default: the end of --data", "PATH");
    settings.number("--valid-fraction", "data.valid_fraction",
                    "Without --valid: its share of the characters");
    settings.text("--encoding", "data.encoding", "utf-8, latin-1 or cp1252; it is never guessed", "NAME");
    settings.text("--tokenizer", "tokenizer.kind", "characters or bpe", "KIND");
    settings.integer("--context", "model.max_length", "Tokens that the model sees at a time");
    add_runtime_flags(settings);
  }
  SettingFlags settings;
  TrainFlags train;
  AttentionFlags attention;
};

int train(const TrainCommand& command) {
  Console console;
  Settings settings =
      resolve_settings(language_model_defaults(DataKind::agreement), command.train, command.settings);
  if (has_files(settings))
    settings = resolve_settings(language_model_defaults(DataKind::files), command.train, command.settings);
  for (const std::string& note : command.attention.apply(settings)) console.say(note);
  const Device device = apply_runtime(settings);
  make_language_model(settings, 300, device);  // what is wrong with the settings is said first
  trainer_options(settings);
  evaluation_windows(settings);
  const Corpus corpus = load_corpus(settings);
  const std::optional<Tokenizer> resumed = resumed_tokenizer(command.train);
  const Tokenizer tokenizer = resumed ? *resumed : train_tokenizer(settings, corpus);
  console.say(concat_text(character_count(corpus.train), " characters to learn from, ",
                          character_count(corpus.valid), " to measure with; vocabulary ",
                          tokenizer.vocabulary_size()));

  const std::unique_ptr<LanguageModel> model =
      make_language_model(settings, tokenizer.vocabulary_size(), device);
  console.say(concat_text(model->parameter_count(), " parameters"));
  LanguageModelTask task(*model, tokenizer, corpus, settings);
  return run_training(task, settings, command.train, console,
                      [&](const RunFolder& folder) { tokenizer.save(folder.file("tokenizer.json")); });
}

}  // namespace

std::function<int()> add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Learns to predict text, token by token");
  auto options = std::make_shared<TrainCommand>(*command);
  command->footer(
      "Without data flags: English sentences made by rule (agreement, sums of animals).\n"
      "Settings: defaults < --config < --set < flags. RUN/config.json lists all of them.\n"
      "Ctrl-C ends the step, saves a checkpoint and exits with 130; --resume goes on from there.\n");
  return [options] { return train(*options); };
}

}  // namespace heed::programs
