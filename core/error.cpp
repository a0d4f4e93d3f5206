#include "heed/core/error.h"

#include <sstream>

namespace heed {

std::string concat_parts(std::initializer_list<TextPart> parts) {
  std::ostringstream text;
  for (const TextPart& part : parts) part.write(text, part.value);
  return text.str();
}

void fail_with(std::initializer_list<TextPart> parts) {
  throw Error(concat_parts(parts));
}

}  // namespace heed
