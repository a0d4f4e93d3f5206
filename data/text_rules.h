#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// What a tokenizer.json file says of texts before and behind the model, as functions: each part that can be followed
// exactly, given as JSON. All others throw an Error that names them.

/// Changes a text before it is cut ("normalizer").
using TextRule = std::function<std::string(std::string_view)>;
std::vector<TextRule> read_normalizer(std::string_view part);

/// A stretch of text on its way to the model.
struct Piece {
  std::string text;
  bool at_start = false;  ///< it begins where the whole text does
};
/// Cuts each piece into pieces ("pre_tokenizer").
using WordRule = std::function<void(const Piece&, std::vector<Piece>&)>;
std::vector<WordRule> read_pre_tokenizer(std::string_view part);

/// Changes the texts of tokens that are to become text again ("decoder").
using TokenRule = std::function<void(std::vector<std::string>&)>;
std::vector<TokenRule> read_decoder(std::string_view part);

}  // namespace heed
