#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

namespace heed {

/// Element type of a tensor. Comparisons and masks use i32 (0 or 1); f64 exists on the CPU for gradient
/// checks; f16 (IEEE binary16) and bf16 (the upper half of an f32) exist on Vulkan devices, where they halve
/// memory and traffic: they are for storage, and kernels compute in f32.
enum class DType : std::uint8_t { f32, f64, i32, f16, bf16 };

constexpr bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}
constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f64 ? 8 : is_half(dtype) ? 2 : 4;
}
constexpr bool is_floating(DType dtype) {
  return dtype != DType::i32;
}
/// The type of what a kernel keeps beside a result, such as a row's mean, and of losses: f32 for the half
/// types, else the type itself.
constexpr DType statistics_type(DType dtype) {
  return is_half(dtype) ? DType::f32 : dtype;
}
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"f32", "f64", "i32", "f16", "bf16"};
  return names[static_cast<int>(dtype)];
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
