#include "heed/text/pre_tokenizers.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"

namespace heed {

std::vector<std::string_view> split_at_punctuation(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  const auto end_word = [&](std::size_t at) {
    if (at > begin) words.push_back(text.substr(begin, at - begin));
  };
  for (std::size_t at = 0; at < text.size();) {
    const unicode::CodePoint c = unicode::decode(text, at);
    const std::size_t next = at + static_cast<std::size_t>(c.length);
    const bool is_mark = c.valid && unicode::is_punctuation(c.value);
    if (is_mark || (c.valid && unicode::is_space(c.value))) {
      end_word(at);
      if (is_mark) words.push_back(text.substr(at, next - at));
      begin = next;
    }
    at = next;
  }
  end_word(text.size());
  return words;
}

std::string normalize_text(std::string_view text, std::span<const TextStep> steps) {
  std::string result(text);
  for (const TextStep step : steps)
    result = step == TextStep::lower_case
                 ? unicode::lower_case(result, unicode::FinalSigma::medial)
                 : unicode::normalize(result, static_cast<unicode::Form>(step));  // of the same order
  return result;
}

static std::string from_base64(std::string_view text) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = letters.find(c);
    check(value != std::string_view::npos, "normalizer.precompiled_charsmap is not base64");
    bits = (bits << 6 | static_cast<std::uint32_t>(value)) & 0xFFFFFF;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

static std::uint32_t little_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// A unit of the double array: 31 bits of value, or a label, an offset and whether a string ends here.
constexpr std::uint32_t unit_offset(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
constexpr std::uint32_t unit_label(std::uint32_t unit) {
  return unit & ((1u << 31) | 0xFF);
}

CharacterMap::CharacterMap(std::string_view base64) {
  const std::string bytes = from_base64(base64);
  check(bytes.size() >= 4, "normalizer.precompiled_charsmap is too short");
  const std::size_t size = little_endian(bytes.data());
  check(size <= bytes.size() - 4 && size % 4 == 0 && size > 0,
        "normalizer.precompiled_charsmap says that its tree has ", size, " bytes, but ", bytes.size() - 4,
        " follow");
  for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(little_endian(bytes.data() + at));
  replacements_ = bytes.substr(4 + size);
  replacements_ += '\0';
}

const char* CharacterMap::find(std::string_view text) const {
  std::uint32_t node = unit_offset(units_[0]);
  for (const char c : text) {
    if (c == '\0') return nullptr;
    node ^= static_cast<unsigned char>(c);
    if (node >= units_.size() || unit_label(units_[node]) != static_cast<unsigned char>(c)) return nullptr;
    const std::uint32_t unit = units_[node];
    node ^= unit_offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    check(node < units_.size(), "normalizer.precompiled_charsmap is damaged");
    const std::uint32_t value = units_[node] & 0x7FFFFFFF;
    check(value < replacements_.size(), "normalizer.precompiled_charsmap is damaged");
    return replacements_.c_str() + value;
  }
  return nullptr;
}

std::string CharacterMap::apply(std::string_view text) const {
  std::string result;
  while (!text.empty()) {
    std::string_view cluster = text.substr(0, unicode::cluster_length(text));
    text.remove_prefix(cluster.size());
    if (const char* whole = cluster.size() < 6 ? find(cluster) : nullptr) {
      result += whole;
      continue;
    }
    while (!cluster.empty()) {
      const std::string_view character =
          cluster.substr(0, static_cast<std::size_t>(unicode::decode(cluster, 0).length));
      if (const char* one = find(character))
        result += one;
      else
        result += character;
      cluster.remove_prefix(character.size());
    }
  }
  return result;
}

namespace {

using namespace json_parts;
using SortedJson = nlohmann::json;

/// Returns the text with each character replaced by what `change(character, its bytes, result)`
/// appends.
template <class Change>
std::string each_character(std::string_view text, const Change& change) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const unicode::CodePoint c = unicode::decode(text, at);
    const std::string_view bytes = text.substr(at, static_cast<std::size_t>(c.length));
    if (c.valid)
      change(c.value, bytes, result);
    else
      result += bytes;
    at += bytes.size();
  }
  return result;
}

/// Returns the text without the characters of one kind.
template <class Is>
std::string without(std::string_view text, const Is& is) {
  return each_character(text, [&](char32_t c, std::string_view bytes, std::string& result) {
    if (!is(c)) result += bytes;
  });
}

std::string replaced(std::string_view text, const std::string& from, const std::string& to) {
  std::string result(text);
  replace_all(result, from, to);
  return result;
}

// --- normalizers

bool lies_in(char32_t c, std::initializer_list<std::pair<char32_t, char32_t>> ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const auto& one) { return c >= one.first && c <= one.second; });
}

