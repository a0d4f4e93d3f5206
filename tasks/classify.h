#pragma once

#include "heed/tasks/learner.h"

namespace heed {

/// Classification of texts: an encoder whose output, pooled over the tokens, is mapped to the classes
/// (models/encoder_classifier.h). Labelled texts come from files (data/labelled_text.h); without them it learns the
/// values of short ListOps expressions, made by rule.
///
/// Files of a run beside the weights: tokenizer.json and classes.json, the names of the classes in the order of the
/// model's outputs. Parts of the data: train, valid, test.
const TaskKind& classify_task();

}  // namespace heed
