#pragma once

#include <string_view>

#include "heed/core/digest.h"
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

/// The same for what people write, in which no member may stand twice in an object (see written_json).
template <class Json>
Json parse_written_json(std::string_view text, std::string_view source, int depth = 64) {
  check_json_text(text, depth, source);
  try {
    return Json::parse(text, written_json<Json>(depth, std::string(source)));
  } catch (const typename Json::exception& error) {
    fail(source, " is not valid JSON: ", error.what());
  }
}

/// Gives a JSON object a last member "digest", of all the others.
template <class Json>
void add_digest(Json& object) {
  object["digest"] = digest_of(object.dump());
}

/// Takes that member out again; false when the others are not what it was made of.
template <class Json>
bool take_digest(Json& object) {
  const std::string digest = object.value("digest", "");
  object.erase("digest");
  return digest == digest_of(object.dump());
}

}  // namespace heed
