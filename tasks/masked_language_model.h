#pragma once

#include <memory>

#include "heed/tasks/learner.h"

namespace heed {

/// The learner of a language_model run with objective=masked: an encoder (models/language_model.h) guesses
/// hidden tokens from both sides. It has model.decoder_layers layers of model.decoder_attention, any
/// mechanism that can serve in an encoder, and fills in the lines it is given.
///
/// Beside the loss of the hidden tokens it measures their accuracy, and pseudo_perplexity, exp(loss): no
/// perplexity, because what it guesses from is most of the text.
std::unique_ptr<Learner> make_masked_learner(const TaskKind& kind, Settings settings);

}  // namespace heed
