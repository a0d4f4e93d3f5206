#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/base/error.h"

namespace heed {

/// The parts of a text between separators, which are not empty; of an empty text none.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator);

/// "a, b, c"; with `last` = " and ", "a, b and c".
template <class Items>
std::string listed(const Items& items, std::string_view last = ", ") {
  std::string text;
  std::size_t i = 0;
  for (const auto& item : items) {
    if (i > 0) text += i + 1 == std::size(items) ? last : ", ";
    text += concat_text(item);
    ++i;
  }
  return text;
}

/// Returns the least number of insertions, deletions, replacements and swaps of neighbours that
/// turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);
/// The candidate that `name` was probably meant to be: one or two letters away, or with the same
/// last word ("training.learning_rate" is "training.schedule.learning_rate"), or with the least
/// edit distance; the first on ties, "" when none is similar.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);
/// The end of an error message about an unknown name: "; did you mean 'x'?", or the list of all
/// candidates.
std::string suggest_name(std::string_view name, std::span<const std::string> candidates);

/// Lists at most `most` names and counts the rest: "a, b and 7 more".
std::string listed(std::span<const std::string> names, std::size_t most);

/// A table of the names of an enum's values, for settings, errors and help.
template <class Kind, std::size_t count>
struct NameTable {
  std::string_view what;  ///< "optimizer"
  std::array<std::pair<std::string_view, Kind>, count> rows;

  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const auto& [name, kind] : rows) list.emplace_back(name);
    return list;
  }
  /// Throws an Error that lists the names when `wanted` is unknown.
  Kind find(std::string_view wanted) const {
    for (const auto& [name, kind] : rows)
      if (name == wanted) return kind;
    fail("unknown ", what, " \"", wanted, "\"; choose one of ", listed(names()));
  }
  std::string_view name_of(Kind wanted) const {
    for (const auto& [name, kind] : rows) {
      if (kind == wanted) return name;
    }
    fail("a ", what, " without a name");
  }
};

/// The largest double below 1: the high end of a range that excludes 1.
inline constexpr double below_one = 0x1.fffffffffffffp-1;

/// The largest float below 1: the high end of an f32 range that excludes 1.
inline constexpr double below_one_in_f32 = 0x1.fffffep-1;

/// Returns a range as text: "0 to 5", or "at least 0 and below 1" when `high` is below_one or
/// below_one_in_f32. `low_text` and `high_text` are the bounds as the caller writes them.
inline std::string range_text(const std::string& low_text, double high, const std::string& high_text) {
  if (high == below_one) return "at least " + low_text + " and below 1";
  return high == below_one_in_f32 ? "at least " + low_text + " and below 1 in f32"
                                  : low_text + " to " + high_text;
}

/// Replaces each `from` by `to`, from left to right.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace heed
