#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <ostream>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/device.h"

namespace heed {

/// Element type of a tensor. Comparisons and masks use i32 (0 or 1). f64 exists on the CPU only,
/// for gradient checks. f16 (IEEE binary16) and bf16 (the upper half of an f32) exist on Vulkan
/// devices, where they halve memory and traffic: they are storage types, and kernels compute in
/// f32.
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
/// A token sequence as ids, which tensors hold as i32.
using Tokens = std::vector<std::int32_t>;

/// The type of losses and of statistics that a kernel stores with its result, such as the mean of a
/// row: f32 for the half types, otherwise the type itself.
constexpr DType statistics_type(DType dtype) {
  return is_half(dtype) ? DType::f32 : dtype;
}
/// Returns the largest number of a floating type below `high`, or `low` when none lies between: the
/// upper limit of a uniform number in [low, high) that is rounded to this type.
double last_below(double low, double high, DType dtype);
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"f32", "f64", "i32", "f16", "bf16"};
  return names[static_cast<int>(dtype)];
}
inline std::ostream& operator<<(std::ostream& out, DType dtype) {
  return out << name_of(dtype);
}

/// The C++ types of host elements. Any other type, such as std::int64_t, is a compile-time error.
template <class T>
concept TensorElement = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t>;

/// The DType of a host element type.
template <TensorElement T>
inline constexpr DType dtype_of = std::same_as<T, float>    ? DType::f32
                                  : std::same_as<T, double> ? DType::f64
                                                            : DType::i32;

/// A short list of extents (or strides), at most `max_rank` long, held inline.
class Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) {
    check(extents.size() <= max_rank, "a shape has at most ", max_rank, " dimensions, got ", extents.size());
    for (std::int64_t extent : extents) push_back(extent);
  }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t operator[](int i) const { return extents_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return extents_[static_cast<std::size_t>(i)]; }
  /// The extent of an axis that may be negative (counted from the end).
  std::int64_t at(int axis) const { return (*this)[resolve(axis)]; }
  /// Maps an axis in [-rank, rank) to [0, rank); throws for any other.
  int resolve(int axis) const {
    check(axis >= -rank_ && axis < rank_, "axis ", axis, " is out of range for rank ", rank_);
    return axis < 0 ? axis + rank_ : axis;
  }
  void push_back(std::int64_t extent) {
    check(rank_ < max_rank, "a shape has at most ", max_rank, " dimensions");
    (*this)[rank_++] = extent;
  }
  /// Number of elements: the product of all extents (1 for rank 0).
  std::int64_t count() const {
    std::int64_t product = 1;
    for (std::int64_t extent : *this) product *= extent;
    return product;
  }

  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }
  std::int64_t* begin() { return extents_.data(); }
  std::int64_t* end() { return extents_.data() + rank_; }

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '[';
    for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
    return out << ']';
  }

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

/// Row-major strides, in elements.
Shape contiguous_strides(const Shape& shape);
/// The shape that `a` and `b` broadcast to (NumPy rules); throws an Error that names `op` when they
/// do not.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

/// A block of device memory. Backends derive from it; the destructor gives the memory back to their
/// pool.
class Storage {
 public:
  virtual ~Storage() = default;
  Storage& operator=(Storage&&) = delete;

  Device device() const { return device_; }
  std::size_t bytes() const { return bytes_; }
  /// Address of the first byte when the host can read and write the memory directly; null
  /// otherwise.
  void* host_data() const { return host_data_; }
  /// True when the memory belongs to code outside heed, which can see it too: no op overwrites it,
  /// even when only one tensor holds it.
  bool is_borrowed() const { return is_lent_; }

  /// The number of times that the elements were overwritten in place. backward() refuses a tensor
  /// that was overwritten after recording. Writes through host_data() do not count.
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void overwritten() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// Data that kernels derived from the elements, such as a packed copy; null once these are overwritten.
  const void* derived() const { return derived_version_ == version() ? derived_.get() : nullptr; }
  void keep_derived(std::shared_ptr<const void> data) {
    derived_ = std::move(data);
    derived_version_ = version();
  }

 protected:
  Storage(Device device, std::size_t bytes, void* host_data, bool is_borrowed = false)
      : device_(device), bytes_(bytes), host_data_(host_data), is_lent_(is_borrowed) {}

 private:
  Device device_;
  std::size_t bytes_;
  void* host_data_;
  bool is_lent_;
  std::atomic<std::uint64_t> version_{0};
  std::shared_ptr<const void> derived_;
  std::uint64_t derived_version_ = 0;
};

struct Node;  // the autograd record of how a tensor was made (autograd/graph.h)

