#include "heed/data/byte_alphabet.h"

#include <array>

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

}  // namespace

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

}  // namespace heed
