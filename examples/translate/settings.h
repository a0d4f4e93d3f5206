#pragma once

#include <memory>

#include "../common/settings.h"
#include "heed/data/parallel_text.h"
#include "heed/data/tokenizer.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/search.h"

namespace heed::programs {

/// What a run learns from: its default settings follow from it.
enum class DataKind {
  number_words,  ///< the embedded data set: a small model, trained in a minute
  files,         ///< pairs of sentences
};
Settings translation_defaults(DataKind kind);
/// True when the settings name files; throws UsageError when they name half of a pair.
bool has_files(const Settings& settings);

/// A new model of the settings; throws UsageError for settings that make no sense.
std::unique_ptr<EncoderDecoder> make_translator_model(const Settings& settings, std::int64_t vocabulary,
                                                      Device device);
SearchOptions search_options(const Settings& settings, const Tokenizer& tokenizer);

/// What is trained on, and what measures progress (empty when no validation files were given).
struct Corpus {
  ParallelText train, valid;
};
/// Two files of lines in the encoding that the setting data.encoding names.
ParallelText read_text(const Settings& settings, const std::string& source, const std::string& target);
/// Reads the files of the settings, or makes the embedded data set when they name none.
Corpus load_corpus(const Settings& settings);
/// The validation part alone.
ParallelText load_validation(const Settings& settings);

}  // namespace heed::programs
