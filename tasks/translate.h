#pragma once

#include "heed/tasks/learner.h"

namespace heed {

/// Translation: an encoder-decoder Transformer (models/encoder_decoder.h) that learns from pairs of sentences and
/// translates by beam search. Pairs come from two files, line by line; without them it learns English number words to
/// German ones, made by rule.
///
/// Files of a run beside the weights: tokenizer.json, one vocabulary for both languages. Parts of the data: train,
/// valid.
const TaskKind& translate_task();

}  // namespace heed
