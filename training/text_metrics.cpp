#include "heed/training/text_metrics.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"
#include "heed/core/version.h"

namespace heed {
namespace {

constexpr int max_order = 4;
using WordIds = std::vector<std::int32_t>;  // word numbers

bool is_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

/// Whether a character is ASCII punctuation that is always a separate token: all but the
/// apostrophe, comma, hyphen and full stop.
bool stands_alone(char32_t c) {
  return (c >= '!' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/// Whether Python's str.split splits at a character: Unicode white space and the four ASCII separators.
bool is_separator(char32_t value) {
  return unicode::is_space(value) || (value >= 0x1C && value <= 0x1F);
}

bool is_stop(char32_t c) {
  return c == '.' || c == ',';
}

/// Writes each pair of neighbours that `matches` accepts as first, space, second, with `before` and `after`
/// around the two. Like all rules here it scans from left to right and never looks at a matched character
/// again.
template <class Matches>
std::string split_pairs(std::string_view text, std::string_view before, std::string_view after,
                        const Matches& matches) {
  std::string result;
  const auto at = [&](std::size_t i) {
    return i < text.size() ? unicode::decode(text, i) : unicode::CodePoint();
  };
  const auto length = [](const unicode::CodePoint& c) { return static_cast<std::size_t>(c.length); };
  for (std::size_t i = 0; i < text.size();) {
    const unicode::CodePoint a = at(i), b = at(i + length(a));
    const std::size_t second = i + length(a), end = second + length(b);
    if (end > text.size() || !matches(a.value, b.value)) {
      result.append(text.substr(i, length(a)));
      i = second;
      continue;
    }
    result.append(before).append(text.substr(i, length(a))).append(1, ' ');
    result.append(text.substr(second, length(b))).append(after);
    i = end;
  }
  return result;
}

/// Writes each character that `matches` accepts with a space on both sides.
template <class Matches>
std::string set_apart(std::string_view text, const Matches& matches) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const unicode::CodePoint c = unicode::decode(text, at);
    const std::string_view bytes = text.substr(at, static_cast<std::size_t>(c.length));
    if (c.valid && matches(c.value))
      result.append(" ").append(bytes).append(" ");
    else
      result.append(bytes);
    at += bytes.size();
  }
  return result;
}

/// Applies the rules that sacreBLEU's 13a and zh share: "tokenizer_re".
std::string separate(std::string_view text) {
  std::string spaced = set_apart(text, stands_alone);
  // ([^0-9])([.,]) -> \1 \2 with a space after; ([.,])([^0-9]) -> the same with a space before; ([0-9])(-)
  spaced = split_pairs(spaced, "", " ", [](char32_t a, char32_t b) { return !is_digit(a) && is_stop(b); });
  spaced = split_pairs(spaced, " ", "", [](char32_t a, char32_t b) { return is_stop(a) && !is_digit(b); });
  return split_pairs(spaced, "", " ", [](char32_t a, char32_t b) { return is_digit(a) && b == '-'; });
}

/// Applies the rules of mteval-v13a.pl, in order.
std::string tokenize_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  return separate(" " + text + " ");
}

/// Whether sacreBLEU's zh separates a character. Its ranges beyond U+FFFF are written with four
/// digits and one more, so it compares with U+2000 and "0"; to match its results, so does this.
bool stands_alone_in_zh(char32_t c) {
  constexpr std::pair<char32_t, char32_t> ranges[] = {
      {0x2001, 0x2A6D}, {0x2E80, 0x2EFF}, {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF}, {0x3000, 0x303F},
      {0x3100, 0x312F}, {0x31A0, 0x31BF}, {0x31C0, 0x31EF}, {0x3200, 0x33FF}, {0x3400, 0x4DB5},
      {0x4E00, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9}, {0xFE10, 0xFE1F},
      {0xFE30, 0xFE4F}, {0xFF00, 0xFFEF}};
  return std::ranges::any_of(ranges,
                             [&](const auto& range) { return c >= range.first && c <= range.second; });
}

/// Applies the rules of mteval-v14.pl --international-tokenization, in order.
std::string tokenize_international(std::string_view text) {
  using unicode::is_number, unicode::is_strict_punctuation;
  const std::string first = split_pairs(
      text, "", " ", [](char32_t a, char32_t b) { return !is_number(a) && is_strict_punctuation(b); });
  const std::string second = split_pairs(
      first, " ", "", [](char32_t a, char32_t b) { return is_strict_punctuation(a) && !is_number(b); });
  return set_apart(second, unicode::is_symbol);
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

std::string_view strip_left(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto c = unicode::decode(text, at);
    if (!c.valid || !is_separator(c.value)) break;
    at += static_cast<std::size_t>(c.length);
  }
  return text.substr(at);
}

/// Maps equal words to equal numbers, so that n-grams compare as numbers.
class WordNumbers {
 public:
  WordIds number(const auto& words) {
    WordIds ids;
    for (const auto& word : words)
      ids.push_back(numbers_.emplace(word, static_cast<std::int32_t>(numbers_.size())).first->second);
    return ids;
  }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
};

/// Returns all n-grams of a line in sorted order, repeats included.
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

/// Returns the number of matches, clipped: an n-gram counts at most as often as in the reference.
/// This is the size of the multiset intersection.
std::int64_t clipped_matches(const WordIds& hypothesis, const WordIds& reference, int order) {
  const auto a = sorted_ngrams(hypothesis, order), b = sorted_ngrams(reference, order);
  std::int64_t matches = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();)
    if (*i == *j)
      ++matches, ++i, ++j;
    else if (*i < *j)
      ++i;
    else
      ++j;
  return matches;
}

