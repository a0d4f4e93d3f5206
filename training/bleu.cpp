#include "heed/training/bleu.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/core/version.h"
#include "heed/data/text_file.h"

namespace heed {
namespace {

constexpr int max_order = 4;
using WordIds = std::vector<std::int32_t>;  // word numbers

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// ASCII punctuation that is always a separate token: all but the apostrophe, comma, hyphen and full stop.
bool stands_alone(char c) {
  return (c >= '!' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/// Whether Python's str.split splits at a character: Unicode white space and the four ASCII separators.
bool is_separator(char32_t value) {
  return unicode::is_space(value) || (value >= 0x1C && value <= 0x1F);
}

/// Puts spaces around a full stop or comma after anything but a digit: ([^0-9])([.,]) -> \1 \2 .
/// Like all rules here it scans from left to right and never looks at a matched character again.
std::string split_after_non_digit(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (is_digit(text[i]) || i + 1 == text.size() || (text[i + 1] != '.' && text[i + 1] != ',')) continue;
    result += ' ';
    result += text[++i];
    result += ' ';
  }
  return result;
}

/// Puts spaces around a full stop or comma before anything but a digit:
/// ([.,])([^0-9]) -> \1 \2 with a space before.
std::string split_before_non_digit(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool mark = text[i] == '.' || text[i] == ',';
    if (!mark || i + 1 == text.size() || is_digit(text[i + 1])) {
      result += text[i];
      continue;
    }
    result += ' ';
    result += text[i];
    result += ' ';
    result += text[++i];
  }
  return result;
}

/// Puts spaces around a hyphen after a digit: ([0-9])(-) -> \1 \2 .
std::string split_hyphen_after_digit(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (!is_digit(text[i]) || i + 1 == text.size() || text[i + 1] != '-') continue;
    result += " - ";
    ++i;
  }
  return result;
}

/// The rules of mteval-v13a.pl, in order. They only look at ASCII, so working on bytes is enough.
std::string tokenize_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  std::string spaced = " ";
  for (const char c : text) {
    if (stands_alone(c)) {
      spaced += ' ';
      spaced += c;
      spaced += ' ';
    } else {
      spaced += c;
    }
  }
  spaced += ' ';
  return split_hyphen_after_digit(split_before_non_digit(split_after_non_digit(spaced)));
}

std::vector<std::string_view> split_at_spaces(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t start = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const auto c = at < text.size() ? unicode::decode(text, at) : unicode::CodePoint{U' ', 1, true};
    const std::size_t next = at + static_cast<std::size_t>(c.length);
    if (c.valid && is_separator(c.value)) {
      if (at > start) words.push_back(text.substr(start, at - start));
      start = next;
    }
    at = next;
  }
  return words;
}

std::string_view strip_right(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto c = unicode::decode(text, at);
    at += static_cast<std::size_t>(c.length);
    if (!c.valid || !is_separator(c.value)) end = at;
  }
  return text.substr(0, end);
}

/// Maps equal words to equal numbers, so that n-grams compare as numbers.
class WordNumbers {
 public:
  WordIds number(const std::string& line) {
    WordIds words;
    for (const std::string_view word : split_at_spaces(line))
      words.push_back(numbers_.emplace(word, static_cast<std::int32_t>(numbers_.size())).first->second);
    return words;
  }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
};

/// All n-grams of a line in sorted order, repeats included.
std::vector<std::array<std::int32_t, max_order>> sorted_ngrams(const WordIds& words, int order) {
  std::vector<std::array<std::int32_t, max_order>> ngrams;
  for (std::size_t i = 0; i + static_cast<std::size_t>(order) <= words.size(); ++i) {
    std::array<std::int32_t, max_order> ngram{};
    std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(i), order, ngram.begin());
    ngrams.push_back(ngram);
  }
  std::sort(ngrams.begin(), ngrams.end());
  return ngrams;
}

/// An n-gram counts at most as often as it occurs in the reference: the size of the multiset intersection.
std::int64_t clipped_matches(const WordIds& hypothesis, const WordIds& reference, int order) {
  const auto a = sorted_ngrams(hypothesis, order), b = sorted_ngrams(reference, order);
  std::int64_t matches = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    if (*i == *j)
      ++matches, ++i, ++j;
    else if (*i < *j)
      ++i;
    else
      ++j;
  }
  return matches;
}

