#pragma once

#include <memory>

#include "../common/trained_run.h"
#include "settings.h"
#include "translator.h"

namespace heed::programs {

/// The flags of commands that translate with a run: how to search.
struct TranslatorFlags {
  explicit TranslatorFlags(CLI::App& command);
  RunFlags run;
};

/// A trained model with everything that belongs to it.
struct Trained {
  Settings settings;
  Tokenizer tokenizer;
  std::unique_ptr<EncoderDecoder> model;
  Translator translator;
};

/// Opens the run of the flags: its configuration with the flags laid over it, its tokenizer and its weights.
Trained open_run(const TranslatorFlags& flags);

}  // namespace heed::programs