/// Computes the score: the geometric mean of the precisions times the brevity penalty (Papineni et
/// al., section 2.3).
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

std::string bleu_tokenize(std::string_view line, BleuTokens tokens) {
  std::string text(strip_right(line));
  switch (tokens) {
    case BleuTokens::mteval_13a:
      text = tokenize_13a(std::move(text));
      break;
    case BleuTokens::zh:
      text = separate(set_apart(strip_left(text), stands_alone_in_zh));
      break;
    case BleuTokens::character:
      text = set_apart(text, [](char32_t) { return true; });
      break;
    case BleuTokens::international:
      text = tokenize_international(text);
      break;
    case BleuTokens::none:
      break;
  }
  std::string joined;
  for (const std::string_view word : split_at_spaces(text)) {
    if (!joined.empty()) joined += ' ';
    joined += word;
  }
  return joined;
}

std::string_view name_of(BleuTokens tokens) {
  switch (tokens) {
    case BleuTokens::mteval_13a:
      return "13a";
    case BleuTokens::zh:
      return "zh";
    case BleuTokens::character:
      return "char";
    case BleuTokens::international:
      return "intl";
    case BleuTokens::none:
      return "none";
  }
  fail("BLEU: there is no tokenizer ", static_cast<int>(tokens));
}

BleuTokens bleu_tokens_for(std::span<const std::string> references) {
  using unicode::Script;
  std::array<std::size_t, 4> letters{};  // of each script
  for (const std::string& text : references)
    for (std::size_t at = 0; at < text.size();) {
      const unicode::CodePoint c = unicode::decode(text, at);
      if (c.valid && unicode::is_letter(c.value))
        ++letters[static_cast<std::size_t>(unicode::letter_script(c.value))];
      at += static_cast<std::size_t>(c.length);
    }
  const auto in = [&](Script script) { return letters[static_cast<std::size_t>(script)]; };
  const std::size_t han = in(Script::han), unspaced = in(Script::unspaced), other = in(Script::other);
  if (in(Script::latin) >= han + unspaced + other) return BleuTokens::mteval_13a;
  if (other > han + unspaced) return BleuTokens::international;
  constexpr std::size_t some = 20;  // Japanese has more kana among its characters than a Chinese text quotes
  return unspaced * some > han ? BleuTokens::character : BleuTokens::zh;
}

std::string bleu_signature(const BleuOptions& options) {
  return concat_text(
      "nrefs:1|case:", options.lower_case ? "lc" : "mixed", "|eff:no|tok:", name_of(options.tokens),
      "|smooth:", options.smoothing == BleuSmoothing::none ? "none" : "exp", "|version:heed-", version);
}

std::vector<double> BleuScore::statistics() const {
  std::vector<double> all(matches.begin(), matches.end());
  all.insert(all.end(), totals.begin(), totals.end());
  all.push_back(static_cast<double>(hypothesis_length));
  all.push_back(static_cast<double>(reference_length));
  return all;
}