/// The blocks of Chinese characters that BERT uses.
bool is_chinese(char32_t c) {
  return lies_in(c, {{0x4E00, 0x9FFF},
                     {0x3400, 0x4DBF},
                     {0x20000, 0x2A6DF},
                     {0x2A700, 0x2B73F},
                     {0x2B740, 0x2B81F},
                     {0x2B920, 0x2CEAF},
                     {0xF900, 0xFAFF},
                     {0x2F800, 0x2FA1F}});
}

std::string cleaned(std::string_view text) {
  return each_character(text, [](char32_t c, std::string_view bytes, std::string& result) {
    const bool is_line = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD || (!is_line && unicode::is_control(c))) return;
    result += unicode::is_space(c) ? " " : bytes;
  });
}

TextRule bert_rule(const SortedJson& part) {
  const std::string where = "normalizer";
  const bool clean = flag(part, "clean_text", true, where),
             chinese = flag(part, "handle_chinese_chars", true, where),
             lower = flag(part, "lowercase", true, where), strip = flag(part, "strip_accents", lower, where);
  return [=](std::string_view given) {
    std::string text = clean ? cleaned(given) : std::string(given);
    if (chinese)
      text = each_character(text, [](char32_t c, std::string_view bytes, std::string& result) {
        const char* space = is_chinese(c) ? " " : "";
        result.append(space).append(bytes).append(space);
      });
    if (strip) text = without(unicode::normalize(text, unicode::Form::nfd), unicode::is_nonspacing_mark);
    return lower ? unicode::lower_case(text, unicode::FinalSigma::medial) : text;
  };
}

/// SentencePiece's "nmt" rule: removes control characters and turns every kind of space into U+0020.
std::string nmt(std::string_view text) {
  return each_character(text, [](char32_t c, std::string_view bytes, std::string& result) {
    if (lies_in(c, {{0x1, 0x8}, {0xB, 0xB}, {0xE, 0x1F}, {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}})) return;
    const bool is_space = lies_in(c, {{0x9, 0xA},
                                      {0xC, 0xD},
                                      {0x1680, 0x1680},
                                      {0x200B, 0x200F},
                                      {0x2028, 0x2029},
                                      {0x2581, 0x2581},
                                      {0xFEFF, 0xFEFF},
                                      {0xFFFD, 0xFFFD}});
    result += is_space ? " " : bytes;
  });
}

std::string stripped(std::string_view text, bool left, bool right) {
  const auto is_space_at = [&](std::size_t at) {
    const unicode::CodePoint c = unicode::decode(text, at);
    return c.valid && unicode::is_space(c.value);
  };
  std::size_t begin = 0, end = 0;  // `end`: after the last character that is not a space
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = at + static_cast<std::size_t>(unicode::decode(text, at).length);
    if (!is_space_at(at))
      end = next;
    else if (left && end == 0)
      begin = next;
    at = next;
  }
  return std::string(text.substr(begin, (right ? std::max(end, begin) : text.size()) - begin));
}

