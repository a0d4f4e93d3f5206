#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "heed/data/tokenizer.h"
#include "heed/tests/support.h"

namespace heed::test {

/// Why a tokenizer file is refused, or "".
inline std::string tokenizer_error(const nlohmann::json& file) {
  return error_of([&] { Tokenizer::from_json(file.dump(), "t.json"); });
}

}  // namespace heed::test
