#include "trained.h"

#include <filesystem>

#include "../common/program.h"
#include "heed/training/model_file.h"
#include "heed/training/run_folder.h"

namespace heed::programs {
namespace {

/// The best weights where the run has kept them, else the last ones.
std::filesystem::path weights_file(const std::string& run, const std::string& weights) {
  check_name("choice of weights", weights, {"best", "last"});
  if (weights == "best") {
    for (const char* folder : {"checkpoint.new", "."}) {
      const std::filesystem::path best = std::filesystem::path(run) / folder / "best.safetensors";
      if (std::filesystem::exists(best)) return best;
    }
  }
  return run_file(run, "model.safetensors");
}

}  // namespace

RunFlags::RunFlags(CLI::App& command) : settings(command) {
  command.add_option("--run", run, "Folder of a run that train made")->required()->type_name("RUN");
  command
      .add_option("--weights", weights,
                  "best: those of the best evaluation; last: those of the last checkpoint")
      ->type_name("WHICH")
      ->capture_default_str();
  settings.integer("--beam", "decoding.beam",
                   "Hypotheses that the search keeps for each sentence; 1: greedy");
  settings.number("--length-penalty", "decoding.length_penalty", "Exponent of the length penalty; 0: none");
  settings.integer("--batch-size", "decoding.batch_size", "Sentences that are translated at a time");
  add_runtime_flags(settings);
}

Trained open_run(const RunFlags& flags) {
  Settings settings = translation_defaults(DataKind::files);
  settings.merge_saved(run_file(flags.run, "config.json").string());
  flags.settings.apply(settings);
  const Device device = apply_runtime(settings);

  Tokenizer tokenizer = Tokenizer::load(run_file(flags.run, "tokenizer.json"));
  auto model = make_model(settings, tokenizer.vocabulary_size(), device);
  load_model(*model, weights_file(flags.run, flags.weights));
  const auto batch_size = settings.get<std::int64_t>("decoding.batch_size");
  if (batch_size < 1)
    throw UsageError("decoding.batch_size must be at least 1, not " + std::to_string(batch_size));
  Translator translator(*model, tokenizer, search_options(settings, tokenizer), batch_size,
                        settings.get<std::int64_t>("decoding.max_source_tokens"));
  return {std::move(settings), std::move(tokenizer), std::move(model), std::move(translator)};
}

}  // namespace heed::programs
