#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

// Properties of each line of the table that the backward pass needs, derived from the text of the
// line.

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
  bool takes_p, takes_q;
};
constexpr UnaryInfo unary_info[] = {
#define HEED_UNARY(name, y, saved, dydx, ...)                                                \
  {std::string_view(#saved) == "INPUT", std::string_view(#dydx) == "1.0", mentions(#y, 'p'), \
   mentions(#y, 'q')},
#include "heed/core/elementwise.def"
};
// A function with parameters must not be callable without them.
#define HEED_UNARY(name, y, ...)                          \
  static_assert(!mentions(#y, 'p') && !mentions(#y, 'q'), \
                #name " takes numbers: its line is HEED_PARAMETRIC");
#define HEED_PARAMETRIC(name, y, ...) \
  static_assert(mentions(#y, 'p'), #name " takes no number: its line is HEED_UNARY");
#include "heed/core/elementwise.def"

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

/// The gradient of one operand of a broadcasting operation. An operand that was not saved is undefined; the
/// derivative does not read it.
Tensor binary_gradient(BinaryOp op, int operand, const Tensor& a, const Tensor& b, const Tensor& grad,
                       const Shape& shape) {
  if (binary_info[static_cast<int>(op)].derivative_is_one[operand]) return sum_to(grad, shape);
  const Tensor out = empty_like(grad);
  backend_of(grad).binary_backward(op, operand, a.defined() ? broadcast_view(a, grad.shape()) : grad,
                                   b.defined() ? broadcast_view(b, grad.shape()) : grad, grad, out);
  return sum_to(out, shape);
}

/// Returns the number as a rank-0 operand of `op`, with the dtype and device of `like`.
Tensor scalar_operand(const char* op, const Tensor& like, double value) {
  check(like.defined(), op, ": the tensor operand of the number ", value, " is undefined");
  using Limits = std::numeric_limits<std::int32_t>;
  check(is_floating(like.dtype()) ||
            (value == std::floor(value) && value >= Limits::min() && value <= Limits::max()),
        op, ": ", value, " cannot be represented as ", like.dtype(),
        ", the type of the tensor; a floating tensor can hold it: cast() makes one");
  return Tensor::full({}, value, like.dtype(), like.device());
}

/// The few unary operations that exist for i32, composed of binary ones.
Tensor integer_unary(UnaryOp op, const Tensor& x, UnaryParams params) {
  switch (op) {
    case UnaryOp::neg:
      return 0.0 - x;
    case UnaryOp::abs:
      return maximum(x, 0.0 - x);
    case UnaryOp::square:
      return x * x;
    case UnaryOp::relu:
      return maximum(x, 0);
    case UnaryOp::floor:
    case UnaryOp::ceil:
    case UnaryOp::round:
      return x;
    case UnaryOp::sign:
      return minimum(maximum(x, -1), 1);
    case UnaryOp::clamp:
      return minimum(maximum(x, scalar_operand("clamp", x, params.p)), scalar_operand("clamp", x, params.q));
    default:
      fail(name_of(op), ": needs a floating type, got ", x.dtype(), "; cast() makes one");
  }
}

/// True when a number operand can be passed as the parameter of a unary operation on x.
bool takes_parameter(const char* op, const Tensor& x) {
  check(x.defined(), op, ": the tensor operand of a number is undefined");
  return is_floating(x.dtype());
}

Tensor choose(const char* op, const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_same(op, a, b);
  check_indices(op, condition);
  check(condition.device() == a.device(), op, ": the condition is on ", condition.device(),
        ", the operands are on ", a.device());
  const Shape shape = broadcast_shapes(op, condition.shape(), broadcast_shapes(op, a.shape(), b.shape()));
  const Tensor out = empty_like(a, shape);
  const Tensor choice = broadcast_view(condition, shape);
  backend_of(a).where(choice, broadcast_view(a, shape), broadcast_view(b, shape), out);
  return record("where", out, {a, b},
                [choice, shape_a = a.shape(), shape_b = b.shape(), want_a = a.tracked(),
                 want_b = b.tracked()](const Tensor& grad) {
                  return Gradients{want_a ? sum_to(where(choice, grad, 0.0), shape_a) : Tensor(),
                                   want_b ? sum_to(where(choice, 0.0, grad), shape_b) : Tensor()};
                },
                {&choice});
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

bool derivative_reads_operand(UnaryOp op) {
  return unary_info[static_cast<int>(op)].saves_input;
}

Tensor unary(UnaryOp op, const Tensor& x) {
  const UnaryInfo& info = unary_info[static_cast<int>(op)];
  check(!info.takes_p, name_of(op), ": needs ", info.takes_q ? "two numbers" : "a number",
        " in addition to the tensor, got none");
  return unary(op, x, {});
}

Tensor unary(UnaryOp op, const Tensor& x, UnaryParams params) {
  const UnaryInfo& info = unary_info[static_cast<int>(op)];
  check((info.takes_p || params.p == 0) && (info.takes_q || params.q == 0), name_of(op), ": takes ",
        info.takes_p ? "one number" : "no number", " in addition to the tensor, got ", params.p, " and ",
        params.q);
  check_defined(name_of(op), x);
  if (x.dtype() == DType::i32) return integer_unary(op, x, params);
  const Tensor out = empty_like(x);
  backend_of(x).unary(op, params, x.detach(), out);
  if (info.derivative_is_one)
    return record(name_of(op), out, {x}, [](const Tensor& grad) { return Gradients{grad}; });
  const Tensor& read = info.saves_input ? x : out;
  return record(name_of(op), out, {x},
                [op, params, saved = read.detach()](const Tensor& grad) {
                  const Tensor dx = reuse_or_empty(grad);
                  backend_of(grad).unary_backward(op, params, saved, grad, dx);
                  return Gradients{dx};
                },
                {&read});
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  check_same(name_of(op), a, b);
  const BinaryInfo& info = binary_info[static_cast<int>(op)];
  check(info.any_dtype || is_floating(a.dtype()), name_of(op), ": needs a floating type, got ", a.dtype(),
        "; cast() makes one");
  const Tensor out = empty_like(a, broadcast_shapes(name_of(op), a.shape(), b.shape()));
  backend_of(a).binary(op, broadcast_view(a, out.shape()), broadcast_view(b, out.shape()), out);
  if (!would_record({a, b})) return out;

  const bool wanted[2] = {a.tracked(), b.tracked()};
  const bool keep_a = (wanted[0] && info.needs_a[0]) || (wanted[1] && info.needs_a[1]);
  const bool keep_b = (wanted[0] && info.needs_b[0]) || (wanted[1] && info.needs_b[1]);
  const Tensor saved_a = keep_a ? a.detach() : Tensor(), saved_b = keep_b ? b.detach() : Tensor();
  return record(name_of(op), out, {a, b},
                [op, shape_a = a.shape(), shape_b = b.shape(), want_a = wanted[0], want_b = wanted[1],
                 saved_a, saved_b](const Tensor& grad) {
                  return Gradients{
                      want_a ? binary_gradient(op, 0, saved_a, saved_b, grad, shape_a) : Tensor(),
                      want_b ? binary_gradient(op, 1, saved_a, saved_b, grad, shape_b) : Tensor()};
                },
                {&saved_a, &saved_b});
}

Tensor binary(BinaryOp op, const Tensor& a, double b) {
  if (takes_parameter(name_of(op), a)) {
    if (op == BinaryOp::add) return unary(UnaryOp::add_scalar, a, {b});
    if (op == BinaryOp::sub) return unary(UnaryOp::add_scalar, a, {-b});
    if (op == BinaryOp::mul) return unary(UnaryOp::mul_scalar, a, {b});
    if (op == BinaryOp::div) return unary(UnaryOp::div_scalar, a, {b});
    if (op == BinaryOp::pow) return unary(UnaryOp::pow_scalar, a, {b});
  }
  return binary(op, a, scalar_operand(name_of(op), a, b));
}

Tensor binary(BinaryOp op, double a, const Tensor& b) {
  if (takes_parameter(name_of(op), b)) {
    if (op == BinaryOp::add) return unary(UnaryOp::add_scalar, b, {a});
    if (op == BinaryOp::sub) return unary(UnaryOp::add_scalar, neg(b), {a});
    if (op == BinaryOp::mul) return unary(UnaryOp::mul_scalar, b, {a});
  }
  return binary(op, scalar_operand(name_of(op), b, a), b);
}

Tensor compare(CompareOp op, const Tensor& a, const Tensor& b) {
  check_same(name_of(op), a, b);
  const Tensor out =
      Tensor::empty(broadcast_shapes(name_of(op), a.shape(), b.shape()), DType::i32, a.device());
  backend_of(a).compare(op, broadcast_view(a, out.shape()), broadcast_view(b, out.shape()), out);
  return out;
}

Tensor compare(CompareOp op, const Tensor& a, double b) {
  return compare(op, a, scalar_operand(name_of(op), a, b));
}

Tensor compare(CompareOp op, double a, const Tensor& b) {
  return compare(op, scalar_operand(name_of(op), b, a), b);
}

Tensor scalar_like(const Tensor& like, double value) {
  return scalar_operand("scalar_like", like, value);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return choose("where", condition, a, b);
}
Tensor where(const Tensor& condition, const Tensor& a, double b) {
  return choose("where", condition, a, scalar_operand("where", a, b));
}
Tensor where(const Tensor& condition, double a, const Tensor& b) {
  return choose("where", condition, scalar_operand("where", b, a), b);
}

Tensor where(const Tensor& condition, double a, double b, DType dtype) {
  check(condition.defined(), "where: the condition is undefined");
  const Tensor one = Tensor::full({}, a, dtype, condition.device());
  return choose("where", condition, one, scalar_operand("where", one, b));
}

Tensor logical_not(const Tensor& x) {
  check_defined("logical_not", x);
  return equal(x, 0);
}

Tensor isnan(const Tensor& x) {
  check_defined("isnan", x);
  return not_equal(x, x);
}

Tensor isfinite(const Tensor& x) {
  check_defined("isfinite", x);
  const Tensor zero = x.detach() - x.detach();  // NaN for infinities and NaN
  return equal(zero, zero);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check(
      x.defined() && mask.defined() && broadcast_shapes("masked_fill", x.shape(), mask.shape()) == x.shape(),
      "masked_fill: a mask ", mask.defined() ? concat_text("of shape ", mask.shape()) : "that is undefined",
      " does not broadcast to ", x.defined() ? concat_text(x.shape()) : "an undefined tensor");
  return choose("masked_fill", mask, scalar_operand("masked_fill", x, value), x);
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", x);
  if (x.dtype() == dtype) return x;
  const Tensor out = Tensor::empty(x.shape(), dtype, x.device());
  backend_of(x).copy(x.detach(), out);
  if (!is_floating(dtype)) return out;
  return record("cast", out, {x},
                [from = x.dtype()](const Tensor& grad) { return Gradients{cast(grad, from)}; });
}

}  // namespace heed
