#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heed/apps/tasks/learner.h"
#include "heed/data/tokenizer.h"

// What a run starts from, where that is not chance: another run, vectors of words.

namespace heed {

/// Throws a SettingsError for settings of the start that do not fit together. Reads nothing.
void check_start(const Settings& settings);
/// Lays the shape of the model of a run over the defaults, so that its weights fit a model of another task:
/// width, heads, layers with their attention, norms, positions and how many, dropout and what else both have;
/// the mark that begins its texts, and whether targets have a tokenizer of their own. A limit of the task's
/// own texts (data.max_tokens) stays, unless the run has fewer positions or an attention whose weights may
/// follow from them. An encoder may take it from a decoder and the other way round, but for the attention of
/// a decoder.
void take_model_of(Settings& settings, const std::string& run);
/// What a command trains with: `lay_over` is called on the task's defaults, those for the user's data where it
/// names some, with the model of training.from below it if the run `is_new`.
Settings settings_to_train(const TaskKind& kind, const std::function<void(Settings&)>& lay_over,
                           bool is_new = true, bool own_data = false);
/// What weights were taken from where.
struct Start {
  /// "task", "identity" and "weights" (a digest) of the other run; "embeddings", the digest of the file of
  /// vectors.
  std::map<std::string, std::string> origin;
  std::vector<std::string> remarks;
};

/// Fills a new model with what the settings name. From another run come the weights whose names the model
/// has; its best ones, where it has measured itself, with low-rank parts merged. Of learned positions it
/// takes as many as it has. Weights of another shape are refused, with the settings by which the models
/// differ; those of an attention that was replaced by another are left out. A part that the run does not have
/// is taken from the one of its kind: one embedding from another, the input of one stack from that of the
/// other, and the layers of an encoder from a decoder that has no cross-attention, or the other way round.
/// "output" and "pairs" (WordPairs) are taken from runs of the same task with the same classes alone, the
/// vectors of categories and single news from those that number them alike. The rows of the embedding are
/// then set to the vectors of training.embeddings, divided by sqrt(width) where the model multiplies by that,
/// so that the layers read the vectors as they stand. Throws Error for weights of another shape, when no
/// weight fits, and for a file of vectors that is damaged (with file and line) or of another width.
Start start_weights(Learner& learner);

}  // namespace heed
