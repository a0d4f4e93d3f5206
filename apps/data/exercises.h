#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/core/tensor.h"

// Sequences made by rule that test what a causal mechanism can do: recall what it read, keep it apart from
// noise, store it in its weights, or track a state.

namespace heed {

/// A sequence of tokens, and what the model must answer after each of them.
struct Exercise {
  Tokens tokens, answers;  ///< equally long; the answer -1: nothing is asked
};

/// Returns the names of the rules, in the order of the setting's choices:
/// - "mqar": multi-query associative recall (Arora et al. 2023, arXiv 2312.04927, section 3 and appendix E):
///   `pairs` different keys, each followed by its value, then random tokens among which every key comes once
///   more, sooner more often than later, and asks for its value;
/// - "recall", "noisy_recall" and "fuzzy_recall" of MAD (Poli et al. 2024, arXiv 2403.17844, section 3.1):
///   keys and values from small vocabularies in turn, where a key that has been read asks for its value; a
///   share `noise` of the pairs is noise; keys and values consist of one to three tokens;
/// - "selective_copying": `pairs` tokens among blanks, which marks at the end ask for in the same order;
/// - "compression": random tokens, all of which must be read from the model's output for the last one;
/// - "memorization": keys whose values never occur, and must be learned by heart;
/// - "parity": the parity of all bits so far; "s5": the product of all permutations of five so far (Merrill
///   et al. 2024, arXiv 2404.08819, section 4).
std::vector<std::string> exercise_rules();

/// A rule with its sizes; 0 stands for those of the paper.
struct ExerciseOptions {
  std::string rule = "mqar";
  std::int64_t vocabulary = 0;  ///< 8,192, MAD's 16 to 256, 2 or 120
  std::int64_t length = 0;      ///< tokens of a sequence: MAD's 32 to 256, 32, or for mqar 4 for each pair
  std::int64_t pairs = 0;       ///< of mqar (16), or tokens to copy (16)
  double noise = 0.2;
};

/// Whether the rule tracks a state, so that sequences of any length can be asked.
bool tracks_state(const ExerciseOptions& options);

/// Returns the options with all sizes. Throws an Error for sizes that the rule cannot have.
ExerciseOptions completed(ExerciseOptions options);

/// Returns exercise number `index`, a pure function of the arguments. The options must be completed().
Exercise draw_exercise(const ExerciseOptions& options, std::uint64_t seed, std::uint32_t index);

}  // namespace heed
