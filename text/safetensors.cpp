#include "heed/text/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>
#include <vector>

#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

namespace heed {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's own limit
constexpr int most_levels = 4;                           // of nested objects and lists in a header
constexpr const char* metadata_name = "__metadata__";

/// The type of an element in the file.
enum class FileType { f32, f64, i32, i64, f16, bf16 };

std::size_t size_of(FileType type) {
  return type == FileType::f64 || type == FileType::i64    ? 8
         : type == FileType::f16 || type == FileType::bf16 ? 2
                                                           : 4;
}

/// The place of one tensor in the data after the header.
struct Entry {
  std::string name;
  FileType type = FileType::f32;
  Shape shape = {};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string unread = {};  // why heed cannot hold it; then type or shape are unknown
};

json parse_header(std::string_view text, std::string_view source) {
  const std::string what = concat_text(source, ": the header");
  json header = parse_json<json>(text, what, most_levels);
  check(header.is_object(), what, " is not a JSON object");
  // For members with the same name, json silently keeps the last. This pass stores nothing, which
  // makes it linear.
  std::vector<std::unordered_set<std::string>> names(most_levels + 1);  // of the open object of each level
  const auto check_names = [&](int level, json::parse_event_t event, const json& name) {
    if (event == json::parse_event_t::object_start) names[static_cast<std::size_t>(level) + 1].clear();
    if (event == json::parse_event_t::key)
      check(names[static_cast<std::size_t>(level)].insert(name.get<std::string>()).second, what, " names ",
            name.dump(), " twice");
    return false;
  };
  [[maybe_unused]] const json nothing = json::parse(text, check_names);
  return header;
}

/// Sets the type, or the reason why heed cannot read it.
void read_type(const json& entry, const std::string& where, Entry& into) {
  const json dtype = entry.value("dtype", json());
  check(dtype.is_string(), where, " has no dtype");
  const auto& name = dtype.get_ref<const std::string&>();
  static constexpr std::pair<const char*, FileType> types[] = {
      {"F32", FileType::f32}, {"F64", FileType::f64}, {"I32", FileType::i32},
      {"I64", FileType::i64}, {"F16", FileType::f16}, {"BF16", FileType::bf16}};
  const auto* const found = std::ranges::find(types, name, &std::pair<const char*, FileType>::first);
  if (found != std::end(types))
    into.type = found->second;
  else
    into.unread = concat_text(where, " has dtype ", name,
                              "; heed reads F32, F64, F16, BF16, I32 and I64: convert the file first");
}

/// Sets the shape, or the reason why heed cannot read it.
void read_shape(const json& entry, const std::string& where, Entry& into) {
  const json extents = entry.value("shape", json());
  check(extents.is_array(), where, " has no shape");
  if (extents.size() > Shape::max_rank)
    into.unread =
        concat_text(where, " has ", extents.size(), " axes; at most ", Shape::max_rank, " are supported");
  for (const json& extent : extents) {
    check(extent.is_number_unsigned() &&
              extent.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max(),
          where, " has a shape with the extent ", extent.dump());
    if (extents.size() <= Shape::max_rank) into.shape.push_back(extent.get<std::int64_t>());
  }
}

/// Returns the size of a tensor in bytes. Throws if it overflows 63 bits. The other extents next to
/// a zero must not overflow either, since strides are computed from them.
std::uint64_t bytes_of(const Shape& shape, FileType type, const std::string& where) {
  const std::string what = concat_text(where, " has the impossible shape ", shape);
  auto bytes = static_cast<std::int64_t>(size_of(type));
  for (const std::int64_t extent : shape)
    bytes = checked_product(what, bytes, std::max<std::int64_t>(extent, 1));
  const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return is_empty ? 0 : static_cast<std::uint64_t>(bytes);
}

Entry parse_entry(const std::string& name, const json& value, std::uint64_t data_bytes,
                  std::string_view source) {
  const std::string where = concat_text(source, ": tensor \"", name, "\"");
  check(value.is_object(), where, " is described by something that is not an object");
  for (const auto& [key, unused] : value.items()) {
    check(key == "dtype" || key == "shape" || key == "data_offsets", where, " has the unknown property \"",
          key, "\"");
  }
  Entry entry{name};
  read_type(value, where, entry);
  read_shape(value, where, entry);
  const json offsets = value.value("data_offsets", json());
  check(offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
            offsets[1].is_number_unsigned(),
        where, " has no data_offsets [begin, end]");
  entry.begin = offsets[0].get<std::uint64_t>();
  entry.end = offsets[1].get<std::uint64_t>();
  check(entry.begin <= entry.end && entry.end <= data_bytes, where, " has data_offsets [", entry.begin, ", ",
        entry.end, "], but the file holds ", data_bytes, " bytes of data");
  if (!entry.unread.empty()) return entry;
  const std::uint64_t expected = bytes_of(entry.shape, entry.type, where);
  check(entry.end - entry.begin == expected, where, " has ", entry.end - entry.begin,
        " bytes of data, but its shape ", entry.shape, " needs ", expected);
  return entry;
}

/// Returns all tensors of a header, and stores its metadata in `metadata`.
std::vector<Entry> parse_entries(const json& header, std::uint64_t data_bytes, std::string_view source,
                                 std::map<std::string, std::string>& metadata) {
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != metadata_name) {
      entries.push_back(parse_entry(name, value, data_bytes, source));
      continue;
    }
    check(value.is_object(), source, ": ", metadata_name, " is not an object");
    for (const auto& [key, text] : value.items()) {
      check(text.is_string(), source, ": the metadata \"", key, "\" is not a text");
      metadata[key] = text.get<std::string>();
    }
  }
  return entries;
}

