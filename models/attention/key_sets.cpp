#include "heed/models/attention/key_sets.h"

#include <algorithm>
#include <cstdlib>

#include "heed/models/attention/block_patterns.h"

namespace heed {

// std::abs covers the extension to both directions.
bool KeySets::sees(KeySet set, std::int64_t i, std::int64_t j) const {
  if (causal && j > i) return false;
  const bool local = strided ? std::abs(i - j) <= stride : i / stride == j / stride;
  const bool distant = strided ? (i - j) % stride == 0 : is_summary(j);
  return (set != KeySet::distant && local) || (set != KeySet::local && distant);
}

std::vector<std::int32_t> KeySets::key_order(KeySet set, std::int64_t length) const {
  std::vector<std::int32_t> summaries, others;
  for (std::int64_t j = 0; j < length; ++j)
    (!strided && set != KeySet::local && is_summary(j) ? summaries : others)
        .push_back(static_cast<std::int32_t>(j));
  if (set != KeySet::distant) summaries.insert(summaries.end(), others.begin(), others.end());
  return summaries;
}

std::shared_ptr<const BlockPattern> KeySets::blocks(KeySet set, std::int64_t length,
                                                    const std::vector<std::int32_t>& order) const {
  const auto keys = static_cast<std::int64_t>(order.size());
  PatternDefinition definition{length, keys, 1, 64, {}, {}};
  const auto position = [&order](std::int64_t column) { return order[static_cast<std::size_t>(column)]; };
  definition.entry = [&](std::int64_t, std::int64_t i, std::int64_t j) { return sees(set, i, position(j)); };
  definition.content = [&, b = definition.block](std::int64_t, std::int64_t row, std::int64_t column) {
    const std::int64_t first = row * b, last = std::min(length, first + b) - 1;
    for (std::int64_t j = column * b; j < std::min(keys, (column + 1) * b); ++j)
      if (may_see(set, first, last, position(j))) return BlockContent::some;
    return BlockContent::none;
  };
  return make_block_pattern(definition);
}

/// Whether some query from `first` to `last` may see key j: never wrong where it says no.
bool KeySets::may_see(KeySet set, std::int64_t first, std::int64_t last, std::int64_t j) const {
  if (causal && j > last) return false;
  if (set != KeySet::local && (strided || is_summary(j))) return true;
  return strided ? j >= first - stride && j <= last + stride
                 : j / stride >= first / stride && j / stride <= last / stride;
}

}  // namespace heed
