#pragma once

#include <optional>
#include <span>
#include <string>

#include "heed/data/tokenizer.h"
#include "heed/models/batch.h"
#include "settings.h"
#include "training_run.h"

namespace heed::programs {

/// The "tokenizer" settings: how the vocabulary is learned.
Json tokenizer_defaults();
/// The tokenizer of the run that is resumed, if there is one.
std::optional<Tokenizer> resumed_tokenizer(const TrainFlags& train);
/// The tokenizer of the run that is resumed, else one learned from the lines.
Tokenizer tokenizer_for(const TrainFlags& train, const Settings& settings,
                        std::span<const std::string> lines);

/// The ids of a text as an encoder reads them: its tokens and the end mark.
Tokens tokens_with_end(const Tokenizer& tokenizer, const std::string& text);

}  // namespace heed::programs
