#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/error.h"
#include "heed/data/text_file.h"

namespace heed::fuzz {

/// A fuzzer of one parser. It returns whether the input was accepted; an input may be refused with an Error, and
/// anything else is a finding.
struct Fuzzer {
  std::string_view parser;
  bool (*run)(std::string_view input);
};

/// All fuzzers (fuzzers.cpp), in the order of their names.
std::span<const Fuzzer> fuzzers();
/// The inputs of tests/fuzz/corpus.txt whose names begin so ("csv/"): name and bytes.
std::vector<std::pair<std::string, std::string>> corpus(std::string_view start);

bool fuzz_attention(std::string_view bytes);
bool fuzz_c_api(std::string_view bytes);

// readers_fuzz.cpp
bool fuzz_csv(std::string_view bytes);
bool fuzz_dialogues(std::string_view bytes);
bool fuzz_folders(std::string_view bytes);
bool fuzz_gzip(std::string_view bytes);
bool fuzz_idx(std::string_view bytes);
bool fuzz_labelled_text(std::string_view bytes);
bool fuzz_line_reader(std::string_view bytes);
bool fuzz_mind(std::string_view bytes);
bool fuzz_table(std::string_view bytes);
bool fuzz_text(std::string_view bytes);
bool fuzz_word_vectors(std::string_view bytes);

// run_files_fuzz.cpp
bool fuzz_classes(std::string_view bytes);
bool fuzz_config(std::string_view bytes);
bool fuzz_metrics(std::string_view bytes);
bool fuzz_pipeline_cache(std::string_view bytes);
bool fuzz_published_config(std::string_view bytes);
bool fuzz_reference_case(std::string_view bytes);
bool fuzz_run_manifest(std::string_view bytes);
bool fuzz_safetensors(std::string_view bytes);
bool fuzz_settings(std::string_view bytes);
bool fuzz_trainer_state(std::string_view bytes);

// tokenizers_fuzz.cpp
bool fuzz_made_tokenizer(std::string_view bytes);
bool fuzz_made_words(std::string_view bytes);
bool fuzz_sentencepiece(std::string_view bytes);
bool fuzz_tokenizer(std::string_view bytes);

// --- what they share

/// Aborts, which is what a fuzzer looks for, if a property does not hold.
inline void require(bool condition, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%d: a property does not hold\n", file, line);
  std::abort();
}

/// Whether `read` returned without an Error. The text of an Error must begin with `refusal`.
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

/// Turns the input byte by byte into numbers and texts; zeros and "a" at its end.
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
