#include "heed/text/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>

#include "heed/base/error.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

constexpr int largest_symbol = 0x143;  // 0x100 plus the 68 bytes that are not printable, less one

bool spells_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<char32_t, 256> symbols{};
  std::array<int, largest_symbol + 1> bytes{};
};

Tables make_tables() {
  Tables tables;
  tables.bytes.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t symbol = spells_itself(byte) ? static_cast<char32_t>(byte) : next++;
    tables.symbols[static_cast<std::size_t>(byte)] = symbol;
    tables.bytes[symbol] = byte;
  }
  return tables;
}

const Tables& tables() {
  static const Tables tables = make_tables();
  return tables;
}

/// One symbol of a word being encoded, in a doubly linked list inside a vector, so that a merge costs O(1).
struct Symbol {
  std::int32_t id;
  int previous, next;
};

/// A possible merge of the symbol at `position` with its successor.
struct Candidate {
  std::int32_t rank, result;
  int position;
  /// Orders candidates for a heap with the largest in front: the lowest rank wins, then the
  /// leftmost.
  bool operator<(const Candidate& other) const {
    return std::tie(rank, position) > std::tie(other.rank, other.position);
  }
};

}  // namespace

// --- the byte alphabet -------------------------------------------------------------------------------------

char32_t byte_symbol(unsigned char byte) {
  return tables().symbols[byte];
}

std::optional<unsigned char> symbol_byte(char32_t symbol) {
  if (symbol > largest_symbol || tables().bytes[symbol] < 0) return std::nullopt;
  return static_cast<unsigned char>(tables().bytes[symbol]);
}

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) unicode::append(spelling, byte_symbol(static_cast<unsigned char>(byte)));
  return spelling;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const unicode::CodePoint c = unicode::decode(spelling, at);
    const auto byte = c.valid ? symbol_byte(c.value) : std::nullopt;
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += static_cast<std::size_t>(c.length);
  }
  return bytes;
}

// --- the model ---------------------------------------------------------------------------------------------

BpeModel::BpeModel(TokenVocabulary vocabulary, std::vector<Pair> merges, BpeOptions options)
    : TokenVocabulary(std::move(vocabulary)), merges_(std::move(merges)), options_(std::move(options)) {
  const auto count = static_cast<std::int32_t>(this->tokens().size());
  merge_places_.resize(std::bit_ceil(2 * merges_.size() + 1));
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[static_cast<std::size_t>(byte)] = find(spell_bytes({&text, 1})).value_or(-1);
  }
  for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
    const auto [left, right] = merges_[rank];
    check(left >= 0 && left < count && right >= 0 && right < count, "merge ", rank, " joins tokens ", left,
          " and ", right, ", but ids go from 0 to ", count - 1);
    const std::string joined =
        this->tokens()[static_cast<std::size_t>(left)] + this->tokens()[static_cast<std::size_t>(right)];
    const auto result = find(joined);
    check(result.has_value(), "merge ", rank, " gives \"", joined, "\", which is not in the vocabulary");
    merge_places_[place_of(merges_[rank])] = {merges_[rank], {static_cast<std::int32_t>(rank), *result}};
  }
  if (options_.unk_token) unknown_ = id_of(*options_.unk_token, "unk_token");
}

std::size_t BpeModel::place_of(const Pair& pair) const {
  const std::size_t last = merge_places_.size() - 1;
  std::size_t at = SymbolPairHash{}(pair)&last;
  while (merge_places_[at].pair != pair && merge_places_[at].pair.first >= 0) at = (at + 1) & last;
  return at;
}

const BpeModel::Merge* BpeModel::find_merge(std::int32_t left, std::int32_t right) const {
  const MergePlace& place = merge_places_[place_of({left, right})];
  return place.pair.first < 0 ? nullptr : &place.merge;
}

