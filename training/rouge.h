#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// The stem of a lower-case ASCII word by Porter's rules ("An algorithm for suffix stripping", Program 14(3),
/// 1980), with the departures that NLTK's PorterStemmer makes in its default mode: a list of irregular words,
/// "-ies" and "-ied" of short words, "-y" after any consonant, and a few more suffixes. Characters that are
/// not letters count as consonants.
std::string porter_stem(std::string_view word);

/// ROUGE F measures, 0 to 1 (Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004).
struct RougeScore {
  double rouge1 = 0;  ///< unigrams, section 2
  double rouge2 = 0;  ///< bigrams
  double rougeL = 0;  ///< longest common subsequence of words, section 3
};

/// ROUGE of a text against its reference, as the Python package rouge-score 0.1.2 computes it. With
/// stemming, words of more than 3 characters are compared by their stems (porter_stem()).
RougeScore rouge(std::string_view text, std::string_view reference, bool stemming);

/// ROUGE of each pair. Throws Error if the numbers of texts and references differ or are 0.
std::vector<RougeScore> rouge_scores(std::span<const std::string> texts,
                                     std::span<const std::string> references, bool stemming);
RougeScore mean_of(std::span<const RougeScore> scores);
/// The mean over all pairs. Throws Error if the numbers of texts and references differ or are 0.
RougeScore mean_rouge(std::span<const std::string> texts, std::span<const std::string> references,
                      bool stemming);

/// The words that ROUGE compares: runs of a-z and 0-9 in the lower-cased text.
std::vector<std::string> rouge_words(std::string_view text, bool stemming);

}  // namespace heed
