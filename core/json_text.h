#pragma once

#include <string_view>

#include "heed/core/error.h"
#include "heed/core/nesting_limit.h"

namespace heed {

/// Parses JSON with `Json` = nlohmann::json or ordered_json. Throws an Error that begins with `source` for text
/// that is not JSON, is nested `depth` levels deep or deeper, or holds a NUL (see check_json_text).
template <class Json>
Json parse_json(std::string_view text, std::string_view source, int depth = 64) {
  check_json_text(text, depth, source);
  try {
    return Json::parse(text);
  } catch (const typename Json::exception& error) {
    fail(source, " is not valid JSON: ", error.what());
  }
}

}  // namespace heed
