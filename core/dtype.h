#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

namespace heed {

/// Element type of a tensor. Comparisons and masks use i32 (0 or 1); f64 exists on the CPU for gradient
/// checks.
enum class DType : std::uint8_t { f32, f64, i32 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f64 ? 8 : 4;
}
constexpr bool is_floating(DType dtype) {
  return dtype != DType::i32;
}
constexpr std::string_view name_of(DType dtype) {
  return dtype == DType::f32 ? "f32" : dtype == DType::f64 ? "f64" : "i32";
}
inline std::ostream& operator<<(std::ostream& out, DType dtype) {
  return out << name_of(dtype);
}

/// Maps a C++ type to its DType: float, double, std::int32_t.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace heed
