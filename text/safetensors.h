#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "heed/core/low_precision.h"
#include "heed/core/tensor.h"

namespace heed {

// Conversions of 16-bit floating-point numbers in files, in addition to core/low_precision.h.

/// Converts IEEE 754 binary16 to f32, exactly.
inline float f16_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16,
                      exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent > 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float small = std::ldexp(static_cast<float>(fraction), -24);
  return sign ? -small : small;
}

/// Returns the nearest binary16, ties to even; infinity from 65520 on, which would round beyond
/// 65504.
inline std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const auto with_sign = [&](std::uint32_t half) { return static_cast<std::uint16_t>(sign | half); };
  if (magnitude > 0x7f800000u) return with_sign(0x7e00u);   // not a number
  if (magnitude >= 0x477ff000u) return with_sign(0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u)                              // below 2^-14: a multiple of 2^-24
    return with_sign(
        static_cast<std::uint32_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24))));
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return with_sign(((magnitude + 0xfffu + odd) >> 13) - (112u << 10));
}

class FileWriter;

/// The content of a safetensors file: named tensors and named texts. Maps keep the names in a fixed
/// order.
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// The tensors of a file that heed cannot represent, by name, and the reason.
using UnsupportedTensors = std::map<std::string, std::string>;

/// Reads a safetensors file (8 bytes header length, JSON header, raw little-endian data). F32, F64
/// and I32 keep their type; F16 and BF16 become f32, exactly; I64 becomes i32 if every value fits.
/// Anything else throws an Error that names the file, the tensor and the fault: other types, more
/// than 8 axes, a damaged header, holes, overlaps, duplicate names. With `unread`, tensors of other
/// types or with too many axes are listed there instead, for callers that need only some tensors.
TensorFile load_safetensors(const std::filesystem::path& path, Device device = {},
                            UnsupportedTensors* unread = nullptr);
/// Parses a safetensors file in memory, as load_safetensors does. `source` names the bytes in
/// errors.
TensorFile parse_safetensors(std::string_view bytes, std::string_view source, Device device = {},
                             UnsupportedTensors* unread = nullptr);

/// The stored type of f32 tensors: unchanged, or rounded to the nearest 16-bit number.
enum class StoredFloat { f32, f16, bf16 };

/// Writes a safetensors file atomically (see write_file_atomically). Equal content gives equal
/// bytes: wider types come first, so that all data is aligned, then names in order; the header is
/// padded to 8 bytes. Throws if a name or text is not UTF-8, a name is "__metadata__", a tensor is
/// undefined, or a finite number overflows the stored 16-bit type.
void save_safetensors(const std::filesystem::path& path, const TensorFile& content,
                      StoredFloat stored = StoredFloat::f32);
/// Writes a safetensors file to an open file.
void write_safetensors(FileWriter& file, const TensorFile& content, StoredFloat stored = StoredFloat::f32);
/// Returns the bytes of a safetensors file, for messages.
std::string safetensors_text(const TensorFile& content, StoredFloat stored = StoredFloat::f32);

// Checks and copies of named tensors.

/// Throws an Error that names `what`, the tensor and the first element that is not finite, and ends
/// with `reason`. An undefined tensor, which another process owns, passes.
void check_finite(const Tensor& tensor, const std::string& name, std::string_view what,
                  std::string_view reason);
/// Checks that saved tensors and targets have exactly the same names, shapes and dtypes and that
/// all values are finite; otherwise throws an Error naming `what` and the first tensor that is
/// missing, differs, is unknown or has a value that is not finite.
void check_named_tensors(const std::map<std::string, Tensor>& saved,
                         std::span<const std::pair<std::string, Tensor>> targets, std::string_view what);
/// Copies elements through the host, because the tensors may be on different devices. Both have the
/// same shape and dtype: f32, f64 or i32.
void copy_elements(const Tensor& from, const Tensor& to);
/// Copies saved tensors to the targets of the same names, after check_named_tensors().
void copy_named_tensors(const std::map<std::string, Tensor>& saved,
                        std::span<const std::pair<std::string, Tensor>> targets, std::string_view what);

}  // namespace heed
