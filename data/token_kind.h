#pragma once

#include <cstdint>
#include <string>

#include "heed/data/tokenizer.h"

namespace heed {

/// What the tokens of a classifier are best made of.
struct TokenKind {
  std::string name;             ///< "words", "characters" or "bpe", as tokenizer.kind has it
  std::string why;              ///< what the texts say for it, for people
  std::int64_t vocabulary = 0;  ///< how many tokens serve best; 0: all that there are
};

/// Chosen by the letters of the texts and by how many of their words stand there once: about as many words of
/// new texts are unknown (Good 1953, "The population frequencies of species and the estimation of population
/// parameters"). Texts of plain a to z keep words, however few they are.
TokenKind token_kind_for(const TextSource& texts);

}  // namespace heed
