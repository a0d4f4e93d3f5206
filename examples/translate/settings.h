#pragma once

#include <memory>

#include "../common/settings.h"
#include "heed/data/parallel_text.h"
#include "heed/data/tokenizer.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/search.h"

namespace heed::programs {

/// Every setting of a translation run: of the embedded data set of number words, unless the flags name files.
Settings translation_defaults();

/// A new model of the settings; throws UsageError for settings that make no sense.
std::unique_ptr<EncoderDecoder> make_model(const Settings& settings, std::int64_t vocabulary, Device device);
SearchOptions search_options(const Settings& settings, const Tokenizer& tokenizer);

/// What is trained on, and what measures progress (empty when no validation files were given).
struct Corpus {
  ParallelText train, valid;
};
/// Reads the files of the settings, or makes the embedded data set when they name none.
Corpus load_corpus(const Settings& settings);
/// The validation part alone.
ParallelText load_validation(const Settings& settings);
/// Learns one vocabulary for both languages.
Tokenizer train_tokenizer(const Settings& settings, const ParallelText& text);

}  // namespace heed::programs
