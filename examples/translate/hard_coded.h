#pragma once

#include "../common/settings.h"
#include "heed/data/parallel_text.h"
#include "heed/data/tokenizer.h"

namespace heed::programs {

/// Sets the attentions of a preset of models/presets.h; throws UsageError for an unknown name.
void set_preset(Settings& settings, const std::string& name);
/// Where hard-coded Gaussian attention looks from the decoder to the encoder and no gamma is set: sets it to
/// the mean length of a source over that of its target, as the paper has it. True when it did.
bool set_gamma(Settings& settings, const Tokenizer& tokenizer, const ParallelText& text);

}  // namespace heed::programs
