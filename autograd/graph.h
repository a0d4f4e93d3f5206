#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "heed/core/backend.h"
#include "heed/core/tensor.h"

namespace heed {

class Axes;  // ops.h

/// The gradients of an op's inputs, in order; undefined for inputs that need none.
using Gradients = std::vector<Tensor>;
/// Computes the gradients of the inputs from the gradient of the output. Runs with recording off.
/// It must capture only detached tensors: a closure that holds its own output would never be freed.
using BackwardFunction = std::function<Gradients(const Tensor& grad)>;

/// Computes the gradients of the inputs of an op with several outputs, from one gradient per
/// output. Gradients are undefined for outputs that received none.
using JointBackward = std::function<Gradients(std::span<const Tensor> grads)>;

/// The record of how a tensor was made. Ids increase with creation, so descending ids are a reverse
/// topological order.
struct Node {
  std::uint64_t id = 0;
  const char* op = "leaf";
  Shape shape;
  DType dtype = DType::f32;
  std::vector<std::shared_ptr<Node>> inputs;  ///< null where an input is not tracked
  BackwardFunction backward;                  ///< empty for a leaf, and after it has run
  /// A storage that `backward` reads and its version at recording; a later version means it was
  /// overwritten.
  struct Read {
    std::weak_ptr<const Storage> memory;
    std::uint64_t version;
  };
  std::vector<Read> reads;
  Tensor gradient;     ///< a leaf keeps it until zero_gradient()
  bool marked = true;  ///< of a leaf: for whoever trains it
  ~Node();             // unlinks long chains without recursion
};

/// Attaches a node to `out` when recording is on and an input is tracked; otherwise returns `out`
/// untracked. `reads` lists the tensors captured by `backward` that could be overwritten before it
/// runs (by Tensor::assign or an optimizer step); backward() then throws instead of computing a
/// wrong gradient. Undefined tensors in it are skipped.
Tensor record(const char* op, const Tensor& out, std::initializer_list<Tensor> inputs,
              BackwardFunction backward, std::initializer_list<const Tensor*> reads = {});
Tensor record(const char* op, const Tensor& out, std::span<const Tensor> inputs, BackwardFunction backward,
              std::span<const Tensor* const> reads = {});

/// Records an op with several outputs, whose gradients `backward` receives together. Each output
/// has a node that passes its gradient on to a joint node. The joint node is older, so it runs
/// after all of them.
std::vector<Tensor> record_joint(const char* op, std::span<const Tensor> outs, std::span<const Tensor> inputs,
                                 JointBackward backward, std::span<const Tensor* const> reads = {});

/// True for a leaf made by parameter().
bool is_leaf(const Tensor& tensor);

/// True when recording is on for this thread.
inline bool recording() {
  return current_scope.recording;
}

// Shared by the files of the op layer.

/// Records as record() does, even when no input is tracked: for segments that use parameters
/// inside.
Tensor record_always(const char* op, const Tensor& out, std::span<const Tensor> inputs,
                     BackwardFunction backward, std::span<const Tensor* const> reads = {});

/// True when an op on these inputs would be recorded. When recording is off, notes the leaves among
/// them for NotedLeaves.
bool would_record(std::span<const Tensor> inputs);
inline bool would_record(std::initializer_list<Tensor> inputs) {
  return would_record(std::span(inputs.begin(), inputs.size()));
}

/// Collects the leaves that unrecorded ops on this thread read while it lives.
class NotedLeaves : Scoped<&Scope::noted_leaves> {
 public:
  NotedLeaves() : Scoped(this) {}
  std::vector<Tensor> leaves;  ///< detached, one per storage
};

inline Tensor empty_like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), x.device());
}
inline Tensor empty_like(const Tensor& x, const Shape& shape) {
  return Tensor::empty(shape, x.dtype(), x.device());
}
/// Returns the shape with another extent along an axis.
inline Shape with_extent(Shape shape, int axis, std::int64_t extent) {
  shape[axis] = extent;
  return shape;
}
/// Returns x contiguous and untracked, as kernels read it; undefined when x is undefined.
Tensor plain(const Tensor& x);

