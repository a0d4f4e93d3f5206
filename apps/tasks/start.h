#pragma once

#include <map>
#include <string>
#include <vector>

#include "heed/apps/tasks/learner.h"
#include "heed/data/tokenizer.h"

// What a run starts from, where that is not chance: another run, vectors of words.

namespace heed {

/// Throws a SettingsError for settings of the start that do not fit together. Reads nothing.
void check_start(const Settings& settings);
/// Lays what the model of a run was made with over the defaults: all below "model", "tokenizer", "news" and
/// "user" but the low-rank parts, and how many tokens it reads (data.max_tokens, where model.max_length is
/// not there). What the run's task does not set has the default of TransformerConfig; sparse_features keeps
/// that of this task. A model of one stack takes the layers of an encoder from a decoder, and the other way
/// round; between one and two stacks it throws.
void take_model_of(Settings& settings, const std::string& run);
/// The parts in training.ignore, and "sparse" with "output": the features of texts answer with it.
std::vector<std::string> parts_started_afresh(const Settings& settings);
/// What weights were taken from where.
struct Start {
  /// "task", "identity" and "weights" (a digest) of the other run; "embeddings", the digest of the file of
  /// vectors.
  std::map<std::string, std::string> origin;
  std::vector<std::string> remarks;
};

/// Fills a new model with what the settings name. From another run come the weights: its best ones, where it
/// has measured itself, with low-rank parts merged; of learned positions as many as the model has. All
/// weights of the model must be there by their names and shapes, but those of the parts in training.ignore;
/// an encoder may take the layers of a decoder. "output" and "sparse" (SparseLinear) are taken from runs of
/// the same task with the same classes alone, the vectors of categories and single news from those that
/// number them alike. Else a SettingsError lists what does not match, the settings by which the models differ, and
/// what to ignore. The rows of the embedding are then set to the vectors of training.embeddings, divided by
/// sqrt(width) where the model multiplies by that, so that the layers read the vectors as they stand. Throws
/// Error for a file of vectors that is damaged (with file and line) or of another width.
Start start_weights(Learner& learner);
/// The same of a run that began like that: throws an Error unless what it took from elsewhere is still the
/// same.
Start start_anew(Learner& learner, const RunFiles& files);

}  // namespace heed
