#pragma once

#include <cstdint>

namespace heed {

/// The operations of core/elementwise.def.
enum class UnaryOp : std::uint8_t {
#define HEED_UNARY(name, ...) name,
#include "heed/core/elementwise.def"
};
/// The activations that a matrix product can apply to its result (autograd/ops.h, feed_forward).
inline constexpr UnaryOp activation_ops[] = {
#define HEED_ACTIVATION(name, ...) UnaryOp::name,
#include "heed/core/elementwise.def"
};
enum class BinaryOp : std::uint8_t {
#define HEED_BINARY(name, ...) name,
#include "heed/core/elementwise.def"
};
enum class CompareOp : std::uint8_t {
#define HEED_COMPARE(name, ...) name,
#include "heed/core/elementwise.def"
};

/// The parameters `p` and `q` of a unary operation; 0 when it takes none.
struct UnaryParams {
  double p = 0;
  double q = 0;
};

inline const char* name_of(UnaryOp op) {
  static constexpr const char* names[] = {
#define HEED_UNARY(name, ...) #name,
#include "heed/core/elementwise.def"
  };
  return names[static_cast<int>(op)];
}
inline const char* name_of(BinaryOp op) {
  static constexpr const char* names[] = {
#define HEED_BINARY(name, ...) #name,
#include "heed/core/elementwise.def"
  };
  return names[static_cast<int>(op)];
}
inline const char* name_of(CompareOp op) {
  static constexpr const char* names[] = {
#define HEED_COMPARE(name, ...) #name,
#include "heed/core/elementwise.def"
  };
  return names[static_cast<int>(op)];
}

}  // namespace heed
