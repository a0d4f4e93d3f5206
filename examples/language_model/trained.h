#pragma once

#include <memory>

#include "../common/trained_run.h"
#include "heed/models/sampling.h"
#include "settings.h"

namespace heed::programs {

/// A trained model with everything that belongs to it.
struct Trained {
  Settings settings;
  Tokenizer tokenizer;
  std::unique_ptr<LanguageModel> model;
};

/// Opens the run of the flags: its configuration with the flags laid over it, its tokenizer and its weights.
Trained open_run(const RunFlags& flags);

/// The settings under "generation"; throws UsageError for those that make no sense.
GenerationOptions generation_options(const Settings& settings, const Tokenizer& tokenizer);

}  // namespace heed::programs
