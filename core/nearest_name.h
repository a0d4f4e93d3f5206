#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// The least number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);
/// The candidate with the least edit distance to `name` (the first on ties), or "" when none is similar.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);
/// What an error message adds about a name that is not known: "; did you mean 'x'?", or the
/// list of all candidates.
std::string suggest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace heed