BleuScore bleu_from_statistics(std::span<const double> statistics, const BleuOptions& options) {
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
    return numbers.number(split_at_spaces(bleu_tokenize(
        options.lower_case ? unicode::lower_case(line, unicode::FinalSigma::final) : line, options.tokens)));
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

double distinct_share(std::span<const std::string> texts, std::size_t n, BleuTokens tokenizer) {
  std::set<std::vector<std::string>> distinct;
  std::size_t all = 0;
  for (const std::string& text : texts) {
    std::istringstream tokens(bleu_tokenize(text, tokenizer));
    std::vector<std::string> words;
    for (std::string word; tokens >> word;) words.push_back(word);
    for (std::size_t i = 0; i + n <= words.size(); ++i, ++all)
      distinct.emplace(words.begin() + static_cast<std::ptrdiff_t>(i),
                       words.begin() + static_cast<std::ptrdiff_t>(i + n));
  }
  return all == 0 ? 0 : static_cast<double>(distinct.size()) / static_cast<double>(all);
}

// --- ROUGE

namespace {

bool is_vowel_letter(char c) {
  return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
}

/// Returns which letters are consonants: all but a, e, i, o, u, and y after a consonant.
std::vector<bool> consonants(std::string_view word) {
  std::vector<bool> found;
  for (const char c : word) found.push_back(c == 'y' ? found.empty() || !found.back() : !is_vowel_letter(c));
  return found;
}

/// Returns m of [C](VC)^m[V]: how often a vowel is followed by a consonant.
int measure(std::string_view stem) {
  const std::vector<bool> consonant = consonants(stem);
  int count = 0;
  for (std::size_t i = 1; i < consonant.size(); ++i) count += !consonant[i - 1] && consonant[i] ? 1 : 0;
  return count;
}

bool has_vowel(std::string_view stem) {
  const std::vector<bool> consonant = consonants(stem);
  return std::find(consonant.begin(), consonant.end(), false) != consonant.end();
}

/// Whether a stem ends in a double consonant: Porter's *d.
bool ends_in_double_consonant(std::string_view word) {
  const std::size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && consonants(word).back();
}

/// Whether a stem meets Porter's *o: ends in consonant, vowel, consonant, the last not w, x or y.
/// NLTK adds two-letter words of a vowel and a consonant.
bool ends_in_short_syllable(std::string_view word) {
  const std::vector<bool> consonant = consonants(word);
  const std::size_t n = word.size();
  if (n == 2) return !consonant[0] && consonant[1];
  return n >= 3 && consonant[n - 3] && !consonant[n - 2] && consonant[n - 1] && word[n - 1] != 'w' &&
         word[n - 1] != 'x' && word[n - 1] != 'y';
}

struct Rule {
  std::string_view suffix, replacement;
};

/// Removes and returns the first rule of a list of rules "suffix:replacement" or "suffix",
/// separated by spaces.
Rule next_rule(std::string_view& rules) {
  const std::string_view rule = rules.substr(0, rules.find(' '));
  rules.remove_prefix(std::min(rule.size() + 1, rules.size()));
  const std::size_t colon = std::min(rule.find(':'), rule.size());
  return {rule.substr(0, colon), rule.substr(std::min(colon + 1, rule.size()))};
}

/// Applies the first rule whose suffix matches: replaces the suffix if the stem before it
/// has a measure above `least`.
std::string replaced(const std::string& word, std::string_view rules, int least) {
  while (!rules.empty()) {
    const Rule rule = next_rule(rules);
    if (!word.ends_with(rule.suffix)) continue;
    const std::string stem = word.substr(0, word.size() - rule.suffix.size());
    if (measure(stem) <= least) return word;
    if (rule.suffix == "ion" && stem.back() != 's' && stem.back() != 't') return word;
    return stem + std::string(rule.replacement);
  }
  return word;
}

constexpr std::string_view rules_of_step_2 =
    "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous "
    "ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive "
    "biliti:ble fulli:ful";
constexpr std::string_view rules_of_step_3 = "icate:ic ative: alize:al iciti:ic ical:ic ful: ness:";
constexpr std::string_view rules_of_step_4 =
    "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize";

std::string without(const std::string& word, std::size_t letters) {
  return word.substr(0, word.size() - letters);
}

/// Porter's step 1a: plurals.
std::string step_1a(const std::string& word) {
  if (word.ends_with("ies")) return without(word, word.size() == 4 ? 1 : 2);
  if (word.ends_with("sses")) return without(word, 2);
  return word.ends_with('s') && !word.ends_with("ss") ? without(word, 1) : word;
}

/// Porter's step 1b: past tenses and participles.
std::string step_1b(const std::string& word) {
  if (word.ends_with("ied")) return without(word, word.size() == 4 ? 1 : 2);
  if (word.ends_with("eed")) return measure(without(word, 3)) > 0 ? without(word, 1) : word;
  std::string stem;
  for (const std::string_view suffix : {"ed", "ing"})
    if (word.ends_with(suffix) && has_vowel(without(word, suffix.size()))) {
      stem = without(word, suffix.size());
      break;
    }
  if (stem.empty()) return word;
  if (stem.ends_with("at") || stem.ends_with("bl") || stem.ends_with("iz")) return stem + "e";
  if (ends_in_double_consonant(stem)) {
    const char last = stem.back();
    return last == 'l' || last == 's' || last == 'z' ? stem : without(stem, 1);
  }
  return measure(stem) == 1 && ends_in_short_syllable(stem) ? stem + "e" : stem;
}

std::string step_1c(const std::string& word) {
  if (!word.ends_with('y')) return word;
  const std::string stem = without(word, 1);
  return stem.size() > 1 && consonants(stem).back() ? stem + "i" : word;
}

std::string step_2(const std::string& word) {
  if (word.ends_with("alli") && measure(without(word, 4)) > 0) return step_2(without(word, 2));
  if (word.ends_with("logi")) return measure(without(word, 3)) > 0 ? without(word, 1) : word;
  return replaced(word, rules_of_step_2, 0);
}

std::string step_5(std::string word) {
  if (word.ends_with('e')) {
    const std::string stem = without(word, 1);
    const int m = measure(stem);
    if (m > 1 || (m == 1 && !ends_in_short_syllable(stem))) word = stem;
  }
  return word.ends_with("ll") && measure(without(word, 1)) > 1 ? without(word, 1) : word;
}

constexpr std::string_view irregular =
    "sky:sky skies:sky dying:die lying:lie tying:tie news:news innings:inning inning:inning "
    "outings:outing outing:outing cannings:canning canning:canning howe:howe proceed:proceed "
    "exceed:exceed succeed:succeed";

}  // namespace

std::string porter_stem(std::string_view word) {
  if (word.size() <= 2) return std::string(word);
  for (std::string_view rest = irregular; !rest.empty();)
    if (const auto [form, stem] = next_rule(rest); word == form) return std::string(stem);
  std::string stem = step_2(step_1c(step_1b(step_1a(std::string(word)))));
  stem = replaced(replaced(stem, rules_of_step_3, 0), rules_of_step_4, 1);
  return step_5(stem);
}

/// Returns 2 p r / (p + r), where precision p and recall r are relative to the n-grams of text and
/// reference.
static double f_measure(std::size_t common, std::size_t in_text, std::size_t in_reference) {
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(in_text),
               recall = static_cast<double>(common) / static_cast<double>(in_reference);
  return 2 * precision * recall / (precision + recall);
}

static double rouge_n(const WordIds& text, const WordIds& reference, int n) {
  return f_measure(static_cast<std::size_t>(clipped_matches(text, reference, n)),
                   sorted_ngrams(text, n).size(), sorted_ngrams(reference, n).size());
}

/// Returns the length of the longest common subsequence.
static std::size_t common_subsequence(const WordIds& a, const WordIds& b) {
  std::vector<std::size_t> row(b.size() + 1);  // for the words of a so far and the first j of b
  for (const std::int32_t word : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = word == b[j] ? diagonal + 1 : std::max(row[j], above);
      diagonal = above;
    }
  }
  return row.back();
}

static bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// Returns runs of letters with their marks, and of numbers, in lower case. In scripts without
/// spaces between words, each letter is a word.
static std::vector<std::string> words_of_every_script(std::string_view text, bool stemming) {
  const std::string lower =
      unicode::lower_case(unicode::normalize(text, unicode::Form::nfc), unicode::FinalSigma::final);
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty())
      words.push_back(stemming && word.size() > 3 && is_ascii(word) ? porter_stem(word) : word);
    word.clear();
  };
  bool is_whole = false;  // the word: nothing but marks can join it
  for (std::size_t at = 0; at < lower.size();) {
    const unicode::CodePoint c = unicode::decode(lower, at);
    const std::string_view bytes = std::string_view(lower).substr(at, static_cast<std::size_t>(c.length));
    at += bytes.size();
    if (!c.valid || !unicode::stays_with_previous(c.value)) {
      const bool is_part = c.valid && (unicode::is_letter(c.value) || unicode::is_number(c.value));
      const auto script = is_part ? unicode::letter_script(c.value) : unicode::Script::other;
      const bool is_word = script == unicode::Script::han || script == unicode::Script::unspaced;
      if (!is_part || is_word || is_whole) end_word();
      is_whole = is_word;
      if (!is_part) continue;
    }
    word += bytes;
  }
  end_word();
  return words;
}

