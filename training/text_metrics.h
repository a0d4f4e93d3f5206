#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Metrics of generated texts: similarity to references (BLEU and ROUGE), and diversity.
namespace heed {

/// Splits a text at white space, as Python's str.split() does.
std::vector<std::string_view> split_at_spaces(std::string_view text);

enum class BleuTokens {
  mteval_13a,  ///< Tokenisation of mteval-v13a.pl, sacreBLEU's default ("13a").
  none,        ///< Words separated by white space, unchanged.
  zh,          ///< Chinese characters stand alone, the rest is split as 13a does ("zh").
  character,   ///< Every character is a word ("char").
  /// Punctuation and symbols of every script stand alone, as in mteval-v14.pl ("intl").
  international,
};
/// Returns sacreBLEU's name: "13a", "none", "zh", "char", "intl".
std::string_view name_of(BleuTokens tokens);
/// Returns the tokenization for the script of most letters in the references: 13a for Latin, zh for
/// Chinese, char for scripts without spaces between words (Japanese, Thai, ...), and intl for all
/// others.
BleuTokens bleu_tokens_for(std::span<const std::string> references);
enum class BleuSmoothing {
  /// The k-th order without a match counts 1 / (2^k * n-grams) ("exp", NIST's method).
  exponential,
  none,  ///< Any order without a match makes the score 0.
};

struct BleuOptions {
  BleuTokens tokens = BleuTokens::mteval_13a;
  BleuSmoothing smoothing = BleuSmoothing::exponential;
  bool lower_case = false;
};

/// A score and the numbers behind it; index n-1 is for n-grams.
struct BleuScore {
  double score = 0;  ///< 0 to 100.
  std::array<std::int64_t, 4> matches{}, totals{};
  std::array<double, 4> precisions{};  ///< In percent, smoothed.
  double brevity_penalty = 0;
  std::int64_t hypothesis_length = 0, reference_length = 0;  ///< In words after tokenisation.
  std::string signature;
  /// The underlying counts: 4 matches, 4 totals and 2 lengths. The counts of two texts add up
  /// to those of both together.
  std::vector<double> statistics() const;
};

/// Corpus BLEU with one reference per line (Papineni et al., ACL 2002), as sacreBLEU 2 computes it
/// (Post, WMT 2018). Line i of the hypotheses is compared with line i of the references. Throws
/// Error if their numbers differ or are 0.
BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
                      const BleuOptions& options = {});

/// Returns the score for counts from BleuScore::statistics(), or for sums of them. Throws Error
/// unless there are 10.
BleuScore bleu_from_statistics(std::span<const double> statistics, const BleuOptions& options = {});

/// Returns the signature of a score in sacreBLEU's format:
/// "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:heed-0.1.0".
std::string bleu_signature(const BleuOptions& options = {});

/// Separates a line's words, as counted by BLEU, with single spaces.
std::string bleu_tokenize(std::string_view line, BleuTokens tokens = BleuTokens::mteval_13a);

/// Returns the diversity of texts: the number of distinct n-grams over the number of all n-grams, 0
/// to 1 (distinct-n of Li et al., NAACL 2016, arXiv 1510.03055, section 5.2, but divided by n-grams
/// instead of words). Words are those of bleu_tokenize(), case-sensitive; 0 if there are no
/// n-grams.
double distinct_share(std::span<const std::string> texts, std::size_t n,
                      BleuTokens tokens = BleuTokens::mteval_13a);

/// Returns the stem of a lower-case ASCII word by Porter's rules ("An algorithm for suffix
/// stripping", Program 14(3), 1980), with the deviations of NLTK's PorterStemmer in its default
/// mode: a list of irregular words, "-ies" and "-ied" of short words, "-y" after any consonant, and
/// a few more suffixes. Characters that are not letters count as consonants.
std::string porter_stem(std::string_view word);

/// ROUGE F measures, 0 to 1 (Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004).
struct RougeScore {
  double rouge1 = 0;  ///< unigrams, section 2
  double rouge2 = 0;  ///< bigrams
  double rougeL = 0;  ///< longest common subsequence of words, section 3
};

/// The definition of a word in ROUGE.
enum class RougeWords {
  /// Runs of a-z and 0-9 in the lower-cased text, as the Python package rouge-score has it.
  ascii,
  /// Runs of letters and numbers of every script; a letter each where words have no spaces between.
  unicode,
};
/// Returns ascii if the references have only ASCII letters, otherwise unicode.
RougeWords rouge_words_for(std::span<const std::string> references);
/// Returns the signature of a score: "words:ascii|stemming:porter|version:heed-0.1.0".
std::string rouge_signature(RougeWords kind, bool stemming);

/// Returns ROUGE of a text against its reference. For an ASCII reference it equals the Python
/// package rouge-score 0.1.2; otherwise it uses words of every script. With stemming, ASCII words
/// of more than 3 characters are compared by their stems (porter_stem()).
RougeScore rouge(std::string_view text, std::string_view reference, bool stemming);

/// Returns ROUGE of each pair, with one kind of words for all. Throws Error if the numbers of texts
/// and references differ or are 0.
std::vector<RougeScore> rouge_scores(std::span<const std::string> texts,
                                     std::span<const std::string> references, bool stemming);
RougeScore mean_of(std::span<const RougeScore> scores);
/// Returns the mean ROUGE over all pairs. Throws Error if the numbers of texts and references
/// differ or are 0.
RougeScore mean_rouge(std::span<const std::string> texts, std::span<const std::string> references,
                      bool stemming);

/// Returns the words that ROUGE compares.
std::vector<std::string> rouge_words(std::string_view text, bool stemming, RougeWords kind);

}  // namespace heed
