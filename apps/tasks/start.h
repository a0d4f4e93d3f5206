#pragma once

#include <map>
#include <string>
#include <vector>

#include "heed/apps/tasks/task.h"
#include "heed/text/tokenizer.h"

// Initial weights from another run or from word vectors.

namespace heed {

/// Throws a SettingsError for contradictory settings of the start (training.from and its kin).
/// Reads nothing.
void check_start(const Settings& settings);
/// Overrides the defaults with the model settings of a run: everything below "model", "tokenizer",
/// "news" and "user" except LoRA, and the longest input (data.max_tokens if there is no
/// model.max_length). Settings that the run's task does not have get the default of
/// TransformerConfig; sparse_features keeps the default of this task. An encoder can take the
/// layers of a decoder and vice versa. Throws between models of one stack and of two stacks.
void apply_model_settings(Settings& settings, const std::string& run);
/// Returns the parts in training.ignore. "output" includes "sparse", because sparse features
/// contribute to the output.
std::vector<std::string> reinitialized_parts(const Settings& settings);
/// The origin of a model's initial weights.
struct Start {
  /// "task", "identity" and "weights" (a digest) of the other run; "embeddings", the digest of the
  /// file of word vectors.
  std::map<std::string, std::string> origin;
  std::vector<std::string> remarks;
};

/// Initializes a new model from the sources in the settings.
///
/// From another run it takes the weights: the best ones if the run was evaluated, with LoRA merged,
/// and as many learned positions as the model has. Every weight must match by name and shape,
/// except in the parts of training.ignore; an encoder may take the layers of a decoder. "output"
/// and "sparse" (SparseLinear) are only taken from runs of the same task with the same classes, and
/// vectors of categories and news items only from runs that number them alike. Otherwise a
/// SettingsError lists the mismatches, the settings by which the models differ, and the parts to
/// ignore.
///
/// Then the embedding rows are set to the vectors of training.embeddings, divided by sqrt(width) if
/// the model multiplies by it, so that the layers see the original vectors. Throws Error for a
/// vector file that is damaged (with file and line) or has another width.
Start initialize_weights(Task& task);
/// Initializes the model of a resumed run. Throws an Error unless its sources are unchanged.
Start restore_start(Task& task, const RunFiles& files);

}  // namespace heed