/// Checks that tensors cover the data exactly once, so that nothing hides in a hole and no two
/// tensors share bytes.
void check_layout(std::vector<Entry> entries, std::uint64_t data_bytes, std::string_view source) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t position = 0;
  for (const Entry& entry : entries) {
    check(entry.begin == position, source, ": the data of tensor \"", entry.name, "\" begins at byte ",
          entry.begin, " where byte ", position, " was expected: tensors overlap or leave a hole");
    position = entry.end;
  }
  check(position == data_bytes, source, ": the tensors take ", position, " bytes, but the file holds ",
        data_bytes, " bytes of data");
}

template <class T>
std::vector<T> as_element_vector(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Converts i64 to i32. Returns an undefined tensor if a value does not fit, with the reason in
/// `unread`.
Tensor from_i64(std::string_view bytes, Entry& entry, std::string_view source, Device device) {
  const auto wide = as_element_vector<std::int64_t>(bytes);
  std::vector<std::int32_t> narrow(wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (!std::in_range<std::int32_t>(wide[i])) {
      entry.unread = concat_text(source, ": tensor \"", entry.name, "\" holds ", wide[i], " at element ", i,
                                 ", which does not fit 32 bits");
      return {};
    }
    narrow[i] = static_cast<std::int32_t>(wide[i]);
  }
  return Tensor::from(narrow, entry.shape, device);
}

Tensor from_half(std::string_view bytes, const Entry& entry, Device device) {
  std::vector<float> values;
  for (const std::uint16_t half : as_element_vector<std::uint16_t>(bytes))
    values.push_back(entry.type == FileType::f16 ? f16_to_float(half) : bf16_to_float(half));
  return Tensor::from(values, entry.shape, device);
}

Tensor read_tensor(std::string_view data, Entry& entry, std::string_view source, Device device) {
  const std::string_view bytes = data.substr(entry.begin, entry.end - entry.begin);
  switch (entry.type) {
    case FileType::f32:
      return Tensor::from(as_element_vector<float>(bytes), entry.shape, device);
    case FileType::f64:
      return Tensor::from(as_element_vector<double>(bytes), entry.shape, device);
    case FileType::i32:
      return Tensor::from(as_element_vector<std::int32_t>(bytes), entry.shape, device);
    case FileType::i64:
      return from_i64(bytes, entry, source, device);
    case FileType::f16:
    case FileType::bf16:
      return from_half(bytes, entry, device);
  }
  fail("unreachable");
}

const char* stored_type_name(DType dtype, StoredFloat stored) {
  if (dtype == DType::f32 && stored != StoredFloat::f32) return stored == StoredFloat::f16 ? "F16" : "BF16";
  return dtype == DType::f32 ? "F32" : dtype == DType::f64 ? "F64" : "I32";
}

std::size_t stored_size(DType dtype, StoredFloat stored) {
  return dtype == DType::f32 && stored != StoredFloat::f32 ? 2 : size_of(dtype);
}

/// Returns the tensors in the order in which they are written.
std::vector<std::pair<std::string, Tensor>> in_file_order(const TensorFile& content, StoredFloat stored) {
  std::vector<std::pair<std::string, Tensor>> order;
  for (const auto& [name, tensor] : content.tensors) {
    check(tensor.defined(), "cannot save tensor \"", name, "\": it is undefined");
    check(name != metadata_name, "cannot save a tensor with the reserved name \"", metadata_name, "\"");
    order.emplace_back(name, tensor);
  }
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return stored_size(a.second.dtype(), stored) > stored_size(b.second.dtype(), stored);
  });
  return order;
}

