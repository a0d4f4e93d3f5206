#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "heed/base/error.h"
#include "heed/data/tokenizer.h"

/// Any bytes as a tokenizer.json: an Error or a tokenizer that encodes, decodes, and survives writing.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = heed::Tokenizer::from_json(bytes, "input");
    // The end of the file serves as text: it is full of the tokens that the file names.
    const auto ids = tokenizer.encode(bytes.substr(size - std::min<std::size_t>(size, 300)));
    tokenizer.decode(ids, true);
    tokenizer.unknown_characters(bytes);
    const auto again = heed::Tokenizer::from_json(tokenizer.to_json(), "written");
    if (again.encode("ab <s> é") != tokenizer.encode("ab <s> é")) std::abort();
  } catch (const heed::Error&) {
  }
  return 0;
}
