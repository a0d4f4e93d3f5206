#pragma once

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

/// A handle to a strided view of a storage. Copying a Tensor never copies data: both copies see
/// the same elements. A tensor with a node is tracked by autograd. Shapes, strides and offsets
/// count elements, not bytes.
class Tensor {
 public:
  Tensor() = default;
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
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = {});
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values), shape, device);
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  /// The extent of an axis; negative axes count from the end.
  std::int64_t size(int axis) const { return shape_.at(axis); }
  std::int64_t stride(int axis) const { return strides_.at(axis); }
  std::int64_t count() const { return shape_.count(); }
  std::int64_t offset() const { return offset_; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  /// True when the elements lie row-major without gaps.
  bool is_contiguous() const;
  /// True when no other handle shares the storage, so that an op may overwrite it.
  bool is_sole_owner() const { return storage_.use_count() == 1; }

  /// Address of the first element; throws unless T matches the dtype and the host can see the memory.
  template <class T>
  T* data() const;
  /// The elements in row-major order, copied to the host; throws unless T matches the dtype.
  template <class T>
  std::vector<T> to_vector() const;
  /// The same of any dtype as doubles, converted on the host.
  std::vector<double> to_doubles() const;
  /// The only element of a tensor of any dtype, as a double; throws when count() != 1.
  double item() const;
  /// Overwrites the elements with host values, in place; throws when their number differs or
  /// the view has gaps.
  template <class T>
  void assign(std::span<const T> values) const;

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
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;
  Shape shape_;
  Shape strides_;
  DType dtype_ = DType::f32;
  std::shared_ptr<Node> node_;
};

}  // namespace heed