RougeWords rouge_words_for(std::span<const std::string> references) {
  for (const std::string& text : references)
    for (std::size_t at = 0; at < text.size();) {
      const unicode::CodePoint c = unicode::decode(text, at);
      if (c.valid && c.value >= 0x80 && unicode::is_letter(c.value)) return RougeWords::unicode;
      at += static_cast<std::size_t>(c.length);
    }
  return RougeWords::ascii;
}

std::string rouge_signature(RougeWords kind, bool stemming) {
  return concat_text("words:", kind == RougeWords::ascii ? "ascii" : "unicode",
                     "|stemming:", stemming ? "porter" : "no", "|version:heed-", version);
}

std::vector<std::string> rouge_words(std::string_view text, bool stemming, RougeWords kind) {
  if (kind == RougeWords::unicode) return words_of_every_script(text, stemming);
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(stemming && word.size() > 3 ? porter_stem(word) : word);
    word.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto is_next = [&](std::string_view bytes) { return text.substr(i, bytes.size()) == bytes; };
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
    } else if (c >= 'A' && c <= 'Z') {
      word += static_cast<char>(c - 'A' + 'a');
    } else if (is_next("\xE2\x84\xAA")) {  // the Kelvin sign lower-cases to a plain k
      word += 'k';
      i += 2;
    } else {
      if (is_next("\xC4\xB0")) word += 'i';  // dotted I lower-cases to i and a combining dot
      end_word();
    }
  }
  end_word();
  return words;
}

static RougeScore rouge_score(std::string_view text, std::string_view reference, bool stemming,
                              RougeWords kind) {
  WordNumbers numbers;
  const WordIds found = numbers.number(rouge_words(text, stemming, kind)),
                expected = numbers.number(rouge_words(reference, stemming, kind));
  return {rouge_n(found, expected, 1), rouge_n(found, expected, 2),
          f_measure(common_subsequence(found, expected), found.size(), expected.size())};
}

RougeScore rouge(std::string_view text, std::string_view reference, bool stemming) {
  const std::string whole(reference);
  return rouge_score(text, reference, stemming, rouge_words_for({&whole, 1}));
}

std::vector<RougeScore> rouge_scores(std::span<const std::string> texts,
                                     std::span<const std::string> references, bool stemming) {
  check(texts.size() == references.size() && !texts.empty(), "ROUGE: needs as many texts as references, got ",
        texts.size(), " and ", references.size());
  const RougeWords kind = rouge_words_for(references);
  std::vector<RougeScore> scores;
  for (std::size_t i = 0; i < texts.size(); ++i)
    scores.push_back(rouge_score(texts[i], references[i], stemming, kind));
  return scores;
}

RougeScore mean_of(std::span<const RougeScore> scores) {
  RougeScore mean;
  const auto count = static_cast<double>(scores.size());
  for (const RougeScore& one : scores) {
    mean.rouge1 += one.rouge1 / count;
    mean.rouge2 += one.rouge2 / count;
    mean.rougeL += one.rougeL / count;
  }
  return mean;
}

RougeScore mean_rouge(std::span<const std::string> texts, std::span<const std::string> references,
                      bool stemming) {
  return mean_of(rouge_scores(texts, references, stemming));
}

}  // namespace heed
