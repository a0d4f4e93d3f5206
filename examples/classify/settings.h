#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../common/settings.h"
#include "heed/data/labelled_text.h"
#include "heed/data/tokenizer.h"
#include "heed/models/batch.h"
#include "heed/models/encoder_classifier.h"

namespace heed::programs {

/// What a run learns from: its default settings follow from it.
enum class DataKind {
  listops,  ///< expressions made by rule: a small model, trained in a minute or two
  files,    ///< labelled texts
};
Settings classification_defaults(DataKind kind);

/// A new model of the settings; throws UsageError for settings that make no sense.
std::unique_ptr<EncoderClassifier> make_classifier(const Settings& settings, std::int64_t vocabulary,
                                                   std::int64_t classes, Device device);

/// prediction.batch_size: how many texts are read at a time; throws UsageError when it is not positive.
std::int64_t prediction_batch_size(const Settings& settings);

/// Turns texts into what the model reads: their tokens and the end mark.
class TextEncoder {
 public:
  /// data.max_tokens is the most tokens of a text; data.long_texts says what happens to longer ones: "error",
  /// or "cut", which keeps the beginning.
  TextEncoder(Tokenizer tokenizer, const Settings& settings);
  /// `place` says in errors where the text came from.
  Tokens operator()(const std::string& text, const std::string& place);
  std::vector<Tokens> operator()(const LabelledText& text);
  /// "3 texts are longer than data.max_tokens = 256 and were cut", or "" when none was.
  std::string cut_message() const;

 private:
  Tokenizer tokenizer_;
  std::size_t max_tokens_;
  bool cut_;
  std::int64_t cut_texts_ = 0;
};

}  // namespace heed::programs
