#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "heed/data/text_file.h"

// What fuzzers of readers have in common.

/// The input, but for its first byte, which chooses options.
struct FuzzInput {
  FuzzInput(const std::uint8_t* data, std::size_t size)
      : choice(size == 0 ? 0 : data[0]),
        bytes(reinterpret_cast<const char*>(data) + (size == 0 ? 0 : 1), size == 0 ? 0 : size - 1) {}

  /// Small limits, so that inputs reach them.
  heed::TextOptions text_options() const {
    return {.encoding = static_cast<heed::Encoding>((choice & 3) % 3),
            .bad_bytes = static_cast<heed::BadBytes>(choice >> 2 & 1),
            .max_bytes = 1 << 16,
            .max_line_bytes = 1 << 12};
  }

  unsigned choice;
  std::string_view bytes;
};

/// Aborts, which is what a fuzzer looks for, where a property does not hold.
inline void require(bool condition, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%d: a property does not hold\n", file, line);
  std::abort();
}
