#include "heed/text/token_models.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_set>
#include <utility>

#include "heed/base/error.h"
#include "heed/base/unicode.h"

namespace heed {

TokenVocabulary::TokenVocabulary(std::vector<std::string> tokens, const std::vector<bool>& holes)
    : tokens_(std::move(tokens)) {
  ids_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (!holes.empty() && holes[i]) continue;
    const auto id = static_cast<std::int32_t>(i);
    const auto [place, added] = ids_.emplace(tokens_[i], id);
    check(added, "token \"", tokens_[i], "\" has two ids: ", place->second, " and ", id);
  }
}

std::optional<std::int32_t> TokenVocabulary::find(std::string_view spelling) const {
  const auto place = ids_.find(spelling);
  if (place == ids_.end()) return std::nullopt;
  return place->second;
}

std::int32_t TokenVocabulary::id_of(std::string_view spelling, std::string_view what) const {
  const auto id = find(spelling);
  check(id.has_value(), what, " \"", spelling, "\" is not in the vocabulary");
  return *id;
}

StringTree::StringTree(const std::vector<std::string_view>& strings) : beginnings_(strings.size(), -1) {
  struct Path {
    std::int32_t string, node;
  };
  std::vector<Path> paths;
  for (const std::string_view string : strings) {
    if (!string.empty()) paths.push_back({static_cast<std::int32_t>(lengths_.size()), 0});
    lengths_.push_back(string.size());
    longest_ = std::max(longest_, string.size());
  }
  // Builds the tree level by level: the links of a node lead to levels above, which are complete by then.
  for (std::size_t depth = 1; !paths.empty(); ++depth) {
    for (Path& path : paths) {
      const std::string_view text = strings[static_cast<std::size_t>(path.string)];
      path.node = child_or_new(path.node, static_cast<unsigned char>(text[text.size() - depth]));
      if (text.size() > depth) continue;
      Node& node = nodes_[static_cast<std::size_t>(path.node)];
      if (node.found >= 0 && length(node.found) == depth) continue;  // an equal string
      beginnings_[static_cast<std::size_t>(path.string)] = node.found;
      node.found = path.string;
    }
    std::erase_if(paths, [&](const Path& path) { return length(path.string) == depth; });
  }
}

std::int32_t StringTree::child(std::int32_t node, unsigned char byte) const {
  const auto place = children_.find(std::uint64_t{256} * static_cast<std::uint64_t>(node) + byte);
  return place == children_.end() ? -1 : place->second;
}

std::int32_t StringTree::step(std::int32_t node, unsigned char byte) const {
  for (; node != 0; node = nodes_[static_cast<std::size_t>(node)].shorter)
    if (const std::int32_t next = child(node, byte); next >= 0) return next;
  return ends_[byte];
}

std::int32_t StringTree::child_or_new(std::int32_t node, unsigned char byte) {
  const std::int32_t known = child(node, byte);
  if (known >= 0) return known;
  const std::int32_t shorter = node == 0 ? 0 : step(nodes_[static_cast<std::size_t>(node)].shorter, byte);
  const auto made = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back({shorter, nodes_[static_cast<std::size_t>(shorter)].found});
  if (node == 0) ends_[byte] = made;
  children_.emplace(std::uint64_t{256} * static_cast<std::uint64_t>(node) + byte, made);
  return made;
}

void StringTree::longest(std::string_view text, std::size_t begin, std::size_t end,
                         std::vector<std::int32_t>& found) const {
  found.resize(end - begin);
  std::int32_t node = 0;
  for (std::size_t at = std::min(text.size(), end + longest_); at > begin; --at) {
    node = step(node, static_cast<unsigned char>(text[at - 1]));
    if (at - 1 < end) found[at - 1 - begin] = nodes_[static_cast<std::size_t>(node)].found;
  }
}

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

void WordCounts::add(std::string_view word, std::int64_t count) {
  if (places_.empty()) places_.resize(1024);
  const auto hash = static_cast<std::uint32_t>(std::hash<std::string_view>{}(word));
  const std::size_t last = places_.size() - 1;
  for (std::size_t at = hash & last; places_[at].number != 0; at = (at + 1) & last) {
    if (places_[at].hash != hash) continue;
    Word& known = words_[places_[at].number - 1];
    if (known.text != word) continue;
    known.count += count;
    return;
  }
  check(words_.size() < std::numeric_limits<std::int32_t>::max(), "the text has more than ", words_.size(),
        " different words; learn from less of it");
  words_.push_back({std::string(word), count});
  free_place(hash) = {hash, static_cast<std::uint32_t>(words_.size())};
  if (2 * words_.size() > places_.size()) grow();
}

WordModel::WordModel(TokenVocabulary vocabulary, const std::string& unknown)
    : TokenVocabulary(std::move(vocabulary)), unknown_(id_of(unknown, "unk_token")) {}

void WordModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  ids.push_back(find(word).value_or(unknown_));
}

WordModel frequent_words(const WordCounts& words, const WordTraining& options) {
  std::vector<std::string> tokens = options.first_tokens;
  check(static_cast<std::int64_t>(tokens.size()) < options.vocabulary_size, "a vocabulary of ",
        options.vocabulary_size, " is too small: the special tokens alone are ", tokens.size());
  const std::unordered_set<std::string> first(tokens.begin(), tokens.end());
  std::vector<std::pair<std::int64_t, std::string>> ranked;  // first the most frequent
  for (const auto& [word, count] : words)
    if (count >= options.min_frequency && !first.contains(word)) ranked.emplace_back(-count, word);
  std::sort(ranked.begin(), ranked.end());
  for (auto& [count, word] : ranked) {
    if (static_cast<std::int64_t>(tokens.size()) == options.vocabulary_size) break;
    tokens.push_back(std::move(word));
  }
  return {std::move(tokens), options.unknown};
}

