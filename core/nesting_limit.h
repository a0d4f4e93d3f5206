#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "heed/core/error.h"

namespace heed {

/// Looks at the text of a JSON document for what parsers spare themselves. Throws an Error that begins with
/// `source` for text nested `limit` levels deep or deeper (what walks over a value later, to print it in an
/// error for instance, is recursive) and for a NUL byte, behind which a parser may see nothing. Linear in the
/// length, unlike nesting_limit() below, with which a parser looks at all siblings behind each object.
inline void check_json_text(std::string_view text, int limit, std::string_view source) {
  const std::size_t nul = text.find('\0');
  check(nul == std::string_view::npos, source, " is not valid JSON: byte ", nul, " of ", text.size(),
        " is a NUL");
  bool in_string = false;
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\') {
      ++at;  // whatever is escaped ends no string
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      check(++depth <= limit, source, " is nested too deeply: ", limit, " levels or more");
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
}

/// The limit of nesting as a callback for a JSON parser (depth, event, value), for short texts.
inline auto nesting_limit(int limit, std::string source) {
  return [limit, source = std::move(source)](int depth, const auto&, const auto&) {
    check(depth < limit, source, " is nested too deeply: ", limit, " levels or more");
    return true;
  };
}

}  // namespace heed
