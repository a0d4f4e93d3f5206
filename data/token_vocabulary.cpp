#include "heed/data/token_vocabulary.h"

#include "heed/core/error.h"

namespace heed {

TokenVocabulary::TokenVocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  ids_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const auto [place, added] = ids_.emplace(tokens_[i], id);
    check(added, "token \"", tokens_[i], "\" has two ids: ", place->second, " and ", id);
  }
}

std::optional<std::int32_t> TokenVocabulary::find(std::string_view spelling) const {
  const auto place = ids_.find(spelling);
  if (place == ids_.end()) return std::nullopt;
  return place->second;
}

std::int32_t TokenVocabulary::id_of(std::string_view spelling, std::string_view what) const {
  const auto id = find(spelling);
  check(id.has_value(), what, " \"", spelling, "\" is not in the vocabulary");
  return *id;
}

}  // namespace heed
