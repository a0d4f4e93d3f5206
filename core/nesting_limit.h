#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/core/error.h"

namespace heed {

/// Looks at the text of a JSON document for what parsers spare themselves. Throws an Error that begins with
/// `source` for text nested `limit` levels deep or deeper (what walks over a value later, to print it in an
/// error for instance, is recursive) and for a NUL byte, behind which a parser may see nothing. Linear in the
/// length, unlike written_json() below, with which a parser looks at all siblings behind each object.
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

/// What people write, as a callback for the parser of `Json`, for short texts: nested less than `limit` levels deep,
/// and with no member twice in an object, of which a parser would keep the last.
template <class Json>
auto written_json(int limit, std::string source) {
  return [limit, source = std::move(source), open = std::vector<std::set<std::string>>()](
             int depth, typename Json::parse_event_t event, Json& parsed) mutable {
    using Event = typename Json::parse_event_t;
    check(depth < limit, source, " is nested too deeply: ", limit, " levels or more");
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key)
      check(open.back().insert(parsed.template get<std::string>()).second, source, ": the member ",
            parsed.dump(), " stands twice in an object");
    return true;
  };
}

}  // namespace heed