/// The geometric mean of the precisions times the brevity penalty (Papineni et al., section 2.3).
void compute_score(BleuScore& bleu, BleuSmoothing smoothing) {
  const auto hypothesis = static_cast<double>(bleu.hypothesis_length);
  const auto reference = static_cast<double>(bleu.reference_length);
  bleu.brevity_penalty = 1;
  if (hypothesis < reference)
    bleu.brevity_penalty = hypothesis > 0 ? std::exp(1 - reference / hypothesis) : 0;
  if (bleu.matches == std::array<std::int64_t, max_order>{}) return;
  double missed = 1, log_sum = 0;
  for (std::size_t n = 0; n < max_order; ++n) {
    if (bleu.totals[n] == 0) return;  // no n-grams of this order: the mean is undefined, the score is 0
    const auto total = static_cast<double>(bleu.totals[n]);
    if (bleu.matches[n] > 0)
      bleu.precisions[n] = 100.0 * static_cast<double>(bleu.matches[n]) / total;
    else if (smoothing == BleuSmoothing::exponential)
      bleu.precisions[n] = 100.0 / ((missed *= 2) * total);
    log_sum += std::log(bleu.precisions[n]);  // minus infinity without smoothing: the score becomes 0
  }
  bleu.score = bleu.brevity_penalty * std::exp(log_sum / max_order);
}

}  // namespace

std::string bleu_tokenize(std::string_view line, BleuTokens tokens) {
  std::string text(strip_right(line));
  if (tokens == BleuTokens::mteval_13a) text = tokenize_13a(std::move(text));
  std::string joined;
  for (const std::string_view word : split_at_spaces(text)) {
    if (!joined.empty()) joined += ' ';
    joined += word;
  }
  return joined;
}

std::string bleu_signature(const BleuOptions& options) {
  return concat_text("nrefs:1|case:", options.lower_case ? "lc" : "mixed",
                     "|eff:no|tok:", options.tokens == BleuTokens::none ? "none" : "13a",
                     "|smooth:", options.smoothing == BleuSmoothing::none ? "none" : "exp", "|version:heed-",
                     version);
}

std::vector<double> BleuScore::statistics() const {
  std::vector<double> all(matches.begin(), matches.end());
  all.insert(all.end(), totals.begin(), totals.end());
  all.push_back(static_cast<double>(hypothesis_length));
  all.push_back(static_cast<double>(reference_length));
  return all;
}

BleuScore bleu_of_statistics(std::span<const double> statistics, const BleuOptions& options) {
  check(statistics.size() == 2 * max_order + 2, "BLEU is made of ", 2 * max_order + 2, " counts, not of ",
        statistics.size());
  const auto count = [&](std::size_t i) { return std::llround(statistics[i]); };
  BleuScore bleu;
  bleu.signature = bleu_signature(options);
  for (std::size_t n = 0; n < max_order; ++n) {
    bleu.matches[n] = count(n);
    bleu.totals[n] = count(max_order + n);
  }
  bleu.hypothesis_length = count(2 * max_order);
  bleu.reference_length = count(2 * max_order + 1);
  compute_score(bleu, options.smoothing);
  return bleu;
}

BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
                      const BleuOptions& options) {
  check(hypotheses.size() == references.size(), "BLEU compares line by line, but there are ",
        hypotheses.size(), " hypotheses and ", references.size(), " references");
  check(!hypotheses.empty(), "BLEU needs at least one line");
  BleuScore bleu;
  bleu.signature = bleu_signature(options);
  WordNumbers numbers;
  const auto words = [&](const std::string& line) {
    return numbers.number(bleu_tokenize(
        options.lower_case ? unicode::lower_case(line, unicode::FinalSigma::final) : line, options.tokens));
  };
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const WordIds hypothesis = words(hypotheses[i]), reference = words(references[i]);
    bleu.hypothesis_length += static_cast<std::int64_t>(hypothesis.size());
    bleu.reference_length += static_cast<std::int64_t>(reference.size());
    for (int order = 1; order <= max_order; ++order) {
      const auto n = static_cast<std::size_t>(order - 1);
      bleu.matches[n] += clipped_matches(hypothesis, reference, order);
      bleu.totals[n] += std::max<std::int64_t>(static_cast<std::int64_t>(hypothesis.size()) - order + 1, 0);
    }
  }
  compute_score(bleu, options.smoothing);
  return bleu;
}

double distinct_share(std::span<const std::string> texts, std::size_t n) {
  std::set<std::vector<std::string>> distinct;
  std::size_t all = 0;
  for (const std::string& text : texts) {
    std::istringstream tokens(bleu_tokenize(text));
    std::vector<std::string> words;
    for (std::string word; tokens >> word;) words.push_back(word);
    for (std::size_t i = 0; i + n <= words.size(); ++i, ++all)
      distinct.emplace(words.begin() + static_cast<std::ptrdiff_t>(i),
                       words.begin() + static_cast<std::ptrdiff_t>(i + n));
  }
  return all == 0 ? 0 : static_cast<double>(distinct.size()) / static_cast<double>(all);
}

}  // namespace heed
