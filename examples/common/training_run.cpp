#include "training_run.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "heed/core/error.h"
#include "heed/core/profile.h"
#include "program.h"

namespace heed::programs {

Json training_defaults() {
  const TrainerOptions options;
  const ScheduleOptions schedule;
  return {
      {"steps", 1000},
      {"epochs", 0},
      {"batch_tokens", 4096},
      {"accumulation", options.accumulation},
      {"label_smoothing", 0.1},
      {"clip_norm", 1.0},
      {"ema_decay", options.ema_decay},
      {"optimizer",
       {{"name", "adam"}, {"beta1", 0.9}, {"beta2", 0.98}, {"epsilon", 1e-9}, {"weight_decay", 0.0}}},
      {"schedule",
       {{"name", "inverse_sqrt"},
        {"learning_rate", 1e-3},
        {"warmup_steps", 400},
        {"final_rate", schedule.final_rate}}},
      {"log_every", options.log_every},
      {"evaluate_every", 500},
      {"patience", options.patience},
      {"save_every", 500},
  };
}

TrainerOptions trainer_options(const Settings& settings) {
  const auto integer = [&](const char* name) {
    return settings.get<std::int64_t>(std::string("training.") + name);
  };
  const auto number = [&](const char* name) { return settings.get<double>(std::string("training.") + name); };
  const auto text = [&](const char* name) {
    return settings.get<std::string>(std::string("training.") + name);
  };
  check_name("optimizer", text("optimizer.name"), {"sgd", "adam", "adamw"});
  check_name("schedule", text("schedule.name"), {"constant", "linear", "cosine", "inverse_sqrt"});

  TrainerOptions options;
  options.epochs = integer("epochs");
  options.steps = options.epochs > 0 ? 0 : integer("steps");
  options.accumulation = integer("accumulation");
  options.clip_norm = number("clip_norm");
  options.ema_decay = number("ema_decay");
  options.optimizer = {optimizer_kind(text("optimizer.name")), number("optimizer.beta1"),
                       number("optimizer.beta2"), number("optimizer.epsilon"),
                       number("optimizer.weight_decay")};
  options.schedule = {schedule_kind(text("schedule.name")), number("schedule.learning_rate"),
                      integer("schedule.warmup_steps"), number("schedule.final_rate")};
  options.log_every = integer("log_every");
  options.evaluate_every = integer("evaluate_every");
  options.patience = integer("patience");
  options.save_every = integer("save_every");
  const auto seed = settings.get<std::int64_t>("seed");
  if (seed < 0) throw UsageError(concat_text("seed must not be negative, but is ", seed));
  options.seed = static_cast<std::uint64_t>(seed);
  check_name("precision", settings.get<std::string>("precision"), {"f32", "f16", "bf16"});
  options.precision = precision_from_name(settings.get<std::string>("precision"));
  return options;
}

TrainFlags::TrainFlags(CLI::App& command, SettingFlags& settings) {
  command.add_option("--out", out, "Folder of the run: configuration, weights, checkpoint, metrics")
      ->required()
      ->type_name("RUN");
  settings.integer("--seed", "seed", "Seed of initial weights, dropout and the order of the data");
  settings.integer("--steps", "training.steps", "Steps of the optimizer");
  settings.integer("--save-every", "training.save_every", "Steps between checkpoints");
  command.add_flag(
      "--resume", resume,
      "Continues the run in --out from its last checkpoint, to the same bits as without the break");
  command.add_flag("--profile", profile, "Prints at the end where the time went, per kernel");
}

bool resumes(const TrainFlags& train) {
  return train.resume && std::filesystem::exists(std::filesystem::path(train.out) / "config.json");
}

Settings resolve_settings(Settings settings, const TrainFlags& train, const SettingFlags& flags) {
  if (resumes(train)) settings.merge_saved((std::filesystem::path(train.out) / "config.json").string());
  flags.apply(settings);
  return settings;
}

Console::Console() : printer_(std::cerr, ProgressPrinter::style_of(STDERR_FILENO)) {}

namespace {

RunFolder open_run_folder(const Settings& settings, const TrainFlags& train) {
  static const std::vector<std::string> free_keys = {"threads",           "device",
                                                     "decoding",          "prediction",
                                                     "generation",        "training.steps",
                                                     "training.epochs",   "training.save_every",
                                                     "training.patience", "training.log_every"};
  const std::string config = settings.values().dump(2) + "\n";
  return resumes(train) ? RunFolder::resume(train.out, config, free_keys)
                        : RunFolder::create(train.out, config);
}

std::unique_ptr<Trainer> make_trainer(Task& task, const Settings& settings,
                                      const TrainerCallbacks& callbacks) {
  const TrainerOptions options = trainer_options(settings);
  try {
    auto trainer = std::make_unique<Trainer>(task, options, callbacks);
    learning_rate_at(options.schedule, 1, std::max<std::int64_t>(options.steps, 1));
    return trainer;
  } catch (const Error& error) {
    throw UsageError(concat_text("training: ", error.what()));
  }
}

}  // namespace

int run_training(Task& task, const Settings& settings, const TrainFlags& train, Console& console,
                 const std::function<void(const RunFolder&)>& prepare) {
  const InterruptGuard interrupt;
  TrainerCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) { console.printer().show(progress); };
  callbacks.message = [&](std::string_view text) { console.say(text); };
  callbacks.stop_requested = [] { return InterruptGuard::interrupted(); };

  const std::unique_ptr<Trainer> trainer = make_trainer(task, settings, callbacks);
  if (train.resume && !resumes(train))
    console.say(concat_text("there is no run in ", train.out, " to resume: starting one"));
  RunFolder folder = open_run_folder(settings, train);
  prepare(folder);
  if (train.profile) start_profile();
  const TrainResult result = trainer->run(&folder);
  console.printer().finish();
  if (train.profile) {
    stop_profile();
    std::cerr << profile_table();
  }
  if (!result.finished) {
    console.say(concat_text("interrupted at step ", result.step, "; the checkpoint is in ", train.out,
                            ", and --resume continues from there"));
    return exit_interrupted;
  }
  console.say(
      concat_text("done after ", result.step, " steps in ", duration_text(result.seconds), ": ", train.out));
  return exit_success;
}

}  // namespace heed::programs
