#include "heed/data/added_tokens.h"

#include <algorithm>

#include "heed/core/unicode.h"

namespace heed {
namespace {

/// Start of the character that ends just before byte `at`, which must not be 0.
std::size_t previous_character(std::string_view text, std::size_t at) {
  std::size_t start = at - 1;
  while (start > 0 && at - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  const unicode::CodePoint c = unicode::decode(text, start);
  return c.valid && start + static_cast<std::size_t>(c.length) == at ? start : at - 1;
}

bool word_at(std::string_view text, std::size_t at) {
  const unicode::CodePoint c = unicode::decode(text, at);
  return c.valid && unicode::is_word(c.value);
}

bool space_at(std::string_view text, std::size_t at) {
  const unicode::CodePoint c = unicode::decode(text, at);
  return c.valid && unicode::is_space(c.value);
}

bool touches_word(std::string_view text, std::size_t start, std::size_t stop) {
  return (start > 0 && word_at(text, previous_character(text, start))) ||
         (stop < text.size() && word_at(text, stop));
}

std::size_t skip_spaces_left(std::string_view text, std::size_t at, std::size_t limit) {
  while (at > limit && space_at(text, previous_character(text, at))) at = previous_character(text, at);
  return std::max(at, limit);
}

std::size_t skip_spaces_right(std::string_view text, std::size_t at) {
  while (at < text.size() && space_at(text, at))
    at += static_cast<std::size_t>(unicode::decode(text, at).length);
  return at;
}

}  // namespace

void TokenMatcher::add(AddedToken token, std::string pattern) {
  if (pattern.empty()) return;  // normalised away: it can never be found
  auto& row = patterns_by_first_byte_[static_cast<unsigned char>(pattern.front())];
  const auto place =
      std::find_if(row.begin(), row.end(), [&](const Pattern& p) { return p.text.size() < pattern.size(); });
  row.insert(place, {std::move(pattern), std::move(token)});
  empty_ = false;
}

const TokenMatcher::Pattern* TokenMatcher::longest_at(std::string_view text, std::size_t at) const {
  for (const Pattern& pattern : patterns_by_first_byte_[static_cast<unsigned char>(text[at])])
    if (text.substr(at).starts_with(pattern.text)) return &pattern;
  return nullptr;
}

std::vector<Segment> TokenMatcher::split(std::string_view text) const {
  std::vector<Segment> segments;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size() && !empty_;) {
    const Pattern* found = longest_at(text, at);
    if (found == nullptr) {
      ++at;
      continue;
    }
    std::size_t start = at, stop = at + found->text.size();
    at = stop;
    if (found->token.single_word && touches_word(text, start, stop)) continue;
    if (found->token.lstrip) start = skip_spaces_left(text, start, done);
    if (found->token.rstrip) stop = skip_spaces_right(text, stop);
    if (start > done) segments.push_back({text.substr(done, start - done), std::nullopt});
    segments.push_back({text.substr(start, stop - start), found->token.id});
    at = done = stop;
  }
  if (done < text.size()) segments.push_back({text.substr(done), std::nullopt});
  return segments;
}

}  // namespace heed
