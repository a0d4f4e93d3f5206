#pragma once

#include <memory>

#include "../common/settings.h"
#include "../common/training_run.h"
#include "heed/data/tokenizer.h"
#include "heed/models/language_model.h"
#include "heed/training/perplexity.h"

namespace heed::programs {

/// Stands before every document of the stream that a model learns, so it begins a text and ends it.
inline const std::string text_mark = "<|endoftext|>";

/// What a run learns from: its default settings follow from it.
enum class DataKind {
  agreement,  ///< sentences made by rule: a small model, trained in minutes
  files,      ///< any text
};
Settings language_model_defaults(DataKind kind);
/// True when the settings name a text; throws UsageError when they name one to measure with alone.
bool has_files(const Settings& settings);

/// A new model of the settings; throws UsageError for settings that make no sense.
std::unique_ptr<LanguageModel> make_language_model(const Settings& settings, std::int64_t vocabulary,
                                                   Device device);

/// Documents: their characters are what a model is measured by.
using Documents = std::vector<std::string>;
/// What is trained on, and what measures progress.
struct Corpus {
  Documents train, valid;
};
/// The text of a file, or of all files in a folder and those below it, by name.
Documents read_documents(const Settings& settings, const std::string& path);
/// Reads the text of the settings, or makes the embedded one when they name none.
Corpus load_corpus(const Settings& settings);

/// A tokenizer as the settings say: the characters of all the text there is, or BPE learned from what is
/// trained on.
Tokenizer train_tokenizer(const Settings& settings, const Corpus& corpus);
/// Throws an Error that names the characters of the text which the tokenizer does not know, if any.
void check_known(const Tokenizer& tokenizer, std::string_view text, std::string_view what);
/// The stream of the documents: the mark and the text of each, after check_known.
Tokens stream_of(const Tokenizer& tokenizer, const Documents& documents, std::string_view what);
std::int64_t character_count(const Documents& documents);

/// How a text is measured: windows of model.max_length, evaluation.stride apart.
TextLossOptions evaluation_windows(const Settings& settings);

}  // namespace heed::programs
