#pragma once

#include <clocale>  // also declares newlocale and uselocale, which are POSIX

#include <charconv>
#include <concepts>
#include <cstdio>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "heed/base/plain_arithmetic.h"

// Numbers as C reads and writes them, 1234.5, whatever locale and rounding the program that uses the
// library has set.

namespace heed {

/// Makes snprintf, strtod and the like use a decimal point in this thread while it lives.
class PlainNumbers {
 public:
  PlainNumbers() : before_(::uselocale(plain())) {}
  ~PlainNumbers() { ::uselocale(before_); }
  PlainNumbers& operator=(PlainNumbers&&) = delete;

 private:
  static locale_t plain() {
    static const locale_t made = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return made;
  }
  locale_t before_;
  PlainArithmetic arithmetic_;
};

/// Formats as snprintf does, up to 1,023 bytes (three numbers of any magnitude).
std::string formatted(const char* format, auto... values) {
  char text[1024];
  const PlainNumbers plain;
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// Returns the shortest text that parses to this number.
std::string number_text(std::floating_point auto number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

/// Parses a text that is one number as a whole, "inf" and "nan" included; nothing for any other
/// text.
template <std::floating_point T = double>
std::optional<T> parsed_number(std::string_view text) {
  T number = 0;
  const PlainArithmetic plain;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// A std::ostringstream that does not follow std::locale::global, for use in one thread.
class PlainStream : public std::ostringstream {
 public:
  PlainStream() { imbue(std::locale::classic()); }

 private:
  PlainArithmetic arithmetic_;
};

}  // namespace heed
