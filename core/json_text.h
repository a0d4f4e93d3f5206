#pragma once

#include <string>
#include <string_view>

#include "heed/core/error.h"
#include "heed/core/nesting_limit.h"

namespace heed {

/// Parses JSON with `Json` = nlohmann::json or ordered_json. Throws an Error that begins with `source` for
/// text that is not JSON, is nested `depth` levels deep or deeper, or goes on behind a NUL, where
/// nlohmann's parser stops without a word.
template <class Json>
Json parse_json(std::string_view text, std::string_view source, int depth = 64) {
  if (const std::size_t nul = text.find('\0'); nul != text.npos)
    fail(source, " is not valid JSON: byte ", nul, " of ", text.size(), " is a NUL");
  try {
    return Json::parse(text.begin(), text.end(), nesting_limit(depth, std::string(source)));
  } catch (const typename Json::exception& error) {
    fail(source, " is not valid JSON: ", error.what());
  }
}

}  // namespace heed