TextRule replace_rule(const SortedJson& part) {
  const SortedJson& pattern = member(part, "pattern", "normalizer");
  const std::string to = text_in(part, "content", "normalizer");
  if (pattern.is_object() && pattern.contains("String")) {
    const std::string from = text_in(pattern, "String", "normalizer.pattern");
    check(!from.empty(), "normalizer \"Replace\" with an empty pattern is not supported");
    return [=](std::string_view text) { return replaced(text, from, to); };
  }
  const std::string regex = text_in(pattern, "Regex", "normalizer.pattern");
  check(regex == " {2,}", "normalizer \"Replace\" of the regular expression \"", regex,
        "\" is not supported (strings and \" {2,}\" are)");
  return [=](std::string_view text) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find_first_not_of(' ', at), text.size());
      result += end - at >= 2 ? to : std::string(text.substr(at, end - at));
      const std::size_t next = std::min(text.find(' ', end), text.size());
      result += text.substr(end, next - end);
      at = next;
    }
    return result;
  };
}

TextRule normalizer_rule(const SortedJson& part, const std::string& type) {
  for (const auto& [name, step] : text_steps.rows)
    if (type == name) return [one = step](std::string_view text) { return normalize_text(text, {&one, 1}); };
  if (type == "BertNormalizer") return bert_rule(part);
  if (type == "StripAccents") return [](std::string_view text) { return without(text, unicode::is_mark); };
  if (type == "Nmt") return nmt;
  if (type == "Strip")
    return [left = flag(part, "strip_left", true, "normalizer"),
            right = flag(part, "strip_right", true, "normalizer")](std::string_view text) {
      return stripped(text, left, right);
    };
  if (type == "Replace") return replace_rule(part);
  if (type == "Prepend")
    return [prefix = text_in(part, "prepend", "normalizer")](std::string_view text) {
      return text.empty() ? std::string() : prefix + std::string(text);
    };
  if (type == "Precompiled")
    return [map = CharacterMap(text_in(part, "precompiled_charsmap", "normalizer"))](std::string_view text) {
      return map.apply(text);
    };
  fail("normalizer \"", type,
       "\" is not supported (NFC, NFD, NFKC, NFKD, Lowercase, BertNormalizer, StripAccents, Strip, Replace, "
       "Prepend, Nmt, Precompiled and Sequence of these are)");
}

// --- pre-tokenizers

/// Returns a rule that splits pieces with `cut` and drops empty parts.
template <class Cut>
WordRule cutting(const Cut& cut) {
  return [=](const Piece& piece, std::vector<Piece>& pieces) {
    for (const std::string_view part : cut(piece.text)) {
      if (part.empty()) continue;
      const auto at = static_cast<std::size_t>(part.data() - piece.text.data());
      pieces.push_back({std::string(part), piece.first - std::min(piece.first, at)});
    }
  };
}

/// Splits a text into runs of characters of the same kind. Kind 0 is left out; a character of
/// negative kind is a run by itself.
template <class Kind>
std::vector<std::string_view> runs(std::string_view text, const Kind& kind_of) {
  std::vector<std::string_view> found;
  std::size_t begin = 0;
  int kind = 0;
  for (std::size_t at = 0; at < text.size();) {
    const unicode::CodePoint c = unicode::decode(text, at);
    const int next = c.valid ? kind_of(c.value) : 1;
    if (next != kind || next < 0) {
      if (kind != 0) found.push_back(text.substr(begin, at - begin));
      begin = at;
      kind = next;
    }
    at += static_cast<std::size_t>(c.length);
  }
  if (kind != 0) found.push_back(text.substr(begin));
  return found;
}

/// Returns the visible character that replaces a space in SentencePiece.
std::string read_space(const SortedJson& part, const std::string& where) {
  std::string space = text_in(part, "replacement", where);
  check(!space.empty() && static_cast<std::size_t>(unicode::decode(space, 0).length) == space.size(), where,
        ".replacement \"", space, "\" is not one character");
  return space;
}

