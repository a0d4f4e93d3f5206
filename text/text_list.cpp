#include "heed/text/text_list.h"

#include <algorithm>
#include <cstring>

namespace heed {

TextList::TextList(std::initializer_list<std::string_view> texts) {
  for (const std::string_view text : texts) push_back(text);
}

TextList::TextList(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) push_back(text);
}

void TextList::swap(TextList& other) noexcept {
  blocks_.swap(other.blocks_);
  texts_.swap(other.texts_);
  std::swap(free_, other.free_);
  std::swap(free_bytes_, other.free_bytes_);
  std::swap(next_block_, other.next_block_);
}

char* TextList::room_for(std::size_t bytes) {
  const bool has_own_block = bytes > free_bytes_ && bytes > next_block_ / 8;
  if (has_own_block) return blocks_.emplace_back(std::make_shared_for_overwrite<char[]>(bytes)).get();
  if (bytes > free_bytes_) {
    constexpr std::size_t largest_block = std::size_t{1} << 20;
    free_ = blocks_.emplace_back(std::make_shared_for_overwrite<char[]>(next_block_)).get();
    free_bytes_ = next_block_;
    next_block_ = std::min(2 * next_block_, largest_block);
  }
  free_bytes_ -= bytes;
  return std::exchange(free_, free_ + bytes);
}

void TextList::push_back(std::string_view text) {
  std::size_t length_bytes = 1;
  for (std::size_t rest = text.size() >> 7; rest > 0; rest >>= 7) ++length_bytes;
  char* const begin = room_for(length_bytes + text.size());
  char* at = begin;
  std::size_t rest = text.size();
  for (std::size_t i = 1; i < length_bytes; ++i, rest >>= 7) *at++ = static_cast<char>((rest & 0x7F) | 0x80);
  *at++ = static_cast<char>(rest);
  if (!text.empty()) std::memcpy(at, text.data(), text.size());
  texts_.push_back(begin);
}

std::string_view TextList::operator[](std::size_t index) const {
  const char* at = texts_[index];
  std::size_t length = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(*at++);
    length |= static_cast<std::size_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return {at, length};
  }
}

TextList TextList::picked(std::span<const std::size_t> indices) const {
  TextList result;
  result.blocks_ = blocks_;
  for (const std::size_t index : indices) result.texts_.push_back(texts_[index]);
  return result;
}

std::vector<std::string> TextList::strings() const {
  return std::vector<std::string>(begin(), end());
}

bool operator==(const TextList& a, const TextList& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace heed
