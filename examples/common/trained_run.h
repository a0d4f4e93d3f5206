#pragma once

#include <string>

#include "heed/data/tokenizer.h"
#include "heed/models/module.h"
#include "settings.h"

namespace heed::programs {

/// The flags of commands that use a trained run: which one, which of its weights, and where to compute.
struct RunFlags {
  explicit RunFlags(CLI::App& command);
  SettingFlags settings;
  std::string run;
  std::string weights = "best";
};

/// The configuration of the run laid over the defaults, and the flags over it.
Settings run_settings(Settings defaults, const RunFlags& flags);
/// The tokenizer that the run was trained with.
Tokenizer run_tokenizer(const RunFlags& flags);
/// Reads the chosen weights of the run into its model: with "best" those of the best evaluation where the run
/// has kept them, else the last ones.
void load_run_weights(Module& model, const RunFlags& flags);

}  // namespace heed::programs