/// A handle to a strided view of a storage. Copying a Tensor never copies data: both copies see the
/// same elements. A tensor with a node is tracked by autograd. Shapes, strides and offsets count
/// elements, not bytes. A default-constructed tensor is undefined: every call on it but defined(),
/// tracked() and the like throws an Error that names the call.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // Lvalues only: `x[0] = y` would change nothing, so it does not compile.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  ~Tensor() = default;
  Tensor(std::shared_ptr<Storage> storage, std::int64_t offset, Shape shape, Shape strides, DType dtype)
      : storage_(std::move(storage)), offset_(offset), shape_(shape), strides_(strides), dtype_(dtype) {}

  /// A new contiguous tensor whose elements are not initialised.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {});
  /// A new contiguous tensor with every element equal to `value`.
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = {});
  /// The values 0, 1, ..., count - 1.
  static Tensor arange(std::int64_t count, DType dtype = DType::i32, Device device = {});
  /// Copies host values in row-major order; throws unless there are shape.count() of them.
  template <TensorElement T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = {});
  template <TensorElement T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values), shape, device);
  }
  /// Copies a list of values: from({1, 2, 3, 4}, {2, 2}). Literals such as {0.5, 1.5} are doubles;
  /// from<float>({0.5, 1.5}, {2}) makes them f32.
  template <TensorElement T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values.begin(), values.size()), shape, device);
  }
  /// Copies the rows of a matrix: from<float>({{1, 2}, {3, 4}}). Throws when they differ in length.
  template <TensorElement T>
  static Tensor from(std::initializer_list<std::initializer_list<T>> rows, Device device = {}) {
    std::vector<T> values;
    for (const std::initializer_list<T>& row : rows) {
      check(row.size() == rows.begin()->size(), "from: the rows of a matrix have ", rows.begin()->size(),
            " and ", row.size(), " elements");
      values.insert(values.end(), row.begin(), row.end());
    }
    const auto count = static_cast<std::int64_t>(rows.size());
    return from(values, {count, count ? static_cast<std::int64_t>(rows.begin()->size()) : 0}, device);
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return checked_field("shape", shape_); }
  const Shape& strides() const { return checked_field("strides", strides_); }
  int rank() const { return checked_field("rank", shape_).rank(); }
  /// The extent of an axis; negative axes count from the end.
  std::int64_t size(int axis) const { return checked_field("size", shape_).at(axis); }
  std::int64_t stride(int axis) const { return checked_field("stride", strides_).at(axis); }
  std::int64_t count() const { return checked_field("count", shape_).count(); }
  std::int64_t offset() const { return checked_field("offset", offset_); }
  DType dtype() const { return checked_field("dtype", dtype_); }
  Device device() const { return checked_field("device", storage_)->device(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  /// True when the elements are row-major without gaps.
  bool is_contiguous() const;
  /// True when no other handle and no outside owner sees the storage, so that an op may overwrite
  /// it.
  bool is_sole_owner() const { return storage_.use_count() == 1 && !storage_->is_borrowed(); }

  /// Address of the first element; throws unless T matches the dtype and the host can see the
  /// memory.
  template <TensorElement T>
  T* data() const;
  /// The elements in row-major order, copied to the host; throws unless T matches the dtype.
  template <TensorElement T>
  std::vector<T> to_vector() const;
  /// Like to_vector(), for any dtype: the elements converted to doubles on the host.
  std::vector<double> to_doubles() const;
  /// The only element of a tensor of any dtype, as a double; throws when count() != 1.
  double item() const;
  /// Overwrites the elements in place with host values, in views too. Throws if their number differs
  /// or the view repeats elements. A later backward() that needs the old elements throws.
  template <TensorElement T>
  void assign(std::span<const T> values) const;

  // Differentiable; implemented by the op layer (autograd/).
  /// Part `index` along the first axis (negative: from the end), without that axis: select(x, 0,
  /// index).
  Tensor operator[](std::int64_t index) const;
  /// Returns the values in another dtype or on another device; x itself when nothing changes.
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;

  /// Views share the storage and are never tracked: the differentiable forms live in
  /// autograd/ops.h.
  Tensor view(const Shape& shape) const;  ///< Same elements, other shape; throws unless contiguous.
  Tensor view(const Shape& shape, const Shape& strides, std::int64_t offset) const;

  /// Returns the elements without the autograd record.
  Tensor detach() const {
    Tensor copy = *this;
    copy.node_.reset();
    return copy;
  }
  bool tracked() const { return node_ != nullptr; }
  const std::shared_ptr<Node>& node() const { return node_; }
  /// Returns the elements with the given autograd record; used by the op layer.
  Tensor with_node(std::shared_ptr<Node> node) const {
    Tensor copy = *this;
    copy.node_ = std::move(node);
    return copy;
  }

 private:
  template <class Field>
  const Field& checked_field(const char* call, const Field& field) const {
    if (!storage_) [[unlikely]]
      throw_undefined(call);
    return field;
  }
  [[noreturn]] static void throw_undefined(const char* call);

  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;
  Shape shape_;
  Shape strides_;
  DType dtype_ = DType::f32;
  std::shared_ptr<Node> node_;
};

/// Prints the elements in nested brackets, followed by dtype, shape and device, in NumPy's style.
/// Tensors of more than 1000 elements are summarised by the first and last three of each axis.
/// Waits for the device; prints "undefined" for an undefined tensor.
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace heed
