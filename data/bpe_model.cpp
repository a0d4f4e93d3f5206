#include "heed/data/bpe_model.h"

#include <bit>
#include <limits>
#include <queue>
#include <tuple>

#include "heed/core/checked.h"
#include "heed/core/error.h"
#include "heed/core/unicode.h"

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

/// One symbol of a word under way: a doubly linked list inside a vector, so that a merge costs O(1).
struct Symbol {
  std::int32_t id;
  int previous, next;
};

/// A possible merge of the symbol at `position` with its successor.
struct Candidate {
  std::int32_t rank, result;
  int position;
  /// priority_queue keeps the largest on top: the lowest rank wins, then the leftmost.
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

BpeModel::BpeModel(std::vector<std::string> tokens, std::vector<Pair> merges, BpeOptions options)
    : TokenVocabulary(std::move(tokens)), merges_(std::move(merges)), options_(std::move(options)) {
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

void BpeModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto whole = find(spell_bytes(word))) {
      ids.push_back(*whole);
      return;
    }
  }
  checked_range("the bytes of a word", static_cast<std::int64_t>(word.size()), 0,
                std::numeric_limits<int>::max());
  const std::vector<std::int32_t> start = initial_symbols(word);
  const int count = static_cast<int>(start.size());
  std::vector<Symbol> symbols;
  symbols.reserve(start.size());
  for (int i = 0; i < count; ++i)
    symbols.push_back({start[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  const auto at = [&](int position) -> Symbol& { return symbols[static_cast<std::size_t>(position)]; };

  std::vector<Candidate> room;
  room.reserve(start.size());
  std::priority_queue<Candidate> queue({}, std::move(room));
  const auto propose = [&](int position) {
    if (position < 0 || at(position).next < 0) return;
    if (const Merge* merge = find_merge(at(position).id, at(at(position).next).id))
      queue.push({merge->rank, merge->result, position});
  };
  for (int i = 0; i < count; ++i) propose(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.position);
    if (left.id < 0 || left.next < 0) continue;  // merged away since it was proposed
    Symbol& right = at(left.next);
    if (Pair{left.id, right.id} != merges_[static_cast<std::size_t>(best.rank)])
      continue;  // its neighbour has changed since
    left.id = best.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) at(left.next).previous = best.position;
    propose(left.previous);
    propose(best.position);
  }
  for (int i = count > 0 ? 0 : -1; i >= 0; i = at(i).next) ids.push_back(at(i).id);
}

}  // namespace heed
