#pragma once

#include "heed/tasks/learner.h"

namespace heed {

/// Summaries and headlines: an encoder-decoder Transformer (tasks/text_to_text.h) that learns from texts with their
/// summaries, a table or two files of lines (tasks/pair_data.h), and writes summaries by beam search; without data it
/// learns headlines of reports made by rule. Measured by ROUGE (training/rouge.h), beside the first words of each text.
///
/// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid, test.
const TaskKind& summarize_task();

}  // namespace heed
