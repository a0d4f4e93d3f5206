#pragma once

#include <span>
#include <vector>

#include "heed/models/decoding.h"

namespace heed {

/// The options of a search for an output sequence.
struct SearchOptions {
  std::int32_t begin = 1;       ///< the token that starts every output
  std::int32_t end = 2;         ///< the token that ends every output
  std::int32_t never = -1;      ///< a token that no output contains, such as padding; -1: none
  std::int64_t beam = 4;        ///< hypotheses kept per sentence; 1: greedy
  std::int64_t best = 1;        ///< hypotheses returned per sentence, at most `beam`
  double length_penalty = 0.6;  ///< alpha; 0: none
  /// When set, a sentence ends once `beam` hypotheses have ended, even though unlikely short ones
  /// tend to end first. Otherwise it continues until no open hypothesis could enter the best ones,
  /// even if all its further tokens had probability 1.
  bool early_stop = false;
  /// An output has at most length_ratio * source length + length_extra tokens; then the end token
  /// is forced.
  double length_ratio = 1.5;
  std::int64_t length_extra = 10;
};
/// Throws an Error that names the option and its value unless beam is 1 to 1,024, best 1 to beam,
/// the length penalty and length ratio 0 to 1,000, and the extra length 0 to 2^24.
void check_search(const SearchOptions& options);

/// An output sequence.
struct Hypothesis {
  Tokens tokens;               ///< without begin and end
  double log_probability = 0;  ///< of all tokens, the end included
  double score = 0;            ///< log_probability / compute_length_penalty(tokens.size() + 1)
};

/// Returns ((5 + length) / 6)^alpha: GNMT, arXiv 1609.08144, eq. 14. `length` counts the end token.
double compute_length_penalty(std::int64_t length, double alpha);

/// Searches with a beam; returns the best hypotheses of each sentence, best first. max_lengths[s]
/// limits the tokens of sentence s before the end token. The model starts with one row per
/// sentence. For a language model, `begin` is the last token of its prompt.
///
/// Every step considers the 2 * beam best continuations of a sentence: those among the first `beam`
/// that end are finished, and the first `beam` that do not end continue. Ties go to the
/// lower-numbered hypothesis, then the lower token id. A beam of 1 takes the most probable token at
/// every step and ends with the first end token. `watch` receives the tokens shared by all
/// hypotheses that can still become the best.
std::vector<std::vector<Hypothesis>> beam_search(StepModel& model, std::span<const std::int64_t> max_lengths,
                                                 const SearchOptions& options, const TokenWatch& watch = {});

/// Returns the hypothesis of each sentence that a beam of 1 finds.
std::vector<Hypothesis> greedy_search(StepModel& model, std::span<const std::int64_t> max_lengths,
                                      SearchOptions options, const TokenWatch& watch = {});

/// Returns the most tokens that the options and the model allow for each source's output.
std::vector<std::int64_t> output_limits(const EncoderDecoder& model, std::span<const Tokens> sources,
                                        const SearchOptions& options);
/// Translates a batch of sources; returns the best hypotheses of each, best first.
std::vector<std::vector<Hypothesis>> translate(EncoderDecoder& model, std::span<const Tokens> sources,
                                               const SearchOptions& options, const TokenWatch& watch = {});

}  // namespace heed
