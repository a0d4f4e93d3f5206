#pragma once

#include "settings.h"

namespace heed::programs {

/// To four decimals: more say nothing about a score.
double rounded(double value);
/// Prints what a command found as one line of JSON on standard output.
void print_result(const Json& result);

}  // namespace heed::programs
