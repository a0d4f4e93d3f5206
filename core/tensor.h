#pragma once

#include <concepts>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "heed/core/device.h"
#include "heed/core/dtype.h"
#include "heed/core/shape.h"
#include "heed/core/storage.h"

namespace heed {

struct Node;  // the autograd record of how a tensor was made (autograd/node.h)

/// What a tensor is made of on the host: other types, such as std::int64_t, are refused when the program is compiled.
template <class T>
concept TensorElement = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t>;

/// A handle to a strided view of a storage. Copying a Tensor never copies data: both copies see
/// the same elements. A tensor with a node is tracked by autograd. Shapes, strides and offsets
/// count elements, not bytes. A handle that was never given a value is undefined: asking it for anything but
/// defined(), tracked() and the like throws an Error that names the call.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // Not of a temporary: `x[0] = y` would change nothing and does not compile.
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
  /// 0, 1, ..., count - 1.
  static Tensor arange(std::int64_t count, DType dtype = DType::i32, Device device = {});
  /// Copies host values (row-major); throws when their number is not shape.count().
  template <TensorElement T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = {});
  template <TensorElement T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values), shape, device);
  }
  /// from({1, 2, 3, 4}, {2, 2}); {0.5, 1.5} are doubles, from<float>({0.5, 1.5}, {2}) makes them f32.
  template <TensorElement T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values.begin(), values.size()), shape, device);
  }
  /// from<float>({{1, 2}, {3, 4}}): the rows of a matrix; throws when they differ in length.
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
  const Shape& shape() const { return of_defined("shape", shape_); }
  const Shape& strides() const { return of_defined("strides", strides_); }
  int rank() const { return of_defined("rank", shape_).rank(); }
  /// The extent of an axis; negative axes count from the end.
  std::int64_t size(int axis) const { return of_defined("size", shape_).at(axis); }
  std::int64_t stride(int axis) const { return of_defined("stride", strides_).at(axis); }
  std::int64_t count() const { return of_defined("count", shape_).count(); }
  std::int64_t offset() const { return of_defined("offset", offset_); }
  DType dtype() const { return of_defined("dtype", dtype_); }
  Device device() const { return of_defined("device", storage_)->device(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  /// True when the elements lie row-major without gaps.
  bool is_contiguous() const;
  /// True when nobody else sees the storage, neither another handle nor who lent it, so that an op may overwrite it.
  bool is_sole_owner() const { return storage_.use_count() == 1 && !storage_->is_lent(); }

  /// Address of the first element; throws unless T matches the dtype and the host can see the memory.
  template <TensorElement T>
  T* data() const;
  /// The elements in row-major order, copied to the host; throws unless T matches the dtype.
  template <TensorElement T>
  std::vector<T> to_vector() const;
  /// The same of any dtype as doubles, converted on the host.
  std::vector<double> to_doubles() const;
  /// The only element of a tensor of any dtype, as a double; throws when count() != 1.
  double item() const;
  /// Overwrites the elements with host values, in place; throws when their number differs or
  /// the view has gaps. backward() of what was computed from the old ones, and needs them, is an error then.
  template <TensorElement T>
  void assign(std::span<const T> values) const;

  // Differentiable, from the op layer (autograd/):
  /// The index-th part along the first axis (negative: from the end), which disappears: select(x, 0, index).
  Tensor operator[](std::int64_t index) const;
  /// The same values in another type, or on another device; x itself where they are already.
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;

  /// Views share the storage and are never tracked: the differentiable forms live in autograd/ops.h.
  Tensor view(const Shape& shape) const;  ///< Same elements, other shape; throws unless contiguous.
  Tensor view(const Shape& shape, const Shape& strides, std::int64_t offset) const;

  /// The same elements without the autograd record.
  Tensor detach() const {
    Tensor copy = *this;
    copy.node_.reset();
    return copy;
  }
  bool tracked() const { return node_ != nullptr; }
  const std::shared_ptr<Node>& node() const { return node_; }
  /// The same elements with the given record; used by the op layer.
  Tensor with_node(std::shared_ptr<Node> node) const {
    Tensor copy = *this;
    copy.node_ = std::move(node);
    return copy;
  }

 private:
  template <class Field>
  const Field& of_defined(const char* call, const Field& field) const {
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

/// The elements in nested brackets with type, shape and device behind them, as NumPy prints: more than 1000 are
/// summarised by the first and last three of each axis. Waits for the device; "undefined" for an undefined tensor.
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace heed
