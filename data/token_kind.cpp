#include "heed/data/token_kind.h"

#include <algorithm>
#include <cmath>

#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/token_models.h"
#include "heed/data/tokenizer_parts.h"

namespace heed {
namespace {

// English texts have up to 0.0003 letters beyond a to z, Italian 0.007, German 0.014 and Finnish 0.07.
constexpr double foreign_letters = 0.005;
constexpr double many_once = 0.1;
// Of parts of words: with more of them rare words are tokens again, of which nothing can be learned.
constexpr std::int64_t few_parts = 2000;

double share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1));
}

}  // namespace

TokenKind token_kind_for(const TextSource& texts) {
  WordCounts words;
  // Letters of two columns are those of Chinese, Japanese and Korean: a syllable or a word each.
  std::int64_t running_words = 0, letters = 0, foreign = 0, wide = 0;
  texts([&](std::string_view text) {
    for (const std::string_view word : split_at_punctuation(text)) {
      const std::int64_t before = letters;
      for (std::size_t at = 0; at < word.size();) {
        const unicode::CodePoint c = unicode::decode(word, at);
        const auto length = static_cast<std::size_t>(c.length);
        if (c.valid && unicode::is_letter(c.value)) {
          ++letters;
          if (c.value > 0x7F) ++foreign;
          if (unicode::columns(word.substr(at, length)) == 2) ++wide;
        }
        at += length;
      }
      if (letters == before) continue;
      words.add(word);
      ++running_words;
    }
  });
  const double once = share(std::ranges::count(words, 1, &WordCounts::Word::count), running_words);
  if (2 * wide > letters) return {"characters", "most letters stand for a syllable or a word"};
  if (share(foreign, letters) < foreign_letters) return {"words", "the letters are a to z"};
  const std::string found = concat_text(std::lround(100 * once), " % of the words occur once");
  if (once < many_once) return {"words", found};
  return {"bpe", found + ", and as many of new texts would be unknown", few_parts};
}

}  // namespace heed
