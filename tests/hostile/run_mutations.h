#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heed::test {

/// What came of one mutation.
struct MutationResult {
  std::string description;  ///< what was done to the run, and what was run on it
  std::string fault;        ///< what must not happen; "": nothing did
  bool refused = false;     ///< the program said an error; false: the results were those of the untouched run
};

/// Damages a copy of a small run of a task's program at random: bits are flipped, bytes zeroed, inserted or
/// cut off, lines removed or doubled, tensors and files exchanged with a run of another seed, files deleted
/// or replaced by others of the run, numbers in JSON replaced by extremes, classes permuted. Then a command
/// reads the run, or goes on with it. That is a fault unless the command fails with status 1 or 2, or its
/// results are those of the untouched run, to the last bit; a signal, more than 20 s and more than 2 GB are
/// faults as well. One command in four takes the run --unverified: its results may be others. The same seed,
/// the same mutation.
MutationResult check_mutation(const std::string& task, std::uint64_t seed);

}  // namespace heed::test