WordPieceModel::WordPieceModel(TokenVocabulary vocabulary, WordPieceOptions options)
    : TokenVocabulary(std::move(vocabulary)),
      options_(std::move(options)),
      unknown_(id_of(options_.unk_token, "unk_token")),
      first_({this->tokens().begin(), this->tokens().end()}) {
  std::vector<std::string_view> next;
  for (std::size_t id = 0; id < this->tokens().size(); ++id) {
    const std::string_view token = this->tokens()[id];
    if (!token.starts_with(options_.continuing_subword_prefix)) continue;
    next.push_back(token.substr(options_.continuing_subword_prefix.size()));
    next_ids_.push_back(static_cast<std::int32_t>(id));
  }
  next_ = StringTree(next);
}

void WordPieceModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::int64_t characters = 0;
  for (std::size_t at = 0; at < word.size(); ++characters)
    at += static_cast<std::size_t>(unicode::decode(word, at).length);
  const std::size_t start = ids.size();
  bool known = characters <= options_.max_input_chars_per_word;
  std::vector<std::int32_t> first, next;
  if (known && !word.empty()) {
    first_.longest(word, 0, 1, first);
    next_.longest(word, 0, word.size(), next);
  }
  for (std::size_t at = 0; known && at < word.size();) {
    const std::int32_t piece = at == 0 ? first[0] : next[at];
    known = piece >= 0;
    if (!known) break;
    ids.push_back(at == 0 ? piece : next_ids_[static_cast<std::size_t>(piece)]);
    at += (at == 0 ? first_ : next_).length(piece);
  }
  if (known) return;
  ids.resize(start);
  ids.push_back(unknown_);
}

namespace {

/// A step of the best path to a position in the word: its last token, and where that token begins.
struct Step {
  double score = 0;
  std::int32_t token = -1;  // -1: an unknown character
  std::size_t begin = 0;
  bool reached = false;
};

}  // namespace

std::string byte_token(char byte) {
  constexpr std::string_view hex = "0123456789ABCDEF";
  const auto number = static_cast<unsigned char>(byte);
  return {'<', '0', 'x', hex[number >> 4], hex[number & 15], '>'};
}

UnigramModel::UnigramModel(std::vector<std::string> tokens, std::vector<double> scores,
                           UnigramOptions options)
    : TokenVocabulary(std::move(tokens)),
      scores_(std::move(scores)),
      options_(options),
      tree_({this->tokens().begin(), this->tokens().end()}) {
  check(!scores_.empty() && scores_.size() == this->tokens().size(), "the vocabulary has ",
        this->tokens().size(), " tokens and ", scores_.size(),
        " scores; there must be one for each, and one at the least");
  for (std::size_t id = 0; id < scores_.size(); ++id)
    check(std::isfinite(scores_[id]), "the score of token ", id, " is ", scores_[id]);
  const auto count = static_cast<std::int64_t>(scores_.size());
  check(!options_.unk_id || (*options_.unk_id >= 0 && *options_.unk_id < count), "unk_id is ",
        options_.unk_id.value_or(0), ", but ids go from 0 to ", count - 1);
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - unknown_penalty;
}

void UnigramModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::vector<std::int32_t> longest;
  tree_.longest(word, 0, word.size(), longest);
  std::vector<Step> best(word.size() + 1);
  const auto reach = [&](std::size_t begin, std::size_t end, double score, std::int32_t token) {
    const double total = score + best[begin].score;
    if (!best[end].reached || total > best[end].score) best[end] = {total, token, begin, true};
  };
  for (std::size_t at = 0; at < word.size();) {
    const auto length = static_cast<std::size_t>(unicode::decode(word, at).length);
    bool has_character = false;
    for (std::int32_t token = longest[at]; token >= 0; token = tree_.longest_beginning(token)) {
      reach(at, at + tree_.length(token), scores_[static_cast<std::size_t>(token)], token);
      has_character = has_character || tree_.length(token) == length;
    }
    if (!has_character) {
      check(options_.unk_id.has_value(), "\"", word.substr(at, length),
            "\" is in no token, and the tokenizer has no unknown token (unk_id)");
      reach(at, at + length, unknown_score_, *options_.unk_id);
    }
    at += length;
  }
  std::vector<std::string_view> pieces;  // in reverse order; adjacent unknown pieces are joined
  bool after_unknown = false;
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    const Step& step = best[end];
    const bool unknown = options_.unk_id && step.token == *options_.unk_id;
    const std::size_t until =
        unknown && after_unknown
            ? static_cast<std::size_t>(pieces.back().data() - word.data()) + pieces.back().size()
            : end;
    if (unknown && after_unknown) pieces.pop_back();
    pieces.push_back(word.substr(step.begin, until - step.begin));
    after_unknown = unknown;
  }
  std::reverse(pieces.begin(), pieces.end());
  for (const std::string_view piece : pieces) append_piece(piece, ids);
}

void UnigramModel::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (const auto id = find(piece)) return ids.push_back(*id);
  std::vector<std::int32_t> bytes;
  for (std::size_t i = 0; options_.byte_fallback && i < piece.size(); ++i)
    if (const auto id = find(byte_token(piece[i]))) bytes.push_back(*id);
  if (options_.byte_fallback && bytes.size() == piece.size())
    ids.insert(ids.end(), bytes.begin(), bytes.end());
  else
    ids.push_back(options_.unk_id.value_or(0));  // encode_word has checked that it exists
}

}  // namespace heed
