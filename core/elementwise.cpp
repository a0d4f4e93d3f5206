#include "heed/core/elementwise.h"

namespace heed {

const char* name_of(UnaryOp op) {
  static constexpr const char* names[] = {
#define HEED_UNARY(name, ...) #name,
#include "heed/core/elementwise.def"
  };
  return names[static_cast<int>(op)];
}

const char* name_of(BinaryOp op) {
  static constexpr const char* names[] = {
#define HEED_BINARY(name, ...) #name,
#include "heed/core/elementwise.def"
  };
  return names[static_cast<int>(op)];
}

const char* name_of(CompareOp op) {
  static constexpr const char* names[] = {
#define HEED_COMPARE(name, ...) #name,
#include "heed/core/elementwise.def"
  };
  return names[static_cast<int>(op)];
}

}  // namespace heed
