#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz_memory_file.h"
#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/gzip.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer_parts.h"
#include "heed/training/text_metrics.h"

/// Any bytes as a text file, gzip included: an Error or lines of valid UTF-8 that the word split leaves
/// whole. Where bad bytes are replaced, they give no Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const MemoryFile file(bytes);
  for (const auto encoding : {heed::Encoding::utf8, heed::Encoding::latin1, heed::Encoding::cp1252}) {
    for (const auto bad_bytes : {heed::BadBytes::error, heed::BadBytes::replace}) {
      heed::ReadReport report;
      const heed::TextOptions options{.encoding = encoding, .bad_bytes = bad_bytes, .max_bytes = 1 << 20};
      try {
        for (const auto& line : heed::parse_lines(bytes, "input", options, &report)) {
          if (heed::unicode::find_invalid(line) != std::string::npos) std::abort();
          heed::bleu_tokenize(heed::unicode::lower_case(line, heed::unicode::FinalSigma::final));
        }
        heed::read_text_by_lines(file.name(), options, [](std::string_view line) {
          if (heed::unicode::find_invalid(line) != std::string::npos) std::abort();
        });
      } catch (const heed::Error&) {
        const bool is_text = size > 3 && !heed::is_gzip(bytes) && size < 1 << 20;
        if (bad_bytes == heed::BadBytes::replace && is_text) std::abort();
      }
      if (bad_bytes == heed::BadBytes::error && report.replaced != 0) std::abort();
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
