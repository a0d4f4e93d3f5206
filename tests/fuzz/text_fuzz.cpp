#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "heed/core/error.h"
#include "heed/core/unicode.h"
#include "heed/data/text_file.h"
#include "heed/data/word_split.h"
#include "heed/training/bleu.h"

/// Any bytes as a text file, gzip included: an Error or lines of valid UTF-8 that the word split leaves
/// whole.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto encoding : {heed::Encoding::utf8, heed::Encoding::latin1, heed::Encoding::cp1252}) {
    try {
      for (const auto& line : heed::parse_lines(bytes, "input", encoding)) {
        if (heed::unicode::find_invalid(line) != std::string::npos) std::abort();
        heed::bleu_tokenize(heed::unicode::lower_case(line, heed::unicode::FinalSigma::final));
      }
    } catch (const heed::Error&) {
    }
  }
  std::size_t length = 0;
  for (const auto word : heed::split_words(bytes)) length += word.size();
  if (length != size) std::abort();
  for (const auto form : {heed::unicode::Form::nfc, heed::unicode::Form::nfkd})
    heed::unicode::normalize(bytes, form);
  if (heed::unicode::find_invalid(heed::unicode::replace_invalid(bytes)) != std::string::npos) std::abort();
  return 0;
}
