#pragma once

#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

#include "heed/autograd/node.h"
#include "heed/core/backend.h"

// What the files of the op layer share.

namespace heed {

/// Like record(), but also when no input is tracked: for segments whose parameters are hidden inside.
Tensor record_always(const char* op, const Tensor& out, std::span<const Tensor> inputs,
                     BackwardFunction backward, std::span<const Tensor* const> reads = {});

/// Whether ops on these inputs would be recorded. Where recording is off, leaves among them are noted for NotedLeaves.
bool is_recorded(std::span<const Tensor> inputs);
inline bool is_recorded(std::initializer_list<Tensor> inputs) {
  return is_recorded(std::span(inputs.begin(), inputs.size()));
}

/// While one lives, what ops on this thread that are not recorded read of leaves.
class NotedLeaves {
 public:
  NotedLeaves();
  ~NotedLeaves();
  NotedLeaves(const NotedLeaves&) = delete;
  NotedLeaves& operator=(const NotedLeaves&) = delete;
  std::vector<Tensor> leaves;  ///< untracked, one of each storage

 private:
  NotedLeaves* previous_;
};

inline Tensor empty_like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), x.device());
}

/// The gradient's own memory when nobody else sees it, so that a backward pass needs no second
/// tensor; else new memory.
inline Tensor reuse_or_empty(const Tensor& grad) {
  return grad.is_sole_owner() && grad.is_contiguous() ? grad : empty_like(grad);
}

/// Throws unless all tensors are defined, of one device and one dtype.
template <class... Tensors>
void check_same(const char* op, const Tensor& first, const Tensors&... others) {
  check(first.defined() && (others.defined() && ...), op, ": an operand is undefined");
  check(((others.dtype() == first.dtype()) && ...), op, ": operands of different types: ", first.dtype(),
        (concat_text(" and ", others.dtype()) + ...));
  check(((others.device() == first.device()) && ...), op, ": operands on different devices: ", first.device(),
        (concat_text(" and ", others.device()) + ...));
}

inline void check_floating(const char* op, const Tensor& x) {
  check(x.defined(), op, ": the operand is undefined");
  check(is_floating(x.dtype()), op, ": needs a floating type, got ", x.dtype());
}

inline void check_indices(const char* op, const Tensor& ids) {
  check(ids.defined() && ids.dtype() == DType::i32, op, ": indices and masks have type i32, got ",
        ids.defined() ? name_of(ids.dtype()) : "an undefined tensor");
}

/// An axis that may be negative as one in [0, rank). Throws for an undefined tensor and any other axis.
inline int resolve_axis(const char* op, const Tensor& x, int axis) {
  check(x.defined(), op, ": the operand is undefined");
  check(axis >= -x.rank() && axis < x.rank(), op, ": axis ", axis, " is out of range for shape ", x.shape());
  return axis < 0 ? axis + x.rank() : axis;
}

/// How many rows a tensor has that is seen as [rows, last extent]; right also where the last extent is 0.
inline std::int64_t row_count(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

/// Positions along an axis are i32.
inline void check_positions(const char* op, std::int64_t extent) {
  check(extent <= std::numeric_limits<std::int32_t>::max(), op, ": an axis of ", extent,
        " elements is too long for indices of type i32");
}

/// Whether the derivative of a unary op is of its operand; else it is of its result.
bool derivative_of_operand(UnaryOp op);
/// x seen as [outer, n, inner] around `axis`, contiguous.
Tensor around_axis(const Tensor& x, int axis);
/// The strides of x seen in the shape it broadcasts to (0 where repeated). Untracked.
Tensor broadcast_view(const Tensor& x, const Shape& shape);

}  // namespace heed
