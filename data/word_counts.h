#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// Words (raw bytes) with the number of times that each occurs, in the order in which they came first.
class WordCounts {
 public:
  struct Word {
    std::string text;
    std::int64_t count = 0;
  };
  void add(std::string_view word);
  bool empty() const { return words_.empty(); }
  std::vector<Word>::const_iterator begin() const { return words_.begin(); }
  std::vector<Word>::const_iterator end() const { return words_.end(); }

 private:
  /// Where a word with this hash may be found: open addressing touches two places of memory for a word that is known,
  /// where std::unordered_map follows a list.
  struct Place {
    std::uint32_t hash = 0, number = 0;  // of the word from 1; 0: free
  };
  Place& free_place(std::uint32_t hash);
  void grow();

  std::vector<Word> words_;
  std::vector<Place> places_;  // a power of two, half of them free
};

}  // namespace heed
