#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

enum class BleuTokens {
  mteval_13a,  ///< The tokenisation of mteval-v13a.pl, sacreBLEU's default ("13a").
  none,        ///< Words between white space, as they are.
};
enum class BleuSmoothing {
  exponential,  ///< The k-th order without a match counts 1 / (2^k * n-grams) ("exp", NIST's method).
  none,         ///< Any order without a match makes the score 0.
};

struct BleuOptions {
  BleuTokens tokens = BleuTokens::mteval_13a;
  BleuSmoothing smoothing = BleuSmoothing::exponential;
  bool lower_case = false;
};

/// A score with the numbers it was made of; index n-1 is for n-grams.
struct BleuScore {
  double score = 0;  ///< 0 to 100.
  std::array<std::int64_t, 4> matches{}, totals{};
  std::array<double, 4> precisions{};  ///< In percent, smoothed.
  double brevity_penalty = 0;
  std::int64_t hypothesis_length = 0, reference_length = 0;  ///< In words after tokenisation.
  std::string signature;
  /// The counts that it was made of, 4 matches, 4 totals and 2 lengths: those of two texts add up to those of
  /// both.
  std::vector<double> statistics() const;
};

/// Corpus BLEU with one reference a line (Papineni et al., ACL 2002), as sacreBLEU 2 computes it (Post, WMT
/// 2018). Line i of the hypotheses is compared with line i of the references. Throws Error when their
/// numbers differ or there is none.
BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
                      const BleuOptions& options = {});

/// The score of counts as BleuScore::statistics() has them, or of sums of such. Throws Error unless there are
/// 10.
BleuScore bleu_of_statistics(std::span<const double> statistics, const BleuOptions& options = {});

/// How the score was made, in sacreBLEU's form:
/// "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:heed-0.1.0".
std::string bleu_signature(const BleuOptions& options = {});

/// A line cut into words by single spaces, as BLEU counts them.
std::string bleu_tokenize(std::string_view line, BleuTokens tokens = BleuTokens::mteval_13a);

/// How varied texts are: distinct runs of n words over all runs of n words, 0 to 1 (distinct-n of Li et al.,
/// NAACL 2016, arXiv 1510.03055, section 5.2, over runs rather than words). Words are those of BLEU
/// (bleu_tokenize()), with their case; 0 where there is no run.
double distinct_share(std::span<const std::string> texts, std::size_t n);

}  // namespace heed