/// Returns SentencePiece's rule for spaces: each becomes a visible character that begins the next
/// word.
WordRule metaspace_rule(const SortedJson& part) {
  const std::string where = "pre_tokenizer", space = read_space(part, where);
  const bool adds = flag(part, "add_prefix_space", true, where);
  const std::string scheme =
      is_null(part, "prepend_scheme") ? adds ? "always" : "never" : text_in(part, "prepend_scheme", where);
  check(scheme == "always" || scheme == "first" || scheme == "never", where, ".prepend_scheme \"", scheme,
        "\" is not supported (always, first and never are)");
  const bool splits = flag(part, "split", true, where);
  return [=](const Piece& piece, std::vector<Piece>& pieces) {
    if (piece.text.empty()) return;
    std::string text = replaced(piece.text, " ", space);
    std::size_t first = replaced(std::string_view(piece.text).substr(0, piece.first), " ", space).size();
    if (!text.starts_with(space) && (scheme == "always" || (scheme == "first" && first > 0))) {
      text = space + text;
      if (first > 0) first += space.size();
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t next = splits ? std::min(text.find(space, at + 1), text.size()) : text.size();
      pieces.push_back({text.substr(at, next - at), first - std::min(first, at)});
      at = next;
    }
  };
}

WordRule word_rule(const SortedJson& part, const std::string& type) {
  if (type == "BertPreTokenizer") return cutting(split_at_punctuation);
  if (type == "WhitespaceSplit")
    return cutting([](std::string_view text) {
      return runs(text, [](char32_t c) { return unicode::is_space(c) ? 0 : 1; });
    });
  if (type == "Whitespace")
    return cutting([](std::string_view text) {
      return runs(text, [](char32_t c) { return unicode::is_word(c) ? 2 : unicode::is_space(c) ? 0 : 1; });
    });
  if (type == "Punctuation") {
    check(is_null(part, "behavior") || part["behavior"] == "Isolated",
          "pre_tokenizer \"Punctuation\" is only supported with behavior Isolated");
    return cutting([](std::string_view text) {
      return runs(text, [](char32_t c) { return unicode::is_punctuation(c) ? -1 : 1; });
    });
  }
  if (type == "Metaspace") return metaspace_rule(part);
  if (type == "Split") {
    const SortedJson& pattern = member(part, "pattern", "pre_tokenizer");
    check(pattern.contains("String") && pattern["String"] != "" && part.contains("behavior") &&
              part["behavior"] == "MergedWithPrevious" && !flag(part, "invert", false, "pre_tokenizer"),
          "pre_tokenizer \"Split\" is only supported at a String, with behavior MergedWithPrevious");
    return cutting([at = text_in(pattern, "String", "pre_tokenizer.pattern")](std::string_view text) {
      std::vector<std::string_view> found;
      for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
        end = std::min(text.find(at, begin), text.size() - 1) + at.size();
        found.push_back(text.substr(begin, end - begin));
      }
      return found;
    });
  }
  fail("pre_tokenizer \"", type,
       "\" is not supported (ByteLevel, BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation, Split, "
       "Metaspace and Sequence of all but the first are)");
}

// --- decoders

/// Removes the space that the WordPiece decoder puts before English punctuation.
std::string cleaned_up(std::string text) {
  static const std::pair<const char*, const char*> changes[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes) text = replaced(text, from, to);
  return text;
}

TokenRule word_piece_decoder(const SortedJson& part) {
  return [prefix = text_in(part, "prefix", "decoder"),
          cleanup = flag(part, "cleanup", true, "decoder")](std::vector<std::string>& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix))
        tokens[i].erase(0, prefix.size());
      else if (i > 0)
        tokens[i].insert(0, 1, ' ');
      if (cleanup) tokens[i] = cleaned_up(std::move(tokens[i]));
    }
  };
}

