#pragma once

#include <cstdint>

#include "heed/data/text_file.h"

namespace heed {

/// Short reports made by rule, each with a headline, to see whether a model has learned to summarise: the headline says
/// who did what to whom, "baker helps miller", whatever stands around that in the report:
/// "it rained. near the river the young baker helped the miller. the tall judge slept."
/// A report may tell it in the passive voice, and names others who do nothing.
struct Reports {
  ParallelText train, held_out;
};
/// A pure function of its arguments; no held-out report is among the others. Throws Error for counts below 1 or above a
/// million.
Reports headline_reports(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count);

}  // namespace heed
