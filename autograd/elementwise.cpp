#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "heed/autograd/ops.h"
#include "heed/autograd/recording.h"

namespace heed {

namespace {

// What the backward pass needs to know about each line of the table, read from the text of its derivative.

constexpr bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// True when the expression mentions the one-letter variable.
constexpr bool mentions(std::string_view text, char variable) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool alone = (i == 0 || !is_word(text[i - 1])) && (i + 1 == text.size() || !is_word(text[i + 1]));
    if (text[i] == variable && alone) return true;
  }
  return false;
}

struct UnaryInfo {
  bool saves_input;
  bool derivative_is_one;
};
constexpr UnaryInfo unary_info[] = {
#define HEED_UNARY(name, y, saved, dydx, ...) \
  {std::string_view(#saved) == "INPUT", std::string_view(#dydx) == "1.0"},
#include "heed/core/elementwise.def"
};

struct BinaryInfo {
  bool any_dtype;
  bool derivative_is_one[2];
  bool needs_a[2];
  bool needs_b[2];
};
constexpr BinaryInfo binary_info[] = {
#define HEED_BINARY(name, dtypes, y, dyda, dydb)                         \
  {std::string_view(#dtypes) == "ANY",                                   \
   {std::string_view(#dyda) == "1.0", std::string_view(#dydb) == "1.0"}, \
   {mentions(#dyda, 'a'), mentions(#dydb, 'a')},                         \
   {mentions(#dyda, 'b'), mentions(#dydb, 'b')}},
#include "heed/core/elementwise.def"
};

/// The gradient of one operand of a broadcasting operation. Undefined saved operands are not
/// read by the derivative.
Tensor binary_gradient(BinaryOp op, int operand, const Tensor& a, const Tensor& b, const Tensor& grad,
                       const Shape& shape) {
  if (binary_info[static_cast<int>(op)].derivative_is_one[operand]) return sum_to(grad, shape);
  const Tensor out = empty_like(grad);
  backend_of(grad).binary_backward(op, operand, a.defined() ? broadcast_view(a, grad.shape()) : grad,
                                   b.defined() ? broadcast_view(b, grad.shape()) : grad, grad, out);
  return sum_to(out, shape);
}

}  // namespace

Tensor broadcast_view(const Tensor& x, const Shape& shape) {
  Shape strides = shape;
  const int missing = shape.rank() - x.rank();
  for (int i = 0; i < shape.rank(); ++i) {
    const bool repeated = i < missing || (x.shape()[i - missing] == 1 && shape[i] != 1);
    strides[i] = repeated ? 0 : x.strides()[i - missing];
  }
  return x.view(shape, strides, x.offset());
}

Tensor unary(UnaryOp op, const Tensor& x, UnaryParams params) {
  check_floating(name_of(op), x);
  const Backend& backend = backend_of(x);
  require_kernel(backend.unary && backend.unary_backward, name_of(op), x.device());
  const UnaryInfo& info = unary_info[static_cast<int>(op)];
  const Tensor out = empty_like(x);
  backend.unary(op, params, x.detach(), out);
  if (info.derivative_is_one)
    return record(name_of(op), out, {x}, [](const Tensor& grad) { return Gradients{grad}; });
  return record(name_of(op), out, {x},
                [op, params, saved = info.saves_input ? x.detach() : out](const Tensor& grad) {
                  const Tensor dx = reuse_or_empty(grad);
                  backend_of(grad).unary_backward(op, params, saved, grad, dx);
                  return Gradients{dx};
                });
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  check_same(name_of(op), a, b);
  const BinaryInfo& info = binary_info[static_cast<int>(op)];
  check(info.any_dtype || is_floating(a.dtype()), name_of(op), ": needs f32 or f64, got ", a.dtype());
  const Backend& backend = backend_of(a);
  require_kernel(backend.binary && backend.binary_backward, name_of(op), a.device());
  const Tensor out =
      Tensor::empty(broadcast_shapes(name_of(op), a.shape(), b.shape()), a.dtype(), a.device());
  backend.binary(op, broadcast_view(a, out.shape()), broadcast_view(b, out.shape()), out);
  if (!recording() || !(a.tracked() || b.tracked())) return out;

  const bool wanted[2] = {a.tracked(), b.tracked()};
  const bool keep_a = (wanted[0] && info.needs_a[0]) || (wanted[1] && info.needs_a[1]);
  const bool keep_b = (wanted[0] && info.needs_b[0]) || (wanted[1] && info.needs_b[1]);
  return record(name_of(op), out, {a, b},
                [op, shape_a = a.shape(), shape_b = b.shape(), want_a = wanted[0], want_b = wanted[1],
                 saved_a = keep_a ? a.detach() : Tensor(),
                 saved_b = keep_b ? b.detach() : Tensor()](const Tensor& grad) {
                  return Gradients{
                      want_a ? binary_gradient(op, 0, saved_a, saved_b, grad, shape_a) : Tensor(),
                      want_b ? binary_gradient(op, 1, saved_a, saved_b, grad, shape_b) : Tensor()};
                });
}

Tensor compare(CompareOp op, const Tensor& a, const Tensor& b) {
  check_same(name_of(op), a, b);
  const Backend& backend = backend_of(a);
  require_kernel(backend.compare, name_of(op), a.device());
  const Tensor out =
      Tensor::empty(broadcast_shapes(name_of(op), a.shape(), b.shape()), DType::i32, a.device());
  backend.compare(op, broadcast_view(a, out.shape()), broadcast_view(b, out.shape()), out);
  return out;
}

Tensor scalar_like(const Tensor& like, double value) {
  check(like.defined(), "scalar_like: the tensor whose type the number ", value, " should have is undefined");
  using Limits = std::numeric_limits<std::int32_t>;
  check(is_floating(like.dtype()) ||
            (value == std::floor(value) && value >= Limits::min() && value <= Limits::max()),
        "scalar_like: ", value, " is no number of type ", like.dtype());
  return Tensor::full({}, value, like.dtype(), like.device());
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_same("where", a, b);
  check_indices("where", condition);
  const Backend& backend = backend_of(a);
  require_kernel(backend.where, "where", a.device());
  const Shape shape =
      broadcast_shapes("where", condition.shape(), broadcast_shapes("where", a.shape(), b.shape()));
  const Tensor out = Tensor::empty(shape, a.dtype(), a.device());
  const Tensor choice = broadcast_view(condition, shape);
  backend.where(choice, broadcast_view(a, shape), broadcast_view(b, shape), out);
  return record("where", out, {a, b},
                [choice, shape_a = a.shape(), shape_b = b.shape(), want_a = a.tracked(),
                 want_b = b.tracked()](const Tensor& grad) {
                  return Gradients{want_a ? sum_to(where(choice, grad, 0.0), shape_a) : Tensor(),
                                   want_b ? sum_to(where(choice, 0.0, grad), shape_b) : Tensor()};
                });
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check(x.defined(), "masked_fill: the operand is undefined");
  return where(mask, value, x);
}

Tensor cast(const Tensor& x, DType dtype) {
  check(x.defined(), "cast: the operand is undefined");
  if (x.dtype() == dtype) return x;
  const Backend& backend = backend_of(x);
  require_kernel(backend.copy, "cast", x.device());
  const Tensor out = Tensor::empty(x.shape(), dtype, x.device());
  backend.copy(x.detach(), out);
  if (!is_floating(dtype)) return out;
  return record("cast", out, {x},
                [from = x.dtype()](const Tensor& grad) { return Gradients{cast(grad, from)}; });
}

}  // namespace heed
