#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/text_file.h"
#include "heed/base/error.h"

namespace heed::fuzz {

/// A fuzzer of one parser. It returns whether the input was accepted; an input may be refused with
/// an Error, and anything else is a finding.
struct Fuzzer {
  std::string_view parser;
  bool (*run)(std::string_view input);
};

/// Returns all fuzzers (fuzzers.cpp), in the order of their names.
std::span<const Fuzzer> fuzzers();
/// Returns the inputs of tests/fuzz/corpus.txt whose names begin with `start` ("csv/"): name and
/// bytes.
std::vector<std::pair<std::string, std::string>> corpus(std::string_view start);

/// The parsers, in the order of their names; fuzz_NAME() runs one.
// clang-format off
#define HEED_FUZZ_PARSERS(each)                                                                             \
  each(attention) each(c_api) each(classes) each(config) each(csv) each(dialogues) each(folders) each(gzip) \
  each(idx) each(labelled_text) each(line_reader) each(made_tokenizer) each(made_words) each(metrics)       \
  each(mind) HEED_FUZZ_VULKAN(each) each(published_config) each(reference_case) each(run_manifest)          \
  each(safetensors) each(sentencepiece) each(settings) each(table) each(text) each(tokenizer)               \
  each(trainer_state) each(word_vectors)
// clang-format on
#ifdef HEED_HAS_VULKAN
#define HEED_FUZZ_VULKAN(each) each(pipeline_cache)
#else
#define HEED_FUZZ_VULKAN(each)
#endif
#define HEED_DECLARE(parser) bool fuzz_##parser(std::string_view bytes);
HEED_FUZZ_PARSERS(HEED_DECLARE)
#undef HEED_DECLARE

// --- what they share

/// Aborts, which is what a fuzzer looks for, if a property does not hold.
inline void require(bool condition, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%d: a property does not hold\n", file, line);
  std::abort();
}

/// Returns whether `read` returned without an Error. The text of an Error must begin with
/// `refusal`.
template <class Read>
bool accepted(Read&& read, std::string_view refusal = {}) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    require(std::string_view(error.what()).starts_with(refusal));
    return false;
  }
}

/// The input without its first byte, which chooses options.
struct FuzzInput {
  explicit FuzzInput(std::string_view input)
      : choice(input.empty() ? 0 : static_cast<unsigned char>(input[0])),
        bytes(input.substr(std::min<std::size_t>(input.size(), 1))) {}

  /// Small limits, so that inputs reach them.
  TextOptions text_options() const {
    return {.encoding = static_cast<Encoding>((choice & 3) % 3),
            .bad_bytes = static_cast<BadBytes>(choice >> 2 & 1),
            .max_bytes = 1 << 16,
            .max_line_bytes = 1 << 12};
  }

  unsigned choice;
  std::string_view bytes;
};

/// Turns the input byte by byte into numbers and texts; after its end, into zeros and "a".
class FuzzChoices {
 public:
  explicit FuzzChoices(std::string_view bytes) : bytes_(bytes) {}
  unsigned below(unsigned bound) {
    const unsigned byte = bytes_.empty() ? 0 : static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(std::min<std::size_t>(bytes_.size(), 1));
    return byte % bound;
  }
  std::string text() {
    static constexpr std::array<const char*, 12> pieces = {"a", "b",      "c", "ab", "<s>", " ",
                                                           "é", "\u0301", "Ġ", "Ã",  "©",   "A"};
    std::string text;
    for (unsigned left = 1 + below(4); left > 0; --left) text += pieces[below(pieces.size())];
    return text;
  }
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

/// A file in memory that has a name.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    require(descriptor_ >= 0);
    require(::write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string name() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace heed::fuzz