std::string header_text(const std::vector<std::pair<std::string, Tensor>>& order, const TensorFile& content,
                        StoredFloat stored) {
  json header = json::object();
  if (!content.metadata.empty()) header[metadata_name] = content.metadata;
  std::uint64_t position = 0;
  for (const auto& [name, tensor] : order) {
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(tensor.count()) * stored_size(tensor.dtype(), stored);
    header[name] = {{"dtype", stored_type_name(tensor.dtype(), stored)},
                    {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {position, position + bytes}}};
    position += bytes;
  }
  try {
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    return text;
  } catch (const json::exception&) {
    fail("cannot save tensors: a name or a metadata text is not valid UTF-8");
  }
}

using Sink = std::function<void(std::string_view bytes)>;

template <class T>
void write_elements(const Sink& write, const Tensor& tensor) {
  if (tensor.storage()->host_data() && tensor.is_contiguous()) {
    write({reinterpret_cast<const char*>(tensor.data<T>()),
           static_cast<std::size_t>(tensor.count()) * sizeof(T)});
    return;
  }
  const std::vector<T> values = tensor.to_vector<T>();
  write({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

/// Writes a tensor in 16 bits. Throws for a finite number that overflows the type.
void write_half(const Sink& write, const std::string& name, const Tensor& tensor, StoredFloat stored) {
  std::vector<std::uint16_t> halves;
  for (const float value : tensor.to_vector<float>()) {
    halves.push_back(stored == StoredFloat::f16 ? float_to_f16(value) : float_to_bf16(value));
    const bool is_f16 = stored == StoredFloat::f16;
    const float held = is_f16 ? f16_to_float(halves.back()) : bf16_to_float(halves.back());
    check(std::isfinite(held) || !std::isfinite(value), "cannot save tensor \"", name, "\" as ",
          is_f16 ? "f16" : "bf16", ": it holds ", value, "; ", is_f16 ? "bf16" : "f32", " has room for it");
  }
  write({reinterpret_cast<const char*>(halves.data()), halves.size() * sizeof(std::uint16_t)});
}

void write_tensor(const Sink& write, const std::string& name, const Tensor& tensor, StoredFloat stored) {
  if (tensor.count() == 0) return;
  if (stored != StoredFloat::f32 && tensor.dtype() == DType::f32)
    return write_half(write, name, tensor, stored);
  switch (tensor.dtype()) {
    case DType::f32:
      return write_elements<float>(write, tensor);
    case DType::f64:
      return write_elements<double>(write, tensor);
    case DType::i32:
      return write_elements<std::int32_t>(write, tensor);
    case DType::f16:
    case DType::bf16:
      break;
  }
  fail("safetensors: tensors of type ", tensor.dtype(), " are not written; cast to f32");
}

void write_content(const std::string& header, const std::vector<std::pair<std::string, Tensor>>& order,
                   const Sink& write, StoredFloat stored) {
  const std::uint64_t header_bytes = header.size();
  write({reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes});
  write(header);
  for (const auto& [name, tensor] : order) write_tensor(write, name, tensor, stored);
}

}  // namespace

TensorFile load_safetensors(const std::filesystem::path& path, Device device, UnsupportedTensors* unread) {
  return parse_safetensors(read_file(path), path.string(), device, unread);
}

TensorFile parse_safetensors(std::string_view bytes, std::string_view source, Device device,
                             UnsupportedTensors* unread) {
  std::uint64_t header_bytes = 0;
  check(bytes.size() >= sizeof header_bytes, source, ": ", bytes.size(),
        " bytes are too few for a safetensors file");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  bytes.remove_prefix(sizeof header_bytes);
  check(header_bytes <= std::min<std::uint64_t>(bytes.size(), max_header_bytes), source,
        ": the header claims ", header_bytes, " bytes, but ", bytes.size(),
        " follow; the file is truncated or not a safetensors file");

  const std::string_view data = bytes.substr(header_bytes);
  TensorFile content;
  std::vector<Entry> entries = parse_entries(parse_header(bytes.substr(0, header_bytes), source), data.size(),
                                             source, content.metadata);
  check_layout(entries, data.size(), source);
  for (Entry& entry : entries) {
    Tensor tensor = entry.unread.empty() ? read_tensor(data, entry, source, device) : Tensor();
    if (entry.unread.empty()) {
      content.tensors[entry.name] = std::move(tensor);
      continue;
    }
    check(unread != nullptr, entry.unread);
    unread->emplace(entry.name, std::move(entry.unread));
  }
  return content;
}

void write_safetensors(FileWriter& file, const TensorFile& content, StoredFloat stored) {
  const auto order = in_file_order(content, stored);
  write_content(
      header_text(order, content, stored), order, [&](std::string_view bytes) { file.write(bytes); }, stored);
}

void save_safetensors(const std::filesystem::path& path, const TensorFile& content, StoredFloat stored) {
  write_file_atomically(path, [&](FileWriter& file) { write_safetensors(file, content, stored); });
}

std::string safetensors_text(const TensorFile& content, StoredFloat stored) {
  const auto order = in_file_order(content, stored);
  std::string text;
  write_content(
      header_text(order, content, stored), order, [&](std::string_view bytes) { text.append(bytes); },
      stored);
  return text;
}

// --- tensors by name

namespace {

template <class T>
void check_finite_as(const Tensor& tensor, const std::string& name, std::string_view what,
                     std::string_view reason) {
  const std::vector<T> values = tensor.to_vector<T>();
  for (std::size_t i = 0; i < values.size(); ++i)
    check(std::isfinite(values[i]), what, ": the tensor \"", name, "\" holds ", values[i], " at element ", i,
          ", but all numbers must be finite", reason);
}

}  // namespace

void check_finite(const Tensor& tensor, const std::string& name, std::string_view what,
                  std::string_view reason) {
  if (!tensor.defined()) return;
  if (tensor.dtype() == DType::f32) check_finite_as<float>(tensor, name, what, reason);
  if (tensor.dtype() == DType::f64) check_finite_as<double>(tensor, name, what, reason);
}

void check_named_tensors(const std::map<std::string, Tensor>& saved,
                         std::span<const std::pair<std::string, Tensor>> targets, std::string_view what) {
  std::set<std::string> expected;
  for (const auto& [name, target] : targets) {
    expected.insert(name);
    const auto found = saved.find(name);
    check(found != saved.end(), what, ": the tensor \"", name, "\" ", target.shape(), " is missing");
    const Tensor& source = found->second;
    check(source.shape() == target.shape() && source.dtype() == target.dtype(), what, ": the tensor \"", name,
          "\" is ", source.dtype(), " ", source.shape(), ", but ", target.dtype(), " ", target.shape(),
          " was expected");
    check_finite(source, name, what, ": it was saved by a diverged training, or the file was changed");
  }
  for (const auto& [name, source] : saved)
    check(expected.contains(name), what, ": unknown tensor \"", name, "\"");
}

void copy_elements(const Tensor& from, const Tensor& to) {
  switch (to.dtype()) {
    case DType::f32:
      return to.assign(std::span<const float>(from.to_vector<float>()));
    case DType::f64:
      return to.assign(std::span<const double>(from.to_vector<double>()));
    case DType::i32:
      return to.assign(std::span<const std::int32_t>(from.to_vector<std::int32_t>()));
    case DType::f16:
    case DType::bf16:
      break;
  }
  fail("copying tensors by name: ", to.dtype(), " is for computing, not for weights; cast to f32");
}

void copy_named_tensors(const std::map<std::string, Tensor>& saved,
                        std::span<const std::pair<std::string, Tensor>> targets, std::string_view what) {
  check_named_tensors(saved, targets, what);
  for (const auto& [name, target] : targets) copy_elements(saved.at(name), target);
}

}  // namespace heed
