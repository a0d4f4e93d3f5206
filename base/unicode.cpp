#include "heed/base/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "heed/base/error.h"

namespace heed::unicode {
namespace {

/// The bytes that may follow a lead byte: the number of continuation bytes, and the range of the
/// first one. The narrowed ranges rule out overlong forms, surrogates and values above U+10FFFF
/// (Unicode 15, table 3-7).
struct LeadByte {
  int continuations;
  unsigned char low, high;
};

LeadByte classify(unsigned char byte) {
  if (byte < 0x80) return {0, 0, 0};
  if (byte < 0xC2) return {-1, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte < 0xF4) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {-1, 0, 0};
}

/// Characters that utf8proc 2.8 does not know, which has Unicode 15.0.
struct NewCharacters {
  char32_t first, last;
  utf8proc_category_t category;
  std::int32_t to_lower = 0;  ///< added to a capital
};

/// The letters and numbers of Unicode 15.1 and 16, by which published tokenizers split texts.
constexpr NewCharacters new_characters[] = {
    {0x1C89, 0x1C89, UTF8PROC_CATEGORY_LU, 1},      {0x1C8A, 0x1C8A, UTF8PROC_CATEGORY_LL},
    {0xA7CB, 0xA7CB, UTF8PROC_CATEGORY_LU, -42343}, {0xA7CC, 0xA7CC, UTF8PROC_CATEGORY_LU, 1},
    {0xA7CD, 0xA7CD, UTF8PROC_CATEGORY_LL},         {0xA7DA, 0xA7DA, UTF8PROC_CATEGORY_LU, 1},
    {0xA7DB, 0xA7DB, UTF8PROC_CATEGORY_LL},         {0xA7DC, 0xA7DC, UTF8PROC_CATEGORY_LU, -42561},
    {0x105C0, 0x105F3, UTF8PROC_CATEGORY_LO},       {0x10D40, 0x10D49, UTF8PROC_CATEGORY_ND},
    {0x10D4A, 0x10D4D, UTF8PROC_CATEGORY_LO},       {0x10D4E, 0x10D4E, UTF8PROC_CATEGORY_LM},
    {0x10D4F, 0x10D4F, UTF8PROC_CATEGORY_LO},       {0x10D50, 0x10D65, UTF8PROC_CATEGORY_LU, 32},
    {0x10D6F, 0x10D6F, UTF8PROC_CATEGORY_LM},       {0x10D70, 0x10D85, UTF8PROC_CATEGORY_LL},
    {0x10EC2, 0x10EC4, UTF8PROC_CATEGORY_LO},       {0x11380, 0x11389, UTF8PROC_CATEGORY_LO},
    {0x1138B, 0x1138B, UTF8PROC_CATEGORY_LO},       {0x1138E, 0x1138E, UTF8PROC_CATEGORY_LO},
    {0x11390, 0x113B5, UTF8PROC_CATEGORY_LO},       {0x113B7, 0x113B7, UTF8PROC_CATEGORY_LO},
    {0x113D1, 0x113D1, UTF8PROC_CATEGORY_LO},       {0x113D3, 0x113D3, UTF8PROC_CATEGORY_LO},
    {0x116D0, 0x116E3, UTF8PROC_CATEGORY_ND},       {0x11BC0, 0x11BE0, UTF8PROC_CATEGORY_LO},
    {0x11BF0, 0x11BF9, UTF8PROC_CATEGORY_ND},       {0x13460, 0x143FA, UTF8PROC_CATEGORY_LO},
    {0x16100, 0x1611D, UTF8PROC_CATEGORY_LO},       {0x16130, 0x16139, UTF8PROC_CATEGORY_ND},
    {0x16D40, 0x16D42, UTF8PROC_CATEGORY_LM},       {0x16D43, 0x16D6A, UTF8PROC_CATEGORY_LO},
    {0x16D6B, 0x16D6C, UTF8PROC_CATEGORY_LM},       {0x16D70, 0x16D79, UTF8PROC_CATEGORY_ND},
    {0x18CFF, 0x18CFF, UTF8PROC_CATEGORY_LO},       {0x1CCF0, 0x1CCF9, UTF8PROC_CATEGORY_ND},
    {0x1E5D0, 0x1E5ED, UTF8PROC_CATEGORY_LO},       {0x1E5F0, 0x1E5F0, UTF8PROC_CATEGORY_LO},
    {0x1E5F1, 0x1E5FA, UTF8PROC_CATEGORY_ND},       {0x2EBF0, 0x2EE5D, UTF8PROC_CATEGORY_LO}};

const NewCharacters* find_new(char32_t value) {
  const auto* const found = std::ranges::lower_bound(new_characters, value, {}, &NewCharacters::last);
  return found != std::end(new_characters) && found->first <= value ? found : nullptr;
}

utf8proc_category_t category(char32_t value) {
  const utf8proc_category_t known = utf8proc_category(static_cast<utf8proc_int32_t>(value));
  if (known != UTF8PROC_CATEGORY_CN) return known;
  const NewCharacters* const found = find_new(value);
  return found ? found->category : known;
}

char32_t find_lower_case(char32_t value) {
  const auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value)));
  const NewCharacters* const found = lower == value && value > 0x7F ? find_new(value) : nullptr;
  return found ? static_cast<char32_t>(static_cast<std::int32_t>(lower) + found->to_lower) : lower;
}

