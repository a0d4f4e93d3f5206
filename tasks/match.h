#pragma once

#include "heed/tasks/learner.h"

namespace heed {

/// Matching of pairs of texts: two texts and the class of the pair, such as a question with a sentence that answers it or
/// not, or a premise with what does or does not follow (models/pair_matcher.h). Pairs come from tables
/// (data/table.h); without them it learns to answer simple questions, made by rule. Pairs with the same first text that
/// follow each other are a group, whose right answers are ranked.
///
/// Files of a run beside the weights: tokenizer.json and classes.json, the names of the classes in the order of the
/// model's outputs. Parts of the data: train, valid, test.
const TaskKind& match_task();

}  // namespace heed
