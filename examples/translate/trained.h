#pragma once

#include <memory>
#include <string>

#include "../common/runtime.h"
#include "settings.h"
#include "translator.h"

namespace heed::programs {

/// The flags of commands that use a run: which one, which of its weights, and how to search.
struct RunFlags {
  explicit RunFlags(CLI::App& command);
  SettingFlags settings;
  std::string run;
  std::string weights = "best";
};

/// A trained model with everything that belongs to it.
struct Trained {
  Settings settings;
  Tokenizer tokenizer;
  std::unique_ptr<EncoderDecoder> model;
  Translator translator;
};

/// Opens the run of the flags: its configuration with the flags laid over it, its tokenizer and its weights.
Trained open_run(const RunFlags& flags);

}  // namespace heed::programs
