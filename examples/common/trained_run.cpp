#include "trained_run.h"

#include <filesystem>

#include "heed/training/model_file.h"
#include "heed/training/run_folder.h"
#include "runtime.h"

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
  add_runtime_flags(settings);
}

Settings run_settings(Settings defaults, const RunFlags& flags) {
  defaults.merge_saved(run_file(flags.run, "config.json").string());
  flags.settings.apply(defaults);
  return defaults;
}

Tokenizer run_tokenizer(const RunFlags& flags) {
  return Tokenizer::load(run_file(flags.run, "tokenizer.json"));
}

void load_run_weights(Module& model, const RunFlags& flags) {
  load_model(model, weights_file(flags.run, flags.weights));
}

}  // namespace heed::programs
