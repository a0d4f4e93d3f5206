#pragma once

#include "heed/tasks/learner.h"

namespace heed {

/// Vectors of texts: an encoder (models/sentence_encoder.h) gives each a vector of length 1, and learns from pairs that
/// belong together, each with the partners of the others in its batch for wrong answers. It is measured by where the
/// partner stands among all second texts. An answer is the vector, its numbers separated by spaces. Without data it learns
/// to bring together English and German number words.
///
/// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid, test.
const TaskKind& embed_text_task();

}  // namespace heed