std::vector<std::int32_t> BpeModel::initial_symbols(std::string_view word) const {
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  bool after_unknown = false;
  for (const char byte : word) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id >= 0)
      symbols.push_back(id);
    else if (unknown_ >= 0 && !(after_unknown && options_.fuse_unk))
      symbols.push_back(unknown_);
    after_unknown = id < 0;
  }
  return symbols;
}

/// Returns the initial symbols over characters. As in Hugging Face's tokenizers, an unknown
/// character comes after the bytes of those that follow it.
std::vector<std::int32_t> BpeModel::initial_characters(std::string_view word) const {
  std::vector<std::int32_t> symbols;
  bool has_unknown = false;  // which is not among the symbols yet
  const auto put_unknown = [&] {
    if (has_unknown) symbols.push_back(unknown_);
    has_unknown = false;
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view character =
        word.substr(at, static_cast<std::size_t>(unicode::decode(word, at).length));
    at += character.size();
    if (const auto id = find(character)) {
      put_unknown();
      symbols.push_back(*id);
      continue;
    }
    std::vector<std::int32_t> bytes;
    for (std::size_t i = 0; options_.byte_fallback && i < character.size(); ++i)
      if (const auto id = find(byte_token(character[i]))) bytes.push_back(*id);
    if (bytes.size() == character.size()) {
      symbols.insert(symbols.end(), bytes.begin(), bytes.end());
      continue;
    }
    if (!options_.fuse_unk) put_unknown();
    has_unknown = unknown_ >= 0;
  }
  put_unknown();
  return symbols;
}

void BpeModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto whole = find(options_.of_characters ? std::string(word) : spell_bytes(word))) {
      ids.push_back(*whole);
      return;
    }
  }
  checked_range("the bytes of a word", static_cast<std::int64_t>(word.size()), 0,
                std::numeric_limits<int>::max());
  const std::vector<std::int32_t> start =
      options_.of_characters ? initial_characters(word) : initial_symbols(word);
  const int count = static_cast<int>(start.size());
  std::vector<Symbol> symbols;
  symbols.reserve(start.size());
  for (int i = 0; i < count; ++i)
    symbols.push_back({start[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  const auto at = [&](int position) -> Symbol& { return symbols[static_cast<std::size_t>(position)]; };

  std::vector<Candidate> queue;  // a heap, the best in front
  queue.reserve(start.size());
  const auto propose = [&](int position) {
    if (position < 0 || at(position).next < 0) return;
    if (const Merge* merge = find_merge(at(position).id, at(at(position).next).id)) {
      queue.push_back({merge->rank, merge->result, position});
      std::push_heap(queue.begin(), queue.end());
    }
  };
  for (int i = 0; i < count; ++i) propose(i);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end());
    const Candidate best = queue.back();
    queue.pop_back();
    Symbol& left = at(best.position);
    if (left.id < 0 || left.next < 0) continue;  // merged away since it was proposed
    Symbol& right = at(left.next);
    if (Pair{left.id, right.id} != merges_[static_cast<std::size_t>(best.rank)])
      continue;  // a neighbour has changed since
    left.id = best.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) at(left.next).previous = best.position;
    propose(left.previous);
    propose(best.position);
  }
  for (int i = count > 0 ? 0 : -1; i >= 0; i = at(i).next) ids.push_back(at(i).id);
}

// --- pairs by frequency ------------------------------------------------------------------------------------

namespace {

using Pair = BpeModel::Pair;

/// The symbols of a word, a range of symbols_.
struct SymbolRun {
  std::size_t begin, size;
  std::int64_t count;
};

/// The statistics of a neighbouring pair. `words` may list a word twice, or one that no longer has the
/// pair.
struct PairUse {
  std::int64_t count = 0;
  std::vector<std::int32_t> words;
};

/// A pair with a past count. Counts in the heap may be too high, never too low.
struct PairCount {
  std::int64_t count;
  Pair pair;
  bool operator<(const PairCount& other) const {
    return std::tie(count, other.pair) < std::tie(other.count, pair);
  }
};

class Trainer {
 public:
  Trainer(const WordCounts& counts, const BpeTraining& options) : options_(options) {
    add_first_tokens();
    add_words(counts);
  }

