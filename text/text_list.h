#pragma once

#include <compare>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed {

/// A compact list of texts. Each takes 9 bytes besides its own (10 from 128 bytes on), where a
/// std::string takes 32 to 64. A text never changes or moves; copies of a list share the texts.
class TextList {
 public:
  class Iterator;

  TextList() = default;
  TextList(std::initializer_list<std::string_view> texts);
  TextList(const std::vector<std::string>& texts);
  TextList(const TextList& other) : blocks_(other.blocks_), texts_(other.texts_) {}
  // Making an empty deque allocates, so that a move may throw.
  TextList(TextList&& other) : TextList() { swap(other); }  // NOLINT(performance-noexcept-move-constructor)
  TextList& operator=(TextList other) noexcept {
    swap(other);
    return *this;
  }
  ~TextList() = default;

  void push_back(std::string_view text);
  void pop_back() { texts_.pop_back(); }
  std::size_t size() const { return texts_.size(); }
  bool empty() const { return texts_.empty(); }
  /// Returns a text, valid as long as the list or a copy of it.
  std::string_view operator[](std::size_t index) const;
  std::string_view front() const { return (*this)[0]; }
  std::string_view back() const { return (*this)[size() - 1]; }
  Iterator begin() const;
  Iterator end() const;
  /// Returns the texts at these indices; they are shared, not copied.
  TextList picked(std::span<const std::size_t> indices) const;
  std::vector<std::string> strings() const;

  friend bool operator==(const TextList& a, const TextList& b);

 private:
  void swap(TextList& other) noexcept;
  char* room_for(std::size_t bytes);

  std::vector<std::shared_ptr<char[]>> blocks_;
  std::deque<const char*> texts_;  // each starts with its length, seven bits per byte, lowest first
  // The free part of a block that no other list writes to.
  char* free_ = nullptr;
  std::size_t free_bytes_ = 0, next_block_ = 256;
};

class TextList::Iterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = std::string_view;
  using difference_type = std::ptrdiff_t;
  using pointer = const std::string_view*;
  using reference = std::string_view;

  Iterator() = default;
  Iterator(const TextList& list, std::size_t at) : list_(&list), at_(static_cast<difference_type>(at)) {}
  reference operator*() const { return (*list_)[static_cast<std::size_t>(at_)]; }
  reference operator[](difference_type n) const { return *(*this + n); }
  Iterator& operator+=(difference_type n) {
    at_ += n;
    return *this;
  }
  Iterator& operator-=(difference_type n) { return *this += -n; }
  Iterator& operator++() { return *this += 1; }
  Iterator& operator--() { return *this += -1; }
  Iterator operator++(int) { return std::exchange(*this, *this + 1); }
  Iterator operator--(int) { return std::exchange(*this, *this - 1); }
  friend Iterator operator+(Iterator a, difference_type n) { return a += n; }
  friend Iterator operator+(difference_type n, Iterator a) { return a += n; }
  friend Iterator operator-(Iterator a, difference_type n) { return a -= n; }
  friend difference_type operator-(const Iterator& a, const Iterator& b) { return a.at_ - b.at_; }
  friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }
  friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.at_ <=> b.at_; }

 private:
  const TextList* list_ = nullptr;
  difference_type at_ = 0;
};

inline TextList::Iterator TextList::begin() const {
  return {*this, 0};
}
inline TextList::Iterator TextList::end() const {
  return {*this, size()};
}

}  // namespace heed
