// translate train: learns a tokenizer and a model from pairs of sentences.

#include "../common/attention_flags.h"
#include "../common/commands.h"
#include "../common/program.h"
#include "../common/runtime.h"
#include "../common/tokenizer_settings.h"
#include "../common/training_run.h"
#include "hard_coded.h"
#include "heed/core/error.h"
#include "task.h"

namespace heed::programs {
namespace {

struct TrainCommand {
  explicit TrainCommand(CLI::App& command)
      : settings(command), train(command, settings), attention(command, Stacks::encoder_decoder) {
    settings.text("--source", "data.source", "Sentences to learn from, one a line; plain or gzip", "FILE");
    settings.text("--target", "data.target", "Their translations, line by line", "FILE");
    settings.text("--valid-source", "data.valid_source", "Sentences to measure progress on", "FILE");
    settings.text("--valid-target", "data.valid_target", "Their translations", "FILE");
    add_runtime_flags(settings);
    command
        .add_option(
            "--preset", preset,
            "A model of the hard-coded Gaussian paper: hc-sa, sh-x or hc-all. Sets all attentions; the "
            "attention flags lie over it")
        ->type_name("NAME");
  }
  SettingFlags settings;
  TrainFlags train;
  AttentionFlags attention;
  std::string preset;
};

/// One vocabulary for both languages.
std::vector<std::string> all_lines(const ParallelText& text) {
  std::vector<std::string> lines = text.source;
  lines.insert(lines.end(), text.target.begin(), text.target.end());
  return lines;
}

int train(const TrainCommand& command) {
  Console console;
  Settings settings =
      resolve_settings(translation_defaults(DataKind::number_words), command.train, command.settings);
  if (has_files(settings))
    settings = resolve_settings(translation_defaults(DataKind::files), command.train, command.settings);
  if (!command.preset.empty()) set_preset(settings, command.preset);
  for (const std::string& note : command.attention.apply(settings)) console.say(note);
  const Device device = apply_runtime(settings);
  make_translator_model(settings, 300,
                        device);  // what is wrong with the settings is said before anything is written
  trainer_options(settings);
  Corpus corpus = load_corpus(settings);
  const Tokenizer tokenizer = tokenizer_for(command.train, settings, all_lines(corpus.train));
  if (set_gamma(settings, tokenizer, corpus.train))
    console.say("gamma of the cross-attention: " + settings.at("model.cross_attention").dump());
  console.say(concat_text(corpus.train.size(), " pairs to learn from, ", corpus.valid.size(),
                          " to measure with; vocabulary ", tokenizer.vocabulary_size()));

  const std::unique_ptr<EncoderDecoder> model =
      make_translator_model(settings, tokenizer.vocabulary_size(), device);
  console.say(concat_text(model->parameter_count(), " parameters"));
  TranslationTask task(*model, tokenizer, std::move(corpus), settings);
  if (const std::string left_out = task.plan().left_out_message(); !left_out.empty()) console.say(left_out);
  return run_training(task, settings, command.train, console,
                      [&](const RunFolder& folder) { tokenizer.save(folder.file("tokenizer.json")); });
}

}  // namespace

std::function<int()> add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Learns to translate from pairs of sentences");
  auto options = std::make_shared<TrainCommand>(*command);
  command->footer(
      "Without data flags: English number words to German ones, a data set made by rule.\n"
      "Settings: defaults < --config < --set < flags. RUN/config.json lists all of them.\n"
      "Ctrl-C ends the step, saves a checkpoint and exits with 130; --resume goes on from there.\n");
  return [options] { return train(*options); };
}

}  // namespace heed::programs
