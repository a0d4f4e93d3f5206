#pragma once

#include <span>
#include <string>
#include <vector>

#include "heed/data/text_file.h"
#include "heed/tasks/settings.h"

// Pairs of texts, a source and what is to be written for it, from tables or from two files of lines.

namespace heed {

struct PairParts {
  ParallelText train, valid, test;
};

/// The settings below "data" that name files of pairs: a table each ("file", "valid", "test", with "format", "header"
/// and the columns), or two files of lines each ("source" and "target", "valid_source", ...). `valid_fraction`: the
/// share that is held out where no file is named to measure with.
void declare_pairs(Settings& settings, double valid_fraction);

/// True when the settings name pairs to learn from; throws a SettingsError when they name half of them, or both a table
/// and files of lines.
bool names_pairs(const Settings& settings);

/// All parts that the settings name.
PairParts read_pair_parts(const Settings& settings, ReadReport& report);
/// A table (one file), or sources and targets (two). Line ends in a cell become spaces. Throws an Error with file and
/// line.
ParallelText read_pairs(const Settings& settings, std::span<const std::string> files, ReadReport& report);

/// Draws the share of the pairs that is held out, as split_text() does.
PairParts split_pairs(const ParallelText& pairs, double valid_fraction, std::uint64_t seed);

}  // namespace heed
