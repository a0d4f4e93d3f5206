#pragma once

#include <clocale>  // also declares newlocale and uselocale, which are POSIX

#include <cstdio>
#include <locale>
#include <sstream>
#include <string>

// Numbers as C writes them, 1234.5, whatever locale the program that uses the library has set.

namespace heed {

/// While it lives, snprintf, strtod and their like use a point in this thread.
class PlainNumbers {
 public:
  PlainNumbers() : before_(::uselocale(plain())) {}
  ~PlainNumbers() { ::uselocale(before_); }
  PlainNumbers(const PlainNumbers&) = delete;
  PlainNumbers& operator=(const PlainNumbers&) = delete;

 private:
  static locale_t plain() {
    static const locale_t made = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return made;
  }
  locale_t before_;
};

/// What snprintf writes, up to 1,023 bytes: three numbers of any magnitude.
std::string formatted(const char* format, auto... values) {
  char text[1024];
  const PlainNumbers plain;
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// A std::ostringstream that does not follow std::locale::global.
class PlainStream : public std::ostringstream {
 public:
  PlainStream() { imbue(std::locale::classic()); }
};

}  // namespace heed
