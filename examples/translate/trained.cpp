#include "trained.h"

#include "../common/program.h"
#include "../common/runtime.h"

namespace heed::programs {

TranslatorFlags::TranslatorFlags(CLI::App& command) : run(command) {
  SettingFlags& settings = run.settings;
  settings.integer("--beam", "decoding.beam",
                   "Hypotheses that the search keeps for each sentence; 1: greedy");
  settings.number("--length-penalty", "decoding.length_penalty", "Exponent of the length penalty; 0: none");
  settings.integer("--batch-size", "decoding.batch_size", "Sentences that are translated at a time");
}

Trained open_run(const TranslatorFlags& flags) {
  Settings settings = run_settings(translation_defaults(DataKind::files), flags.run);
  const Device device = apply_runtime(settings);
  Tokenizer tokenizer = run_tokenizer(flags.run);
  auto model = make_translator_model(settings, tokenizer.vocabulary_size(), device);
  load_run_weights(*model, flags.run);
  const auto batch_size = settings.get<std::int64_t>("decoding.batch_size");
  if (batch_size < 1)
    throw UsageError("decoding.batch_size must be at least 1, not " + std::to_string(batch_size));
  Translator translator(*model, tokenizer, search_options(settings, tokenizer), batch_size,
                        settings.get<std::int64_t>("decoding.max_source_tokens"));
  return {std::move(settings), std::move(tokenizer), std::move(model), std::move(translator)};
}

}  // namespace heed::programs
