#include "heed/text/tokenizer_parts.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/unicode.h"

namespace heed {

// --- tokens that stand in the text -------------------------------------------------------------------------

namespace {

/// Returns the start of the character that ends just before byte `at`, which must not be 0.
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

TokenMatcher::TokenMatcher(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {
  // A token that is normalised away can never be found.
  std::erase_if(patterns_, [](const Pattern& pattern) { return pattern.text.empty(); });
  std::vector<std::string_view> texts;
  for (const Pattern& pattern : patterns_) {
    texts.push_back(pattern.text);
    begins_pattern_[static_cast<unsigned char>(pattern.text.front())] = true;
  }
  tree_ = StringTree(texts);
}

std::vector<Segment> TokenMatcher::split(std::string_view text) const {
  std::vector<Segment> segments;
  const bool may_have_some = std::any_of(
      text.begin(), text.end(), [&](char c) { return begins_pattern_[static_cast<unsigned char>(c)]; });
  const std::size_t block = std::max<std::size_t>(tree_.longest_length(), 1 << 16);
  std::vector<std::int32_t> found;  // the pattern that begins at each byte of a block, or -1
  std::size_t done = 0, begin = 0, end = 0;
  for (std::size_t at = 0; at < text.size() && may_have_some;) {
    if (at >= end) {
      begin = at;
      end = std::min(text.size(), begin + block);
      tree_.longest(text, begin, end, found);
    }
    if (found[at - begin] < 0) {
      ++at;
      continue;
    }
    const auto& [pattern, token] = patterns_[static_cast<std::size_t>(found[at - begin])];
    std::size_t start = at, stop = at + pattern.size();
    at = stop;
    if (token.single_word && touches_word(text, start, stop)) continue;
    if (token.lstrip) start = std::min(skip_spaces_left(text, start, done), stop);
    if (token.rstrip) stop = skip_spaces_right(text, stop);
    if (start > done) segments.push_back({text.substr(done, start - done), std::nullopt});
    segments.push_back({text.substr(start, stop - start), token.id});
    done = stop;  // the search goes on at `at`: another token may begin with the space taken here
  }
  if (done < text.size()) segments.push_back({text.substr(done), std::nullopt});
  return segments;
}

// --- words -------------------------------------------------------------------------------------------------

namespace {

enum class Kind : unsigned char { end, space, letter, number, other };

struct Character {
  Kind kind = Kind::end;
  std::size_t length = 0;
  char32_t value = 0;  ///< 0 for ASCII and for ill-formed bytes
};

Kind kind_of(char32_t value) {
  if (unicode::is_space(value)) return Kind::space;
  if (unicode::is_letter(value)) return Kind::letter;
  return unicode::is_number(value) ? Kind::number : Kind::other;
}

/// The kinds of ASCII characters, which make up most texts.
constexpr std::array<Kind, 128> ascii_kinds = [] {
  std::array<Kind, 128> kinds{};
  for (std::size_t value = 0; value < kinds.size(); ++value) {
    const auto within = [&](char first, char last) {
      return value >= static_cast<std::size_t>(first) && value <= static_cast<std::size_t>(last);
    };
    kinds[value] = within('\t', '\r') || value == ' '     ? Kind::space
                   : within('A', 'Z') || within('a', 'z') ? Kind::letter
                   : within('0', '9')                     ? Kind::number
                                                          : Kind::other;
  }
  return kinds;
}();

Character character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  if (const auto byte = static_cast<unsigned char>(text[at]); byte < ascii_kinds.size())
    return {ascii_kinds[byte], 1};
  const unicode::CodePoint c = unicode::decode(text, at);
  if (!c.valid) return {Kind::other, static_cast<std::size_t>(c.length)};
  return {kind_of(c.value), static_cast<std::size_t>(c.length), c.value};
}

std::size_t end_of_run(std::string_view text, std::size_t at, Kind kind, WordSplit split) {
  const bool is_whole = split == WordSplit::whole;
  for (Character c = character_at(text, at);
       c.kind == kind || (is_whole && unicode::stays_with_previous(c.value)); c = character_at(text, at))
    at += c.length;
  return at;
}

/// Returns the length of an English contraction at the start of the text, or 0. The text must not
/// be empty. If case is ignored, the long s also counts as an s.
std::size_t contraction_length(std::string_view text, bool ignores_case = false) {
  if (text.front() != '\'') return 0;
  static constexpr std::array<std::string_view, 7> contractions = {"'s", "'t",  "'re", "'ve",
                                                                   "'m", "'ll", "'d"};
  constexpr std::string_view long_s = "'\u017F";
  if (ignores_case && text.starts_with(long_s)) return long_s.size();
  for (const std::string_view contraction : contractions)
    if (std::ranges::equal(text.substr(0, contraction.size()), contraction, [&](char c, char small) {
          return c == small || (ignores_case && c == small - 'a' + 'A' && small != '\'');
        }))
      return contraction.size();
  return 0;
}

/// Returns the end of a run of white space. Before a word the last character of the run is left
/// over: a U+0020 joins the word, any other space becomes a piece of its own.
std::size_t end_of_space(std::string_view text, std::size_t at) {
  std::size_t last = at, end = at;
  for (Character c = character_at(text, end); c.kind == Kind::space; c = character_at(text, end)) {
    last = end;
    end += c.length;
  }
  return end < text.size() && last > at ? last : end;
}

bool is_line_end(const Character& c, std::string_view text, std::size_t at) {
  return c.kind == Kind::space && (text[at] == '\n' || text[at] == '\r');
}

/// Returns the end of the white space at `at`, which is not a line end, if a number follows;
/// otherwise 0. For patterns that cut texts there.
std::size_t end_of_space_before_number(std::string_view text, std::size_t at) {
  std::size_t end = at;
  Character c = character_at(text, end);
  for (; c.kind == Kind::space; c = character_at(text, end)) end += c.length;
  return end > at && c.kind == Kind::number ? end : 0;
}

/// Returns the end of the white space at `at`: after its last line end, or without one as in
/// GPT-2's pattern.
std::size_t end_of_lines(std::string_view text, std::size_t at) {
  std::size_t last = at;
  for (std::size_t end = at; end < text.size();) {
    const Character c = character_at(text, end);
    if (c.kind != Kind::space) break;
    const bool ends_line = is_line_end(c, text, end);
    end += c.length;
    if (ends_line) last = end;
  }
  return last > at ? last : end_of_space(text, at);
}

/// Returns the end of a word in Llama 3's pattern, with up to `most` digits in one.
std::size_t end_of_llama_word(std::string_view text, std::size_t at, int most) {
  if (const std::size_t length = contraction_length(text.substr(at), true)) return at + length;
  const auto find_run = [&](std::size_t from, Kind kind) {
    return end_of_run(text, from, kind, WordSplit::llama3);
  };
  const Character first = character_at(text, at);
  if (first.kind == Kind::letter) return find_run(at, Kind::letter);
  if (first.kind == Kind::number) {
    std::size_t end = at;
    for (int i = 0; i < most && character_at(text, end).kind == Kind::number; ++i)
      end += character_at(text, end).length;
    return end;
  }
  const std::size_t next = at + first.length;
  const Kind second = character_at(text, next).kind;
  if (second == Kind::letter && !is_line_end(first, text, at)) return find_run(next, Kind::letter);
  if (first.kind == Kind::other || (text[at] == ' ' && second == Kind::other)) {
    std::size_t end = find_run(first.kind == Kind::other ? at : next, Kind::other);
    while (end < text.size() && (text[end] == '\n' || text[end] == '\r')) ++end;
    return end;
  }
  return end_of_lines(text, at);
}

}  // namespace

std::size_t end_of_word(std::string_view text, std::size_t at, WordSplit split) {
  if (split == WordSplit::none) return text.size();
  if (split == WordSplit::llama3) return end_of_llama_word(text, at, 3);
  if (split == WordSplit::qwen2) return end_of_llama_word(text, at, 1);
  if (split == WordSplit::digits) {
    if (const Character c = character_at(text, at); c.kind == Kind::number) return at + c.length;
    if (const std::size_t end = end_of_space_before_number(text, at)) return end;
  }
  if (const std::size_t length = contraction_length(text.substr(at))) return at + length;
  const std::size_t body = text[at] == ' ' ? at + 1 : at;
  const Kind kind = character_at(text, body).kind;
  if (kind == Kind::space || kind == Kind::end) return end_of_space(text, at);
  return end_of_run(text, body, kind, split);
}

std::vector<std::string_view> split_words(std::string_view text, WordSplit split) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at, split);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::vector<std::string_view> parts_at_line_breaks(std::string_view text) {
  constexpr std::size_t part_bytes = std::size_t{1} << 20;
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t at = part_bytes; at < text.size(); ++at) {
    at = text.find('\n', at);
    if (at == std::string_view::npos) break;
    if (space_at(text, previous_character(text, at))) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at;
    at += part_bytes - 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

bool begins_word_at_line_break(WordSplit split) {
  return split == WordSplit::gpt2 || split == WordSplit::whole || split == WordSplit::digits;
}

std::string normalize_text(std::string_view text, std::span<const TextRule> rules) {
  std::string result(text);
  for (const TextRule& rule : rules) result = rule(result);
  return result;
}

// --- a tokenizer -------------------------------------------------------------------------------------------

constexpr std::size_t largest_cached_word = 64;  // bytes; longer words hardly repeat
constexpr std::size_t cache_places = 1 << 17;
constexpr std::size_t places_of_word = 8;

static std::size_t first_place(std::string_view word) {
  return TextHash{}(word) % cache_places;
}

bool WordCache::append(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > largest_cached_word) return false;
  const Place* const places = places_.load(std::memory_order_acquire);
  if (places == nullptr) return false;
  for (const Place& place : std::span(places + first_place(word), places_of_word)) {
    const std::int32_t* const entry = place.load(std::memory_order_acquire);
    if (entry == nullptr) return false;
    const auto bytes = static_cast<std::size_t>(entry[0]), count = static_cast<std::size_t>(entry[1]);
    const std::int32_t* const first = entry + 2;
    if (bytes != word.size() || std::memcmp(first + count, word.data(), bytes) != 0) continue;
    for (const std::int32_t id : std::span(first, count)) ids.push_back(id);
    return true;
  }
  return false;
}

void WordCache::insert(std::string_view word, std::span<const std::int32_t> ids) {
  if (word.size() > largest_cached_word) return;
  const std::lock_guard lock(mutex_);
  if (!owned_places_) {
    owned_places_ = std::make_unique<Place[]>(cache_places + places_of_word);
    places_.store(owned_places_.get(), std::memory_order_release);
  }
  const std::span places(owned_places_.get() + first_place(word), places_of_word);
  const auto free = std::find(places.begin(), places.end(), nullptr);
  if (free == places.end()) return;
  constexpr std::size_t of_one = sizeof(std::int32_t);
  Entry entry = std::make_unique<std::int32_t[]>(2 + ids.size() + (word.size() + of_one - 1) / of_one);
  entry[0] = static_cast<std::int32_t>(word.size());
  entry[1] = static_cast<std::int32_t>(ids.size());
  std::copy(ids.begin(), ids.end(), entry.get() + 2);
  std::memcpy(entry.get() + 2 + ids.size(), word.data(), word.size());
  entries_.push_back(std::move(entry));
  free->store(entries_.back().get(), std::memory_order_release);
}

const TokenVocabulary& model_vocabulary(const TokenModel& model) {
  return std::visit([](const TokenVocabulary& one) -> const TokenVocabulary& { return one; }, model);
}

void TokenizerParts::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (const auto* words = std::get_if<WordModel>(&model)) return words->encode_word(word, ids);
  if (cache.append(word, ids)) return;
  const std::size_t start = ids.size();
  std::visit([&](const auto& one) { one.encode_word(word, ids); }, model);
  cache.insert(word, std::span(ids).subspan(start));
}