bool is_cased(char32_t value) {
  const auto kind = category(value);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

bool is_case_ignorable(char32_t value) {
  const auto kind = category(value);
  if (kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
      kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK)
    return true;
  // Punctuation inside words: apostrophes, full stop, colon, middle dot.
  return std::u32string_view(U"'.:\u00B7\u2018\u2019").find(value) != std::u32string_view::npos;
}

/// True when a cased letter follows at byte `at`, skipping case-ignorable characters.
bool cased_follows(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = decode(text, at);
    if (!c.valid) return false;
    if (!is_case_ignorable(c.value)) return is_cased(c.value);
    at += static_cast<std::size_t>(c.length);
  }
  return false;
}

/// The canonical order (Unicode 15, D109): in each run of marks those of a lower combining class come first.
void sort_marks(std::vector<utf8proc_int32_t>& values) {
  struct Mark {
    utf8proc_propval_t order;
    utf8proc_int32_t value;
  };
  std::vector<Mark> run;
  const auto put_back = [&](std::size_t end) {
    const auto by_order = [](const Mark& a, const Mark& b) { return a.order < b.order; };
    if (std::is_sorted(run.begin(), run.end(), by_order)) return run.clear();
    std::stable_sort(run.begin(), run.end(), by_order);
    for (std::size_t i = 0; i < run.size(); ++i) values[end - run.size() + i] = run[i].value;
    run.clear();
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const utf8proc_propval_t order = utf8proc_get_property(values[i])->combining_class;
    if (order != 0)
      run.push_back({order, values[i]});
    else if (!run.empty())
      put_back(i);
  }
  put_back(values.size());
}

std::string normalize_valid(std::string_view text, Form form) {
  // Decomposed here rather than by utf8proc_map, whose sort takes time quadratic in the length of a run of
  // marks.
  const bool composed = form == Form::nfc || form == Form::nfkc;
  int options = UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  std::vector<utf8proc_int32_t> values;
  std::array<utf8proc_int32_t, 32> parts;  // no character has more than 18 (Unicode 15, U+FDFA)
  int boundary = UTF8PROC_BOUNDCLASS_START;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts.data(),
                                               static_cast<utf8proc_ssize_t>(parts.size()),
                                               static_cast<utf8proc_option_t>(options), &boundary);
    check(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()),
          "Unicode normalisation failed: ", utf8proc_errmsg(count));
    values.insert(values.end(), parts.begin(), parts.begin() + count);
    at += static_cast<std::size_t>(c.length);
  }
  sort_marks(values);
  if (composed) {
    const auto count = utf8proc_normalize_utf32(values.data(), static_cast<utf8proc_ssize_t>(values.size()),
                                                static_cast<utf8proc_option_t>(options));
    check(count >= 0, "Unicode normalisation failed: ", utf8proc_errmsg(count));
    values.resize(static_cast<std::size_t>(count));
  }
  std::string result;
  result.reserve(text.size());
  for (const utf8proc_int32_t value : values) append(result, static_cast<char32_t>(value));
  return result;
}

}  // namespace

