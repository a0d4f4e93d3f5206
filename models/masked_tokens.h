#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/core/random.h"
#include "heed/models/batch.h"

namespace heed {

/// How tokens are hidden from a model that is to guess them: BERT's rule (Devlin et al., arXiv 1810.04805,
/// section 3.1 and appendix A.1).
struct MaskingOptions {
  double share = 0.15;  ///< of a sequence's tokens that are to be guessed, at least one of each sequence
  double mask = 0.8;    ///< probability that such a token is replaced by the mask token
  double random = 0.1;  ///< that it is replaced by any token; else it stays as it is
  std::int32_t mask_token = 0;
  std::int32_t vocabulary = 0;  ///< number of ids
  /// Ids in ascending order; all others are special tokens: never to be guessed, never put in.
  std::vector<std::int32_t> ordinary = {};
};

/// What a model reads and what it is to guess.
struct MaskedBatch {
  PaddedTokens input;
  Targets targets;  ///< the original tokens at the chosen places
};

/// Chooses round(share * ordinary tokens) places of each sequence, at least one, and hides them; sequences
/// without an ordinary token have none. A pure function of its arguments: sequence b draws from the stream of
/// `key` with b added to its op number. Throws an Error for options out of range, for an id outside the
/// vocabulary, and when there is nothing to guess at all.
MaskedBatch make_masked_batch(std::span<const Tokens> sequences, const MaskingOptions& options,
                              const RandomKey& key, Device device = {});

}  // namespace heed