void TokenizerParts::encode(std::string_view text, std::size_t first, std::vector<std::int32_t>& ids) const {
  const auto append = [this](std::string_view word, std::vector<std::int32_t>& own) {
    encode_word(word, own);
  };
  for (const std::vector<std::int32_t>& later :
       visit_words(text, settings, first, cuts_at_line_breaks, ids, append))
    ids.insert(ids.end(), later.begin(), later.end());
}

std::string TokenizerParts::decode(std::span<const std::int32_t> ids, bool keep_special) const {
  std::vector<std::string> tokens;
  std::string text;
  for (const std::int32_t id : ids) {
    check(id >= 0 && id < vocabulary_size, "token id ", id, " is outside the vocabulary of ",
          vocabulary_size);
    const auto index = static_cast<std::size_t>(id);
    if (hole_id[index] || (!keep_special && special_id[index])) continue;
    if (settings.byte_level)
      text += bytes_of_id[index];
    else
      tokens.push_back(bytes_of_id[index]);
  }
  if (settings.byte_level) return text;
  if (settings.decoder)
    for (const TokenRule& rule : *settings.decoder) rule(tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) text += (i > 0 && !settings.decoder ? " " : "") + tokens[i];
  return text;
}

namespace {

using SortedJson = nlohmann::json;  // with sorted keys, like the parts read from a file

SortedJson byte_level_part(bool adds_space, bool splits) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", adds_space}, {"trim_offsets", true}, {"use_regex", splits}};
}

}  // namespace