  BpeModel run() {
    for (const auto& [pair, use] : pairs_) heap_.push({use.count, pair});
    while (static_cast<std::int64_t>(tokens_.size()) < options_.vocabulary_size && !heap_.empty()) {
      const PairCount top = heap_.top();
      heap_.pop();
      const std::int64_t count = pairs_[top.pair].count;
      if (count < std::max<std::int64_t>(options_.min_frequency, 1)) continue;
      if (count != top.count)
        heap_.push({count, top.pair});  // it has become rarer: reinsert it
      else
        merge(top.pair);
    }
    return {std::move(tokens_), std::move(merges_), {}};
  }

 private:
  std::int32_t add_token(const std::string& token) {
    const auto [place, added] = ids_.emplace(token, static_cast<std::int32_t>(tokens_.size()));
    if (added) tokens_.push_back(token);
    return place->second;
  }

  void add_first_tokens() {
    for (const std::string& token : options_.special_tokens) {
      check(!token.empty(), "a special token is empty");
      check(!ids_.contains(token), "special token \"", token, "\" is given twice");
      add_token(token);
    }
    std::array<char32_t, 256> symbols;
    for (int byte = 0; byte < 256; ++byte)
      symbols[static_cast<std::size_t>(byte)] = byte_symbol(static_cast<unsigned char>(byte));
    std::sort(symbols.begin(), symbols.end());  // alphabet order, as other trainers number them
    for (const char32_t symbol : symbols) {
      const char byte = static_cast<char>(*symbol_byte(symbol));
      byte_ids_[static_cast<unsigned char>(byte)] = add_token(spell_bytes({&byte, 1}));
    }
    check(static_cast<std::int64_t>(tokens_.size()) <= options_.vocabulary_size, "a vocabulary of ",
          options_.vocabulary_size, " is too small: the special tokens and the 256 bytes alone are ",
          tokens_.size());
  }

  void add_words(const WordCounts& counts) {
    for (const auto& [text, count] : counts) {
      const auto index = static_cast<std::int32_t>(words_.size());
      const std::size_t begin = symbols_.size();
      for (const char byte : text) {
        symbols_.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
        if (const std::size_t last = symbols_.size() - 1; last > begin)
          count_pair({symbols_[last - 1], symbols_[last]}, count, index);
      }
      words_.push_back({begin, text.size(), count});
    }
  }

  void count_pair(const Pair& pair, std::int64_t count, std::int32_t word) {
    PairUse& use = pairs_[pair];
    use.count += count;
    if (count > 0 && (use.words.empty() || use.words.back() != word)) use.words.push_back(word);
  }

  void merge(const Pair& pair) {
    const auto left = static_cast<std::size_t>(pair.first), right = static_cast<std::size_t>(pair.second);
    const std::int32_t token = add_token(tokens_[left] + tokens_[right]);
    // A pair can reappear after its merge, when another merge recreates one half of it; one rank is enough.
    if (merged_.emplace(pair, token).second) merges_.push_back(pair);
    const std::vector<std::int32_t> words = std::move(pairs_[pair].words);
    grown_.clear();
    for (const std::int32_t word : words) merge_in_word(pair, token, word);
    pairs_[pair] = {};
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair& next : grown_)
      if (next != pair && pairs_[next].count > 0) heap_.push({pairs_[next].count, next});
  }

  void merge_in_word(const Pair& pair, std::int32_t token, std::int32_t index) {
    SymbolRun& word = words_[static_cast<std::size_t>(index)];
    const std::span symbols(symbols_.data() + word.begin, word.size);
    std::size_t out = 0;
    for (std::size_t in = 0; in < symbols.size(); ++in) {
      if (in + 1 == symbols.size() || symbols[in] != pair.first || symbols[in + 1] != pair.second) {
        symbols[out++] = symbols[in];
        continue;
      }
      if (out > 0) {
        count_pair({symbols[out - 1], pair.first}, -word.count, index);
        grow({symbols[out - 1], token}, word.count, index);
      }
      if (in + 2 < symbols.size()) {
        count_pair({pair.second, symbols[in + 2]}, -word.count, index);
        grow({token, symbols[in + 2]}, word.count, index);
      }
      symbols[out++] = token;
      ++in;
    }
    word.size = out;
  }

