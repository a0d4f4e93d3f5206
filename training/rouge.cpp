#include "heed/training/rouge.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "heed/base/error.h"

namespace heed {
namespace {

bool is_vowel_letter(char c) {
  return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
}

/// Which letters are consonants: all but a, e, i, o, u, and y after a consonant.
std::vector<bool> consonants(std::string_view word) {
  std::vector<bool> found;
  for (const char c : word) found.push_back(c == 'y' ? found.empty() || !found.back() : !is_vowel_letter(c));
  return found;
}

/// m of [C](VC)^m[V]: how often a vowel is followed by a consonant.
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

/// Porter's *d.
bool ends_in_double_consonant(std::string_view word) {
  const std::size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && consonants(word).back();
}

/// Porter's *o: ends in consonant, vowel, consonant, the last not w, x or y. NLTK adds two-letter words of
/// a vowel and a consonant.
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

/// Applies the first rule whose suffix matches: replaces the suffix if the stem before it
/// has a measure above `least`.
std::string replaced(const std::string& word, std::span<const Rule> rules, int least) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const std::string stem = word.substr(0, word.size() - rule.suffix.size());
    if (measure(stem) <= least) return word;
    if (rule.suffix == "ion" && stem.back() != 's' && stem.back() != 't') return word;
    return stem + std::string(rule.replacement);
  }
  return word;
}

constexpr std::array<Rule, 21> rules_of_step_2 = {
    {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"},
     {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"}, {"eli", "e"},     {"ousli", "ous"},
     {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},  {"alism", "al"},  {"iveness", "ive"},
     {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},  {"iviti", "ive"}, {"biliti", "ble"},
     {"fulli", "ful"}}};

constexpr std::array<Rule, 7> rules_of_step_3 = {{{"icate", "ic"},
                                                  {"ative", ""},
                                                  {"alize", "al"},
                                                  {"iciti", "ic"},
                                                  {"ical", "ic"},
                                                  {"ful", ""},
                                                  {"ness", ""}}};

constexpr std::array<Rule, 19> rules_of_step_4 = {{{"al", ""},
                                                   {"ance", ""},
                                                   {"ence", ""},
                                                   {"er", ""},
                                                   {"ic", ""},
                                                   {"able", ""},
                                                   {"ible", ""},
                                                   {"ant", ""},
                                                   {"ement", ""},
                                                   {"ment", ""},
                                                   {"ent", ""},
                                                   {"ion", ""},
                                                   {"ou", ""},
                                                   {"ism", ""},
                                                   {"ate", ""},
                                                   {"iti", ""},
                                                   {"ous", ""},
                                                   {"ive", ""},
                                                   {"ize", ""}}};

std::string without(const std::string& word, std::size_t letters) {
  return word.substr(0, word.size() - letters);
}

/// Plurals.
std::string step_1a(const std::string& word) {
  if (word.ends_with("ies")) return without(word, word.size() == 4 ? 1 : 2);
  if (word.ends_with("sses")) return without(word, 2);
  return word.ends_with('s') && !word.ends_with("ss") ? without(word, 1) : word;
}

/// Past tenses and participles.
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

constexpr std::array<std::pair<std::string_view, std::string_view>, 16> irregular = {
    {{"sky", "sky"},
     {"skies", "sky"},
     {"dying", "die"},
     {"lying", "lie"},
     {"tying", "tie"},
     {"news", "news"},
     {"innings", "inning"},
     {"inning", "inning"},
     {"outings", "outing"},
     {"outing", "outing"},
     {"cannings", "canning"},
     {"canning", "canning"},
     {"howe", "howe"},
     {"proceed", "proceed"},
     {"exceed", "exceed"},
     {"succeed", "succeed"}}};

}  // namespace

std::string porter_stem(std::string_view word) {
  if (word.size() <= 2) return std::string(word);
  for (const auto& [form, stem] : irregular)
    if (word == form) return std::string(stem);
  std::string stem = step_2(step_1c(step_1b(step_1a(std::string(word)))));
  stem = replaced(replaced(stem, rules_of_step_3, 0), rules_of_step_4, 1);
  return step_5(stem);
}

namespace {

using WordList = std::vector<std::string>;

/// 2 p r / (p + r), where precision p and recall r are relative to the n-grams of text and reference.
double f_measure(std::size_t common, std::size_t in_text, std::size_t in_reference) {
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(in_text),
               recall = static_cast<double>(common) / static_cast<double>(in_reference);
  return 2 * precision * recall / (precision + recall);
}

/// How often each run of n words occurs.
std::map<WordList, std::size_t> runs_of(const WordList& words, std::size_t n) {
  std::map<WordList, std::size_t> counts;
  for (auto at = words.begin(); static_cast<std::size_t>(words.end() - at) >= n; ++at)
    ++counts[WordList(at, at + static_cast<std::ptrdiff_t>(n))];
  return counts;
}

double rouge_n(const WordList& text, const WordList& reference, std::size_t n) {
  const auto expected = runs_of(reference, n);
  std::size_t common = 0;
  for (const auto& [run, count] : runs_of(text, n))
    if (const auto found = expected.find(run); found != expected.end())
      common += std::min(count, found->second);
  const auto total = [&](const WordList& words) { return words.size() < n ? 0 : words.size() - n + 1; };
  return f_measure(common, total(text), total(reference));
}

/// The length of the longest common subsequence.
std::size_t common_subsequence(const WordList& a, const WordList& b) {
  std::vector<std::size_t> row(b.size() + 1);  // for the words of a so far and the first j of b
  for (const std::string& word : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = word == b[j] ? diagonal + 1 : std::max(row[j], above);
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> rouge_words(std::string_view text, bool stemming) {
  WordList words;
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

RougeScore rouge(std::string_view text, std::string_view reference, bool stemming) {
  const WordList found = rouge_words(text, stemming), expected = rouge_words(reference, stemming);
  return {rouge_n(found, expected, 1), rouge_n(found, expected, 2),
          f_measure(common_subsequence(found, expected), found.size(), expected.size())};
}

std::vector<RougeScore> rouge_scores(std::span<const std::string> texts,
                                     std::span<const std::string> references, bool stemming) {
  check(texts.size() == references.size() && !texts.empty(), "ROUGE: needs as many texts as references, got ",
        texts.size(), " and ", references.size());
  std::vector<RougeScore> scores;
  for (std::size_t i = 0; i < texts.size(); ++i) scores.push_back(rouge(texts[i], references[i], stemming));
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
