#include "heed/training/rouge.h"

#include <algorithm>
#include <map>

#include "heed/core/error.h"
#include "heed/training/porter_stemmer.h"

namespace heed {
namespace {

using WordList = std::vector<std::string>;

/// 2 p r / (p + r), with p and r relative to the words or pairs of either side.
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
  std::vector<std::size_t> row(b.size() + 1);  // of the words of a so far and the first j of b
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
    } else if (is_next("\xE2\x84\xAA")) {  // the Kelvin sign: in lower case a plain k
      word += 'k';
      i += 2;
    } else {
      if (is_next("\xC4\xB0")) word += 'i';  // I with a dot: in lower case i and a combining dot
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
