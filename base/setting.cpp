#include "heed/base/setting.h"
#include "heed/base/plain_numbers.h"

#include <cstdint>
#include <iomanip>
#include <sstream>

namespace heed {
namespace {

std::string bound_text(bool is_integer, double bound) {
  // Beyond 2^53 a double is no longer the integer that was meant, but only 2^63 - 1 is used there.
  if (is_integer) return std::to_string(bound >= 0x1p63 ? INT64_MAX : static_cast<std::int64_t>(bound));
  PlainStream text;
  text << std::setprecision(10) << bound;
  return text.str();
}

}  // namespace

std::string allowed_text(const Setting& setting) {
  std::string text;
  for (std::size_t i = 0; i < setting.choices.size(); ++i) {
    if (i > 0) text += i + 1 == setting.choices.size() ? " or " : ", ";
    text += setting.choices[i].empty() ? "\"\"" : setting.choices[i];
  }
  const bool is_integer = setting.kind == Setting::Kind::integer;
  if (is_integer || setting.kind == Setting::Kind::number)
    text =
        range_text(bound_text(is_integer, setting.low), setting.high, bound_text(is_integer, setting.high));
  return text;
}

}  // namespace heed
