#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// The stem of a lower-case ASCII word by Porter's rules ("An algorithm for suffix stripping", Program 14(3),
/// 1980), with the departures that NLTK's PorterStemmer makes in its default mode: a list of irregular words,
/// "-ies" and "-ied" of short words, "-y" after any consonant, and a few suffixes more. What is no letter
/// counts as a consonant.
std::string porter_stem(std::string_view word);

/// ROUGE F measures, 0 to 1 (Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004).
struct RougeScore {
  double rouge1 = 0;  ///< of single words, section 2
  double rouge2 = 0;  ///< of pairs of words
  double rougeL = 0;  ///< of the longest common subsequence of words, section 3
};

/// ROUGE of one text against its reference, as the Python package rouge-score 0.1.2 computes it. With
/// stemming, words of more than 3 characters are compared by their stems (porter_stem()).
RougeScore rouge(std::string_view text, std::string_view reference, bool stemming);

/// That of each pair. Throws Error when the numbers differ or there is none.
std::vector<RougeScore> rouge_scores(std::span<const std::string> texts,
                                     std::span<const std::string> references, bool stemming);
RougeScore mean_of(std::span<const RougeScore> scores);
/// The mean over all pairs. Throws Error when the numbers differ or there is none.
RougeScore mean_rouge(std::span<const std::string> texts, std::span<const std::string> references,
                      bool stemming);

/// The words that ROUGE compares: runs of a-z and 0-9 of the text in lower case.
std::vector<std::string> rouge_words(std::string_view text, bool stemming);

}  // namespace heed