CodePoint decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const LeadByte lead = classify(byte(at));
  if (lead.continuations == 0) return {byte(at), 1, true};
  if (lead.continuations < 0) return {byte(at), 1, false};
  char32_t value = byte(at) & (0x3F >> lead.continuations);
  for (int i = 1; i <= lead.continuations; ++i) {
    const std::size_t next = at + static_cast<std::size_t>(i);
    const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (next >= text.size() || byte(next) < low || byte(next) > high) return {byte(at), i, false};
    value = (value << 6) | (byte(next) & 0x3F);
  }
  return {value, lead.continuations + 1, true};
}

void append(std::string& text, char32_t value) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

std::size_t find_invalid(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t eight = 0;  // fast path: eight ASCII bytes at once
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const CodePoint c = decode(text, at);
    if (!c.valid) return at;
    at += static_cast<std::size_t>(c.length);
  }
  return std::string_view::npos;
}

std::string replace_invalid(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    const auto length = static_cast<std::size_t>(c.length);
    if (c.valid)
      result.append(text, at, length);
    else
      append(result, 0xFFFD);
    at += length;
  }
  return result;
}

static bool steers_terminal(char32_t c) {
  const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool is_line_end = c == 0x2028 || c == 0x2029;
  const bool is_direction = c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
                            (c >= 0x2066 && c <= 0x2069);
  return is_control || is_line_end || is_direction;
}

static void append_hex(std::string& text, char32_t value, int digits) {
  for (int i = digits - 1; i >= 0; --i) text += "0123456789abcdef"[value >> (4 * i) & 15];
}

static std::string without_steering(std::string_view text, std::string_view kept) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    const std::string_view bytes = text.substr(at, static_cast<std::size_t>(c.length));
    at += bytes.size();
    if (c.valid && (!steers_terminal(c.value) || kept.find(bytes) != std::string_view::npos))
      shown += bytes;
    else if (c.valid && c.value >= 0x7F)
      append_hex(shown += "\\u", c.value, 4);
    else
      for (const char byte : bytes) append_hex(shown += "\\x", static_cast<unsigned char>(byte), 2);
  }
  return shown;
}

std::string printable(std::string_view text) {
  return without_steering(text, "");
}

std::string printable_lines(std::string_view text) {
  return without_steering(text, "\n\t");
}

std::string message_line(std::string_view text) {
  constexpr std::size_t most_bytes = 4000, end_bytes = 1000;
  if (text.size() <= most_bytes) return printable(text);
  const std::string_view first = beginning(text, most_bytes - end_bytes);
  std::size_t rest = text.size() - end_bytes;
  while (rest < text.size() && (text[rest] & 0xC0) == 0x80) ++rest;  // do not cut a character
  return concat_text(printable(first), " … (", rest - first.size(), " bytes are left out) … ",
                     printable(text.substr(rest)));
}

bool is_letter(char32_t value) {
  const auto kind = category(value);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_number(char32_t value) {
  const auto kind = category(value);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

std::string_view beginning(std::string_view text, std::size_t most_bytes) {
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t next = end + static_cast<std::size_t>(decode(text, end).length);
    if (next > most_bytes) break;
    end = next;
  }
  return text.substr(0, end);
}

std::string shortened(std::string_view text, std::size_t most_bytes) {
  const std::string_view first = beginning(text, most_bytes);
  return std::string(first) + (first.size() < text.size() ? "…" : "");
}

std::size_t columns(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    count += static_cast<std::size_t>(utf8proc_charwidth(static_cast<utf8proc_int32_t>(c.value)));
    at += static_cast<std::size_t>(c.length);
  }
  return count;
}

bool is_punctuation(char32_t value) {
  const auto kind = category(value);
  return (kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO) ||
         (value > 0x20 && value < 0x7F && kind >= UTF8PROC_CATEGORY_SM && kind <= UTF8PROC_CATEGORY_SO);
}