std::string byte_level_pre_tokenizer(bool add_prefix_space, WordSplit split) {
  if (split == WordSplit::none || split == WordSplit::gpt2)
    return byte_level_part(add_prefix_space, split == WordSplit::gpt2).dump(2);
  SortedJson parts = SortedJson::array();
  if (split == WordSplit::digits) {
    parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
    parts.push_back(byte_level_part(false, true));
    return SortedJson{{"type", "Sequence"}, {"pretokenizers", std::move(parts)}}.dump(2);
  }
  std::string words =
      "'s|'t|'re|'ve|'m|'ll|'d"
      R"(| ?\p{L}(?:[\p{L}\p{M}]|(?!\u200B)\p{Cf})*| ?\p{N}(?:[\p{N}\p{M}]|(?!\u200B)\p{Cf})*)"
      R"(| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  if (split == WordSplit::llama3 || split == WordSplit::qwen2)
    words = concat_text(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})",
                        split == WordSplit::llama3 ? "{1,3}" : "",
                        R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  // ByteLevel comes last and would add its space to each word; this adds one to the text.
  if (add_prefix_space)
    parts.push_back(
        {{"type", "Metaspace"}, {"replacement", " "}, {"prepend_scheme", "always"}, {"split", false}});
  parts.push_back(
      {{"type", "Split"}, {"pattern", {{"Regex", words}}}, {"behavior", "Isolated"}, {"invert", false}});
  parts.push_back(byte_level_part(false, false));
  return SortedJson{{"type", "Sequence"}, {"pretokenizers", std::move(parts)}}.dump(2);
}

