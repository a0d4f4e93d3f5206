#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "heed/training/trainer.h"
#include "settings.h"

namespace heed::programs {

/// The "training" settings: steps, optimizer, schedule, evaluation, checkpoints.
Json training_defaults();
TrainerOptions trainer_options(const Settings& settings);

/// What every `train` command takes besides its data and model.
struct TrainFlags {
  explicit TrainFlags(CLI::App& command, SettingFlags& settings);
  std::string out;
  bool resume = false;
  bool profile = false;
};

/// The settings of a run: the defaults, or with --resume those of the run in the folder, with the flags laid
/// over them.
Settings resolve_settings(Settings defaults, const TrainFlags& train, const SettingFlags& flags);

/// Remarks on standard error, in the same place as the progress line.
class Console {
 public:
  Console();
  ProgressPrinter& printer() { return printer_; }
  void say(std::string_view text) { printer_.message(text); }

 private:
  ProgressPrinter printer_;
};

/// True when --resume was given and there is a run to continue.
bool resumes(const TrainFlags& train);

/// Opens the run's folder (starts it with the settings, or continues it when they are the same but for the
/// runtime and decoding), lets `prepare` put files there, and trains with progress on standard error. Ctrl-C
/// saves a checkpoint. Returns the program's exit status. Settings that make no sense throw UsageError before
/// anything is written.
int run_training(Task& task, const Settings& settings, const TrainFlags& train, Console& console,
                 const std::function<void(const RunFolder&)>& prepare);

}  // namespace heed::programs
