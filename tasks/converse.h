#pragma once

#include "heed/tasks/learner.h"

namespace heed {

/// Dialogue: an encoder-decoder Transformer (tasks/text_to_text.h) that reads the last turns of a dialogue and writes the
/// next one, by beam search or by sampling. Dialogues come from files, one a line, whose turns end in "__eou__"
/// (data/dialogues.h); without them it learns small talk made by rule. A line to answer is the dialogue so far, with
/// "__eou__" between its turns.
///
/// Files of a run beside the weights: tokenizer.json, in which "__eou__" is a token. Parts of the data: train, valid,
/// test.
const TaskKind& converse_task();

}  // namespace heed