bool is_strict_punctuation(char32_t value) {
  const auto kind = category(value);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_symbol(char32_t value) {
  const auto kind = category(value);
  return kind >= UTF8PROC_CATEGORY_SM && kind <= UTF8PROC_CATEGORY_SO;
}

Script letter_script(char32_t letter) {
  const auto is_in = [&](std::span<const std::pair<char32_t, char32_t>> ranges) {
    return std::ranges::any_of(
        ranges, [&](const auto& range) { return letter >= range.first && letter <= range.second; });
  };
  using Range = std::pair<char32_t, char32_t>;
  static constexpr Range latin[] = {{'A', 'Z'},       {'a', 'z'},       {0xAA, 0xAA},     {0xBA, 0xBA},
                                    {0xC0, 0x2AF},    {0x1E00, 0x1EFF}, {0x2C60, 0x2C7F}, {0xA720, 0xA7FF},
                                    {0xAB30, 0xAB6F}, {0xFB00, 0xFB06}, {0xFF21, 0xFF5A}};
  static constexpr Range han[] = {{0x2E80, 0x2FDF}, {0x3005, 0x3007},  {0x3021, 0x3029}, {0x3038, 0x303B},
                                  {0x3100, 0x312F}, {0x31A0, 0x31BF},  {0x3400, 0x4DBF}, {0x4E00, 0x9FFF},
                                  {0xF900, 0xFAFF}, {0x20000, 0x3FFFF}};
  // Kana, Thai, Lao, Tibetan, Burmese, Khmer, Tai.
  static constexpr Range unspaced[] = {{0x3031, 0x3035}, {0x3041, 0x30FF},   {0x31F0, 0x31FF},
                                       {0xFF66, 0xFF9F}, {0x1AFF0, 0x1B16F}, {0x0E00, 0x0FFF},
                                       {0x1000, 0x109F}, {0xA9E0, 0xA9FF},   {0xAA60, 0xAADF},
                                       {0x1780, 0x17FF}, {0x1950, 0x19FF},   {0x1A20, 0x1AAF}};
  return is_in(latin)      ? Script::latin
         : is_in(han)      ? Script::han
         : is_in(unspaced) ? Script::unspaced
                           : Script::other;
}

bool is_control(char32_t value) {
  const auto kind = category(value);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
}

bool is_mark(char32_t value) {
  const auto kind = category(value);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool stays_with_previous(char32_t value) {
  return is_mark(value) || (category(value) == UTF8PROC_CATEGORY_CF && value != 0x200B);
}

bool is_nonspacing_mark(char32_t value) {
  return category(value) == UTF8PROC_CATEGORY_MN;
}

std::size_t cluster_length(std::string_view text) {
  CodePoint last = decode(text, 0);
  auto at = static_cast<std::size_t>(last.length);
  for (utf8proc_int32_t state = 0; at < text.size();) {
    const CodePoint next = decode(text, at);
    if (!last.valid || !next.valid ||
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    at += static_cast<std::size_t>(next.length);
    last = next;
  }
  return at;
}

bool is_space(char32_t value) {
  return (value >= 0x09 && value <= 0x0D) || value == 0x20 || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_word(char32_t value) {
  const auto kind = category(value);
  return is_letter(value) || (kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_NL) ||
         kind == UTF8PROC_CATEGORY_PC || value == 0x200C || value == 0x200D ||
         // Other_Alphabetic: letters in circles and squares, which are symbols by their category.
         (value >= 0x24B6 && value <= 0x24E9) || (value >= 0x1F130 && value <= 0x1F149) ||
         (value >= 0x1F150 && value <= 0x1F169) || (value >= 0x1F170 && value <= 0x1F189);
}

std::string lower_case(std::string_view text, FinalSigma rule) {
  std::string result;
  result.reserve(text.size());
  bool after_cased = false;  // a cased letter precedes, skipping case-ignorable characters
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    const std::size_t next = at + static_cast<std::size_t>(c.length);
    if (!c.valid)
      result.append(text, at, next - at);
    else if (c.value == 0x0130)  // the one letter whose lower case is longer in every language
      result += "i\u0307";
    else if (c.value == 0x03A3 && rule == FinalSigma::final && after_cased && !cased_follows(text, next))
      append(result, 0x03C2);
    else
      append(result, find_lower_case(c.value));
    if (!c.valid || !is_case_ignorable(c.value)) after_cased = c.valid && is_cased(c.value);
    at = next;
  }
  return result;
}

std::string normalize(std::string_view text, Form form) {
  std::string result;
  while (!text.empty()) {
    const std::size_t valid = std::min(find_invalid(text), text.size());
    result += normalize_valid(text.substr(0, valid), form);
    text.remove_prefix(valid);
    if (text.empty()) break;
    const auto broken = static_cast<std::size_t>(decode(text, 0).length);
    result.append(text, 0, broken);
    text.remove_prefix(broken);
  }
  return result;
}

}  // namespace heed::unicode
