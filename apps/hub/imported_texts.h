#pragma once

#include <string>
#include <vector>

#include "heed/apps/hub/architecture.h"
#include "heed/apps/tasks/learner.h"

// Texts of published models: their tokenizers, the marks around a text, and the tokens that end one.
// This header is for heed's own sources: it is not installed.

namespace heed::hub {

/// The files of a published folder that say how it reads and writes texts.
struct PublishedTexts {
  std::string tokenizer;                   ///< tokenizer.json, that of the sources if there are two
  std::string target_tokenizer = {};       ///< empty: the same
  Json tokenizer_config = Json::object();  ///< empty without such a file
  std::string generation = {};             ///< generation_config.json; empty: there is none
};

/// Returns the tokenizers of a run, and adapts the settings to them. Throws an Error for a tokenizer
/// without the token that ends a text or, for a masked model, the one that is filled in.
NamedFiles imported_files(const PublishedTexts& texts, const Config& config, const ImportPlan& plan,
                          Settings& settings, std::vector<std::string>& remarks);

}  // namespace heed::hub