TokenizerSettings settings_to_learn(std::span<const TextStep> steps, bool byte_level, bool add_prefix_space,
                                    WordSplit split) {
  TokenizerSettings settings;
  settings.byte_level = byte_level;
  settings.add_prefix_space = add_prefix_space;
  settings.word_split = split;
  SortedJson list = SortedJson::array();
  for (const TextStep step : steps) list.push_back({{"type", text_steps.name_of(step)}});
  SortedJson normalizer = list.size() == 1 ? list[0] : SortedJson();
  if (list.size() > 1) normalizer = {{"type", "Sequence"}, {"normalizers", list}};
  settings.normalizer_text = normalizer.dump(2);
  if (!steps.empty()) settings.normalizer = read_normalizer(settings.normalizer_text);
  settings.pre_tokenizer_text = byte_level ? byte_level_pre_tokenizer(add_prefix_space, split)
                                           : SortedJson{{"type", "BertPreTokenizer"}}.dump(2);
  if (byte_level)
    settings.decoder_text = byte_level_part(true, true).dump(2);
  else
    settings.pre_tokenizer = read_pre_tokenizer(settings.pre_tokenizer_text);
  return settings;
}

/// Whether a line break in an undivided text separates what can be merged, and is no part of an unknown run.
bool TokenizerParts::merges_end_at_line_breaks() const {
  const auto* const bpe = std::get_if<BpeModel>(&model);
  return bpe && settings.word_split == WordSplit::none && bpe->find(spell_bytes("\n")) &&
         std::ranges::none_of(bytes_of_id, [](std::string_view token) {
           return token.find('\n', 1) != std::string_view::npos;
         });
}

TokenizerParts::TokenizerParts(TokenModel the_model, TokenizerSettings the_settings)
    : model(std::move(the_model)), settings(std::move(the_settings)) {
  const TokenVocabulary& vocabulary = model_vocabulary(model);
  spelling_of_id = bytes_of_id = vocabulary.tokens();
  for (std::size_t id = 0; id < spelling_of_id.size(); ++id)
    hole_id.push_back(vocabulary.is_hole(static_cast<std::int32_t>(id)));
  if (settings.byte_level)
    for (std::string& bytes : bytes_of_id) bytes = unspell_bytes(bytes).value_or(bytes);
  std::vector<TokenMatcher::Pattern> raw, normalized;
  auto next = static_cast<std::int32_t>(vocabulary.count());
  for (AddedToken& token : settings.added_tokens) {
    check(!token.content.empty(), "added token ", token.id, " is empty");
    const auto known = vocabulary.find(token.content);
    token.id = known ? *known : next;
    // A token with an id from the number of tokens on moves the next one behind it.
    next = std::max(next, token.id + 1);
    check(added_ids.emplace(token.content, token.id).second, "added token \"", token.content,
          "\" is given twice");
    const auto index = static_cast<std::size_t>(token.id);
    if (index >= spelling_of_id.size()) {
      spelling_of_id.resize(index + 1);
      bytes_of_id.resize(index + 1);
      hole_id.resize(index + 1, true);
    }
    hole_id[index] = false;
    spelling_of_id[index] = bytes_of_id[index] = token.content;
    if (token.normalized)
      normalized.push_back({normalize_text(token.content, settings.normalizer), token});
    else
      raw.push_back({token.content, token});
  }
  raw_matcher = TokenMatcher(std::move(raw));
  normalized_matcher = TokenMatcher(std::move(normalized));
  vocabulary_size = static_cast<std::int32_t>(spelling_of_id.size());
  cuts_at_line_breaks = settings.byte_level && !settings.add_prefix_space &&
                        (begins_word_at_line_break(settings.word_split) || merges_end_at_line_breaks());
  special_id.resize(spelling_of_id.size());
  for (const AddedToken& token : settings.added_tokens)
    special_id[static_cast<std::size_t>(token.id)] = token.special;
}

}  // namespace heed
