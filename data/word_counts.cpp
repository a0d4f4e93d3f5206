#include "heed/data/word_counts.h"

#include <functional>
#include <limits>
#include <utility>

#include "heed/core/error.h"

namespace heed {

WordCounts::Place& WordCounts::free_place(std::uint32_t hash) {
  const std::size_t last = places_.size() - 1;
  for (std::size_t at = hash & last;; at = (at + 1) & last)
    if (places_[at].number == 0) return places_[at];
}

void WordCounts::grow() {
  const std::vector<Place> old = std::exchange(places_, std::vector<Place>(places_.size() * 2));
  for (const Place& place : old)
    if (place.number != 0) free_place(place.hash) = place;
}

void WordCounts::add(std::string_view word) {
  if (places_.empty()) places_.resize(1024);
  const auto hash = static_cast<std::uint32_t>(std::hash<std::string_view>{}(word));
  const std::size_t last = places_.size() - 1;
  for (std::size_t at = hash & last; places_[at].number != 0; at = (at + 1) & last) {
    if (places_[at].hash != hash) continue;
    Word& known = words_[places_[at].number - 1];
    if (known.text != word) continue;
    ++known.count;
    return;
  }
  check(words_.size() < std::numeric_limits<std::int32_t>::max(), "the text has more than ", words_.size(),
        " different words; learn from less of it");
  words_.push_back({std::string(word), 1});
  free_place(hash) = {hash, static_cast<std::uint32_t>(words_.size())};
  if (2 * words_.size() > places_.size()) grow();
}

}  // namespace heed
