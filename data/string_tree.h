#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed {

/// A set of strings, found in a text: which of them begin at each place. Time is linear in the strings, and then in
/// each text: the strings are a tree read from their ends (Aho and Corasick, "Efficient string matching", 1975), so
/// that a pass over the text from its end tells for every place what begins there.
class StringTree {
 public:
  /// Empty strings are never found; of two that are alike the first counts.
  explicit StringTree(const std::vector<std::string_view>& strings = {});

  /// For each byte of text[begin, end) the longest string that begins there, by its number, or -1. The string may reach
  /// beyond `end`.
  void longest(std::string_view text, std::size_t begin, std::size_t end,
               std::vector<std::int32_t>& found) const;
  /// The longest string that is a proper beginning of this one, or -1: with longest(), all that begin at a place.
  std::int32_t longest_beginning(std::int32_t string) const {
    return beginnings_[static_cast<std::size_t>(string)];
  }
  std::size_t length(std::int32_t string) const { return lengths_[static_cast<std::size_t>(string)]; }
  std::size_t longest_length() const { return longest_; }

 private:
  /// The end of a string, of which it is the node's path from the root, read backwards.
  struct Node {
    std::int32_t shorter = 0;  // the node of the longest beginning of this one that ends a string, too
    std::int32_t found = -1;   // the longest string that is a beginning of this one
  };
  std::int32_t child(std::int32_t node, unsigned char byte) const;  // -1: there is none
  std::int32_t child_or_new(std::int32_t node, unsigned char byte);
  std::int32_t step(std::int32_t node, unsigned char byte) const;

  std::vector<std::size_t> lengths_;
  std::vector<std::int32_t> beginnings_;
  std::vector<Node> nodes_ = {Node{}};
  std::array<std::int32_t, 256> ends_{};  // the root's child for each byte that ends a string, else the root
  std::unordered_map<std::uint64_t, std::int32_t> children_;  // of 256 * node + byte
  std::size_t longest_ = 0;
};

}  // namespace heed
