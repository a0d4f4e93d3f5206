#pragma once

#include "heed/models/decoding.h"
#include "heed/tasks/learner.h"

namespace heed {

/// How text is written, beside the settings under "generation".
class TextWriter {
 public:
  virtual ~TextWriter() = default;
  /// Throws an Error for a prompt that the model cannot read.
  virtual void check_prompt(const std::string& prompt) const = 0;
  /// `samples` continuations of a prompt; text i depends on the prompt, the settings and i alone. An empty
  /// prompt stands for a line break. Throws an Error for a prompt that the model cannot read.
  virtual std::vector<Prediction> write(const std::string& prompt, std::int64_t samples,
                                        const PredictOptions& options) = 0;
};
/// The learner of a language_model run as a writer; throws an Error for another task's.
TextWriter& text_writer(Learner& learner);

}  // namespace heed