/// Returns the gradient's own memory when nothing else uses it, which saves a tensor in the
/// backward pass; otherwise new memory.
inline Tensor reuse_or_empty(const Tensor& grad) {
  return grad.is_sole_owner() && grad.is_contiguous() ? grad : empty_like(grad);
}

inline void check_defined(const char* op, const Tensor& x) {
  check(x.defined(), op, ": the operand is undefined");
}

/// Throws unless all tensors are defined and share one device and one dtype.
template <class... Tensors>
void check_same(const char* op, const Tensor& first, const Tensors&... others) {
  check(first.defined() && (others.defined() && ...), op, ": an operand is undefined");
  if (((others.dtype() != first.dtype()) || ...))
    fail(op, ": operands of different types: ", first.dtype(), (concat_text(" and ", others.dtype()) + ...));
  if (((others.device() != first.device()) || ...))
    fail(op, ": operands on different devices: ", first.device(),
         (concat_text(" and ", others.device()) + ...));
}

inline void check_floating(const char* op, const Tensor& x) {
  check_defined(op, x);
  check(is_floating(x.dtype()), op, ": needs a floating type, got ", x.dtype());
}

inline void check_indices(const char* op, const Tensor& ids) {
  if (!ids.defined() || ids.dtype() != DType::i32)
    fail(op, ": indices and masks have type i32, got ",
         ids.defined() ? name_of(ids.dtype()) : "an undefined tensor");
}

/// Maps an axis that may be negative to [0, rank). Throws for an undefined tensor or an axis out of
/// range.
inline int resolve_axis(const char* op, const Tensor& x, int axis) {
  check_defined(op, x);
  check(axis >= -x.rank() && axis < x.rank(), op, ": axis ", axis, " is out of range for shape ", x.shape());
  return axis < 0 ? axis + x.rank() : axis;
}

/// The number of rows of a tensor seen as [rows, last extent]; correct even when the last extent is
/// 0.
inline std::int64_t row_count(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

/// Throws when an axis is too long for i32 indices.
inline void check_positions(const char* op, std::int64_t extent) {
  check(extent <= std::numeric_limits<std::int32_t>::max(), op, ": an axis of ", extent,
        " elements is too long for indices of type i32");
}

/// True when the derivative of a unary op is written in its operand x, false when in its result y.
bool derivative_reads_operand(UnaryOp op);
/// An axis with the product of the extents before it and the product of those after it.
struct AxisSplit {
  int at;
  std::int64_t outer = 1, extent = 1, inner = 1;

  AxisSplit(const char* op, const Tensor& x, int axis) : at(resolve_axis(op, x, axis)), extent(x.size(at)) {
    for (int i = 0; i < x.rank(); ++i)
      if (i != at) (i < at ? outer : inner) *= x.size(i);
  }
  /// The shape in which kernels see a tensor with this axis.
  Shape shape() const { return {outer, extent, inner}; }
};
/// The largest magnitude along the axes, which are kept, but not 0: the squares of x divided by it
/// neither overflow nor all vanish. Untracked.
Tensor scale_of_squares(const Tensor& x, const Axes& axes);
/// x broadcast to `shape` as a view with stride 0 on repeated axes. Untracked.
Tensor broadcast_view(const Tensor& x, const Shape& shape);

/// linear_cross_entropy computes its gradients along with its result, before the gradient of the
/// result is known. While this object lives on the thread, the op assumes `expected` for that
/// gradient (f32, one element; undefined = 1), so that a loss scale keeps the values from vanishing
/// in half precision. backward() rescales them by the actual gradient, so they are right even if it
/// differs.
class ExpectedGradient : Scoped<&Scope::expected_gradient> {
 public:
  explicit ExpectedGradient(const Tensor& expected) : Scoped(&expected_), expected_(expected) {
    check(!expected.defined() || (expected.count() == 1 && !expected.tracked()),
          "ExpectedGradient: one untracked element is needed");
  }
  /// The gradient assumed on this thread; undefined: 1.
  static Tensor active() {
    return current_scope.expected_gradient ? *current_scope.expected_gradient : Tensor();
  }

 private:
  Tensor expected_;
};

}  // namespace heed