  void grow(const Pair& pair, std::int64_t count, std::int32_t word) {
    count_pair(pair, count, word);
    grown_.push_back(pair);
  }

  BpeTraining options_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::int32_t> symbols_;  // of all words, concatenated
  std::vector<SymbolRun> words_;
  std::unordered_map<Pair, PairUse, SymbolPairHash> pairs_;
  std::unordered_map<Pair, std::int32_t, SymbolPairHash> merged_;
  std::vector<Pair> merges_;
  std::vector<Pair> grown_;  // pairs that the current merge has made more frequent
  std::priority_queue<PairCount> heap_;
};

}  // namespace

BpeModel train_bpe(const WordCounts& words, const BpeTraining& options) {
  return Trainer(words, options).run();
}

// --- single characters -------------------------------------------------------------------------------------

namespace {

std::set<char32_t> collect_characters(std::span<const std::string> texts) {
  std::set<char32_t> characters;
  for (const std::string& text : texts) {
    for (std::size_t at = 0; at < text.size();) {
      const unicode::CodePoint c = unicode::decode(text, at);
      check(c.valid, "the text of a character tokenizer is not UTF-8 at byte ", at + 1);
      characters.insert(c.value);
      at += static_cast<std::size_t>(c.length);
    }
  }
  return characters;
}

/// Assigns ids in order of first occurrence.
class Vocabulary {
 public:
  std::int32_t add(const std::string& token) {
    const auto [place, added] = ids_.emplace(token, static_cast<std::int32_t>(tokens.size()));
    if (added) tokens.push_back(token);
    is_new = added;
    return place->second;
  }

  std::vector<std::string> tokens;
  bool is_new = false;  // whether the last add() was new

 private:
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace

BpeModel character_vocabulary(std::span<const std::string> texts,
                              const std::vector<std::string>& special_tokens) {
  const std::set<char32_t> characters = collect_characters(texts);
  check(!characters.empty(), "there is no text to take characters from: ", texts.size(), " texts, all empty");
  Vocabulary vocabulary;
  for (const std::string& token : special_tokens) {
    vocabulary.add(token);
    check(!token.empty() && vocabulary.is_new, "special token \"", token, "\" is empty or given twice");
  }
  std::vector<std::string> spelled;  // UTF-8
  std::set<unsigned char> bytes;
  for (const char32_t character : characters) {
    std::string text;
    unicode::append(text, character);
    for (const char byte : text) bytes.insert(static_cast<unsigned char>(byte));
    spelled.push_back(std::move(text));
  }
  const auto id_of = [&](std::string_view text) { return vocabulary.add(spell_bytes(text)); };
  for (const unsigned char byte : bytes) {
    const char text = static_cast<char>(byte);
    id_of({&text, 1});
    check(vocabulary.is_new, "the character '", text, "' is a special token too");
  }
  // A merge starts with the first byte of a character and ends within it, so none spans two characters.
  std::vector<BpeModel::Pair> merges;
  for (const std::string& text : spelled) {
    std::int32_t begun = id_of(std::string_view(text).substr(0, 1));
    for (std::size_t length = 2; length <= text.size(); ++length) {
      const std::int32_t joined = id_of(std::string_view(text).substr(0, length));
      if (vocabulary.is_new) merges.emplace_back(begun, id_of(std::string_view(text).substr(length - 1, 1)));
      begun = joined;
    }
  }
  BpeOptions options;
  if (std::find(special_tokens.begin(), special_tokens.end(), "<unk>") != special_tokens.end())
    options = {.unk_token = "<unk>", .fuse_unk = true};
  return {std::move(vocabulary.tokens), std::move(merges), options};
}

}  // namespace heed
