#pragma once

#include "heed/tasks/learner.h"

namespace heed {

/// Translation: an encoder-decoder Transformer (tasks/text_to_text.h) that learns from pairs of sentences and
/// translates by beam search. Pairs come from a table or from two files, line by line (tasks/pair_data.h); without them
/// it learns English number words to German ones, made by rule.
///
/// Files of a run beside the weights: tokenizer.json, one vocabulary for both languages. Parts of the data: train,
/// valid, test.
const TaskKind& translate_task();

}  // namespace heed
