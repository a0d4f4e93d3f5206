#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/models/decoding.h"
#include "heed/models/search.h"
#include "heed/tasks/settings.h"

// How an encoder-decoder writes, and how likely it takes what others wrote.

namespace heed {

/// "decoding": by beam search or by sampling, and their limits. `defaults`: of the search.
void declare_decoding(Settings& settings, const SearchOptions& defaults = {});

struct Decoding {
  SearchOptions search;  ///< its limits of lengths, marks and `best` hold for sampling, too
  bool sampled = false;
  SamplingOptions sampling = {};
  std::uint64_t seed = 1;
};
/// What the settings say; the marks `search.begin` and `search.end` are left to the caller. Throws a
/// SettingsError for settings that do not fit together.
Decoding decoding_options(const Settings& settings);

/// `search.best` outputs for each source, the best of them first. What is drawn follows from the seed and the
/// number of the source, not from the sources beside it.
std::vector<std::vector<Hypothesis>> write_outputs(EncoderDecoder& model, std::span<const Tokens> sources,
                                                   std::span<const std::int64_t> numbers,
                                                   const Decoding& decoding);

/// log p(target, end | source) of each pair; records no gradient.
std::vector<double> log_probabilities(EncoderDecoder& model, std::span<const Tokens> sources,
                                      std::span<const Tokens> targets, std::int32_t begin, std::int32_t end);

}  // namespace heed