TokenRule metaspace_decoder(const SortedJson& part) {
  const std::string space = read_space(part, "decoder");
  const bool adds = flag(part, "add_prefix_space", true, "decoder");
  const bool never = is_null(part, "prepend_scheme") ? !adds : part["prepend_scheme"] == "never";
  return [=](std::vector<std::string>& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], space, i == 0 && !never ? "" : " ");
  };
}

std::optional<char> parse_byte_token(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const std::size_t digit = std::string_view("0123456789abcdefABCDEF").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = 16 * value + static_cast<int>(digit < 16 ? digit : digit - 6);
  }
  return static_cast<char>(value);
}

/// Joins runs of byte tokens into text, or into one U+FFFD per byte if they are not UTF-8.
void join_bytes(std::vector<std::string>& tokens) {
  std::vector<std::string> joined;
  std::string bytes;
  const auto put = [&] {
    if (unicode::find_invalid(bytes) == std::string::npos) {
      if (!bytes.empty()) joined.push_back(bytes);
    } else {
      joined.insert(joined.end(), bytes.size(), "\uFFFD");
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = parse_byte_token(token)) {
      bytes += *byte;
      continue;
    }
    put();
    joined.push_back(token);
  }
  put();
  tokens = std::move(joined);
}

void fuse(std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {all};
}

/// Removes the content up to `start` times from the front of each token, and up to `stop` times from its
/// end.
TokenRule strip_decoder(const SortedJson& part) {
  const std::string content = text_in(part, "content", "decoder");
  check(!content.empty(), "decoder.content is empty");
  const std::int32_t start = id_of(member(part, "start", "decoder"), "decoder.start"),
                     stop = id_of(member(part, "stop", "decoder"), "decoder.stop");
  return [=](std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
      for (std::int32_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
      for (std::int32_t i = 0; i < stop && token.ends_with(content); ++i)
        token.resize(token.size() - content.size());
    }
  };
}

TokenRule token_rule(const SortedJson& part, const std::string& type) {
  if (type == "WordPiece") return word_piece_decoder(part);
  if (type == "Metaspace") return metaspace_decoder(part);
  if (type == "ByteFallback") return join_bytes;
  if (type == "Fuse") return fuse;
  if (type == "Strip") return strip_decoder(part);
  if (type == "Replace") {
    const std::string from = text_in(member(part, "pattern", "decoder"), "String", "decoder.pattern"),
                      to = text_in(part, "content", "decoder");
    check(!from.empty(), "decoder \"Replace\" with an empty pattern is not supported");
    return [=](std::vector<std::string>& tokens) {
      for (std::string& token : tokens) token = replaced(token, from, to);
    };
  }
  fail("decoder \"", type,
       "\" is not supported (ByteLevel, WordPiece, Metaspace, ByteFallback, Fuse, Strip, Replace and "
       "Sequence of all "
       "but the first are)");
}

}  // namespace

std::vector<TextRule> read_normalizer(std::string_view part) {
  std::vector<TextRule> rules;
  for_each_part(
      SortedJson::parse(part), "normalizers", "normalizer",
      [&](const SortedJson& one, const std::string& type) { rules.push_back(normalizer_rule(one, type)); });
  return rules;
}

std::vector<WordRule> read_pre_tokenizer(std::string_view part) {
  std::vector<WordRule> rules;
  for_each_part(
      SortedJson::parse(part), "pretokenizers", "pre_tokenizer",
      [&](const SortedJson& one, const std::string& type) { rules.push_back(word_rule(one, type)); });
  return rules;
}

std::vector<TokenRule> read_decoder(std::string_view part) {
  std::vector<TokenRule> rules;
  for_each_part(
      SortedJson::parse(part), "decoders", "decoder",
      [&](const SortedJson& one, const std::string& type) { rules.push_back(token_rule(one, type)); });
  return rules;
}

}  // namespace heed
