#pragma once

#include <span>
#include <vector>

#include "heed/models/decoding.h"

namespace heed {

/// How an output sequence is searched for.
struct SearchOptions {
  std::int32_t begin = 1;       ///< the token that starts every output
  std::int32_t end = 2;         ///< the token that ends every output
  std::int32_t never = -1;      ///< a token that no output has, such as padding that begins it; -1: none
  std::int64_t beam = 4;        ///< hypotheses kept for each sentence; 1: greedy
  std::int64_t best = 1;        ///< how many hypotheses to return for each sentence, at most `beam`
  double length_penalty = 0.6;  ///< alpha; 0: none
  /// A sentence ends once `beam` hypotheses have, though a sure model's unlikely short ones end first.
  /// Otherwise it goes on until no hypothesis that is still open could enter the best ones, even if all its
  /// further tokens were certain.
  bool early_stop = false;
  /// An output has at most length_ratio * source length + length_extra tokens, then the end token is forced.
  double length_ratio = 1.5;
  std::int64_t length_extra = 10;
};
/// Throws an Error that names the option and its value unless beam is 1 to 1,024, best 1 to beam, the length
/// penalty and the ratio 0 to 1,000 and the extra length 0 to 2^24.
void check_search(const SearchOptions& options);

/// An output sequence.
struct Hypothesis {
  Tokens tokens;               ///< without begin and end
  double log_probability = 0;  ///< of all tokens, the end included
  double score = 0;            ///< log_probability / length_penalty_of(tokens.size() + 1)
};

/// ((5 + length) / 6)^alpha: GNMT, arXiv 1609.08144, eq. 14. `length` counts the end token.
double length_penalty_of(std::int64_t length, double alpha);

/// The most probable token at every step. max_lengths[s] is the most tokens of sentence s before the end
/// token; the model starts with one row for each sentence. For a language model, `begin` is the last token
/// of its prompt.
std::vector<Hypothesis> greedy_search(StepModel& model, std::span<const std::int64_t> max_lengths,
                                      const SearchOptions& options);
/// Beam search; for each sentence its best hypotheses, best first. At every step each sentence looks at its
/// 2 * beam best continuations: those among the first `beam` that end are finished, the first `beam` that do
/// not end go on. Ties go to the hypothesis, then the token, with the lower number.
std::vector<std::vector<Hypothesis>> beam_search(StepModel& model, std::span<const std::int64_t> max_lengths,
                                                 const SearchOptions& options);

/// The most tokens that the output of each source may have, by the options and by what the model can read.
std::vector<std::int64_t> output_limits(const EncoderDecoder& model, std::span<const Tokens> sources,
                                        const SearchOptions& options);
/// Translates a batch of sources: the best hypotheses of each, best first.
std::vector<std::vector<Hypothesis>> translate(EncoderDecoder& model, std::span<const Tokens> sources,
                                               const SearchOptions& options);

}  // namespace heed
