// Every input that a fuzzer starts from or has found, under the properties that the fuzzer demands: the
// fuzzers' own functions, under other names.

#include <doctest/doctest.h>

#include "heed/base/file.h"

#define LLVMFuzzerTestOneInput fuzz_attention
#include "fuzz/attention_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_c_api
#include "fuzz/c_api_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_classes
#include "fuzz/classes_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_settings
#include "fuzz/settings_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_csv
#include "fuzz/csv_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_table
#include "fuzz/table_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_dialogues
#include "fuzz/dialogues_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_labelled_text
#include "fuzz/labelled_text_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_folders
#include "fuzz/folders_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_gzip
#include "fuzz/gzip_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_idx
#include "fuzz/idx_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_line_reader
#include "fuzz/line_reader_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_made_tokenizer
#include "fuzz/made_tokenizer_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_made_words
#include "fuzz/made_words_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_mind
#include "fuzz/mind_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_published_config
#include "fuzz/published_config_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_sentencepiece
#include "fuzz/sentencepiece_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_text
#include "fuzz/text_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tokenizer
#include "fuzz/tokenizer_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_word_vectors
#include "fuzz/word_vectors_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace {

/// Runs all inputs of one corpus; a property that does not hold aborts.
void run_corpus(const char* name, int (*fuzz)(const std::uint8_t*, std::size_t)) {
  CAPTURE(name);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(HEED_SOURCE_DIR) / "tests/fuzz/corpus" / name)) {
    const std::string bytes = heed::read_file(entry.path());
    // Cut anywhere, it must hold, too.
    for (std::size_t length = bytes.size();; length = length * 3 / 4) {
      fuzz(reinterpret_cast<const std::uint8_t*>(bytes.data()), length);
      if (length == 0) break;
    }
    ++files;
  }
  CHECK(files > 0);
}

}  // namespace

TEST_CASE("What the fuzzers of readers start from and have found holds their properties") {
  run_corpus("attention", fuzz_attention);
  run_corpus("c_api", fuzz_c_api);
  run_corpus("classes", fuzz_classes);
  run_corpus("settings", fuzz_settings);
  run_corpus("csv", fuzz_csv);
  run_corpus("table", fuzz_table);
  run_corpus("dialogues", fuzz_dialogues);
  run_corpus("labelled_text", fuzz_labelled_text);
  run_corpus("folders", fuzz_folders);
  run_corpus("gzip", fuzz_gzip);
  run_corpus("idx", fuzz_idx);
  run_corpus("line_reader", fuzz_line_reader);
  run_corpus("made_tokenizer", fuzz_made_tokenizer);
  run_corpus("made_words", fuzz_made_words);
  run_corpus("mind", fuzz_mind);
  run_corpus("published_config", fuzz_published_config);
  run_corpus("sentencepiece", fuzz_sentencepiece);
  run_corpus("text", fuzz_text);
  run_corpus("tokenizer", fuzz_tokenizer);
  run_corpus("word_vectors", fuzz_word_vectors);
}
