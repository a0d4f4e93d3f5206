#include "heed/base/setting.h"

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <sstream>

#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"

namespace heed {

static std::string bound_text(bool is_integer, double bound) {
  // Above 2^53 a double cannot represent every integer; 2^63 - 1 is the only such bound.
  if (is_integer) return std::to_string(bound >= 0x1p63 ? INT64_MAX : static_cast<std::int64_t>(bound));
  PlainStream text;
  text << std::setprecision(10) << bound;
  return text.str();
}

std::string allowed_text(const Setting& setting) {
  const bool is_integer = setting.kind == Setting::Kind::integer;
  if (is_integer || setting.kind == Setting::Kind::number)
    return range_text(bound_text(is_integer, setting.low), setting.high,
                      bound_text(is_integer, setting.high));
  std::vector<std::string> choices = setting.choices;
  std::ranges::replace(choices, std::string(), std::string("\"\""));
  return listed(choices, " or ");
}

}  // namespace heed
