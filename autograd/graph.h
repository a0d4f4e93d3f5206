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

/// Gradients of an op's inputs, in their order; an undefined tensor where an input needs none.
using Gradients = std::vector<Tensor>;
/// Computes the gradients of the inputs from the gradient of the output. Runs with recording off and captures
/// detached tensors only: a closure that held its own output would never be freed.
using BackwardFunction = std::function<Gradients(const Tensor& grad)>;

/// The same for an op with several outputs: one gradient for each, undefined where none has come.
using JointBackward = std::function<Gradients(std::span<const Tensor> grads)>;

/// The record of how a tensor was made. Ids grow with creation, so that falling ids are
/// a reverse topological order.
struct Node {
  std::uint64_t id = 0;
  const char* op = "leaf";
  Shape shape;
  DType dtype = DType::f32;
  std::vector<std::shared_ptr<Node>> inputs;  ///< null where an input is not tracked
  BackwardFunction backward;                  ///< empty for a leaf, and once it has run
  /// What `backward` reads, with the version that its memory had: overwritten since, it is an error.
  struct Read {
    std::weak_ptr<const Storage> memory;
    std::uint64_t version;
  };
  std::vector<Read> reads;
  Tensor gradient;  ///< a leaf keeps it until zero_gradient
  ~Node();          // unlinks long chains without recursion
};

/// Attaches a node to `out` when recording is on and any input is tracked; otherwise returns `out` as it is.
/// `reads`: the tensors that `backward` captures and somebody else could overwrite before it runs
/// (Tensor::assign, an optimizer's step); backward() throws then instead of giving a wrong gradient.
/// Undefined ones are left out.
Tensor record(const char* op, const Tensor& out, std::initializer_list<Tensor> inputs,
              BackwardFunction backward, std::initializer_list<const Tensor*> reads = {});
Tensor record(const char* op, const Tensor& out, std::span<const Tensor> inputs, BackwardFunction backward,
              std::span<const Tensor* const> reads = {});

/// record() for an op with several outputs, whose gradients `backward` gets at once: every output has a node
/// that leaves its gradient with the op's, which is older and therefore walked when all that come have come.
std::vector<Tensor> record_joint(const char* op, std::span<const Tensor> outs, std::span<const Tensor> inputs,
                                 JointBackward backward, std::span<const Tensor* const> reads = {});

/// True when ops on these inputs would be recorded.
bool recording();

// What the files of the op layer share.

/// Like record(), but also when no input is tracked: for segments whose parameters are hidden inside.
Tensor record_always(const char* op, const Tensor& out, std::span<const Tensor> inputs,
                     BackwardFunction backward, std::span<const Tensor* const> reads = {});

/// Whether ops on these inputs would be recorded. Where recording is off, leaves among them are noted for
/// NotedLeaves.
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

/// While it lives on this thread, an op that takes gradients along with its result (linear_cross_entropy)
/// takes them for `expected` as the gradient of that result (f32, one element; undefined = 1), so that a loss
/// scale protects them from vanishing in half precision. What backward() brings in the end may be anything;
/// the gradients are right.
class ExpectedGradient {
 public:
  explicit ExpectedGradient(const Tensor& expected);
  ~ExpectedGradient();
  ExpectedGradient(const ExpectedGradient&) = delete;
  ExpectedGradient& operator=(const ExpectedGradient&) = delete;
  static const Tensor& active();

 private:
  Tensor previous_;
};

}  // namespace heed
