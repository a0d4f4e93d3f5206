#include <cmath>

#include "fuzz_memory_file.h"
#include "fuzz_support.h"
#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/table.h"

// Any bytes as vectors of words, whose width the first byte chooses: an Error, or words that are UTF-8 with
// finite numbers.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FuzzInput input(data, size);
  const MemoryFile file(input.bytes);
  const std::size_t width = 1 + input.choice % 4;
  try {
    heed::read_word_vectors(file.name(), static_cast<std::int64_t>(width),
                            [&](std::string_view word, std::span<const float> values) {
                              require(heed::unicode::find_invalid(word) == std::string::npos);
                              require(values.size() == width);
                              for (const float value : values) require(std::isfinite(value));
                            });
  } catch (const heed::Error&) {
  }
  return 0;
}
