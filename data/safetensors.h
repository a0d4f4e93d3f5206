#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "heed/core/tensor.h"

namespace heed {

class FileWriter;

/// Named tensors and named texts: the content of a safetensors file. Maps keep the order of names fixed.
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads a safetensors file (8 bytes header length, JSON header, raw little-endian data). F32, F64 and I32
/// keep their type; F16 and BF16 become f32, exactly; I64 becomes i32 when every value fits. Throws an Error that names
/// the file, the tensor and what is wrong for anything else: other types, more than 8 axes, a damaged header, holes,
/// overlaps, duplicate names.
TensorFile load_safetensors(const std::filesystem::path& path, Device device = {});
/// The same from memory; `source` names the bytes in errors.
TensorFile parse_safetensors(std::string_view bytes, std::string_view source, Device device = {});

/// How f32 is written: as it is, or rounded to the nearest number of 16 bits.
enum class StoredFloat { f32, f16, bf16 };

/// Writes a safetensors file atomically (see write_file_atomically). Equal content gives equal bytes: the
/// wider types come first, so that all data is aligned, and then names in order; the header is padded to 8
/// bytes. Throws when a name or text is not UTF-8, a name is "__metadata__", a tensor is undefined, or a finite number is
/// beyond f16.
void save_safetensors(const std::filesystem::path& path, const TensorFile& content,
                      StoredFloat stored = StoredFloat::f32);
/// The same into a file that is being written.
void write_safetensors(FileWriter& file, const TensorFile& content, StoredFloat stored = StoredFloat::f32);
/// The same bytes in memory, for messages.
std::string safetensors_text(const TensorFile& content, StoredFloat stored = StoredFloat::f32);

}  // namespace heed
