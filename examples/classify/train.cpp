// classify train: learns a tokenizer and a model from labelled texts.

#include "../common/attention_flags.h"
#include "../common/commands.h"
#include "../common/program.h"
#include "../common/runtime.h"
#include "../common/tokenizer_settings.h"
#include "../common/training_run.h"
#include "heed/core/error.h"
#include "labelled_data.h"
#include "settings.h"
#include "task.h"
#include "trained.h"

namespace heed::programs {
namespace {

struct TrainCommand {
  explicit TrainCommand(CLI::App& command)
      : settings(command), train(command, settings), attention(command, Stacks::encoder) {
    add_data_flags(settings);
    add_runtime_flags(settings);
  }
  SettingFlags settings;
  TrainFlags train;
  AttentionFlags attention;
};

Settings settings_of(const TrainCommand& command, Console& console) {
  Settings settings =
      resolve_settings(classification_defaults(DataKind::listops), command.train, command.settings);
  if (has_data(settings))
    settings = resolve_settings(classification_defaults(DataKind::files), command.train, command.settings);
  for (const std::string& note : command.attention.apply(settings)) console.say(note);
  return settings;
}

int train(const TrainCommand& command) {
  Console console;
  const Settings settings = settings_of(command, console);
  const Device device = apply_runtime(settings);
  make_classifier(settings, 300, 2,
                  device);  // what is wrong with the settings is said before anything is written
  trainer_options(settings);
  const TextParts parts = load_text(settings);
  const std::vector<std::string> classes = class_names(parts.train);
  const Tokenizer tokenizer = tokenizer_for(command.train, settings, parts.train.texts);
  console.say(concat_text(parts.train.size(), " texts of ", classes.size(), " classes to learn from, ",
                          parts.valid.size(), " to measure with, ", parts.test.size(),
                          " kept for a test; vocabulary ", tokenizer.vocabulary_size()));

  TextEncoder encode(tokenizer, settings);
  LabelledTokens train_tokens{encode(parts.train), classes_of(parts.train, classes)};
  LabelledTokens valid_tokens{encode(parts.valid), classes_of(parts.valid, classes)};
  if (const std::string cut = encode.cut_message(); !cut.empty()) console.say(cut);
  const auto model = make_classifier(settings, tokenizer.vocabulary_size(),
                                     static_cast<std::int64_t>(classes.size()), device);
  console.say(concat_text(model->parameter_count(), " parameters"));
  ClassificationTask task(*model, std::move(train_tokens), std::move(valid_tokens), settings);
  if (const std::string left_out = task.plan().left_out_message(); !left_out.empty()) console.say(left_out);
  return run_training(task, settings, command.train, console, [&](const RunFolder& folder) {
    tokenizer.save(folder.file("tokenizer.json"));
    save_classes(folder.file("classes.json"), classes);
  });
}

}  // namespace

std::function<int()> add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Learns to tell classes from labelled texts");
  auto options = std::make_shared<TrainCommand>(*command);
  command->footer(
      "Without data flags: the values of short ListOps expressions, a data set made by rule.\n"
      "Settings: defaults < --config < --set < flags. RUN/config.json lists all of them.\n"
      "Ctrl-C ends the step, saves a checkpoint and exits with 130; --resume goes on from there.\n");
  return [options] { return train(*options); };
}

}  // namespace heed::programs
