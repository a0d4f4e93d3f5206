// Matrices by the place of their diagonal.

#include <algorithm>

#include "heed/autograd/ops.h"
#include "heed/autograd/recording.h"

namespace heed {

namespace {

/// i32 [rows, columns]: column - row compared with `diagonal`.
Tensor compared_with_diagonal(CompareOp op, std::int64_t rows, std::int64_t columns, std::int64_t diagonal,
                              Device device) {
  const Tensor row = Tensor::arange(rows, DType::i32, device).view({rows, 1});
  const Tensor column = Tensor::arange(columns, DType::i32, device).view({1, columns});
  return compare(op, column - row, static_cast<double>(diagonal));
}

Tensor triangle(const char* op, CompareOp kept, const Tensor& x, std::int64_t diagonal) {
  check(x.defined(), op, ": the operand is undefined");
  check(x.rank() >= 2, op, ": shape ", x.shape(), " is no matrix");
  check_positions(op, x.size(-1));
  check_positions(op, x.size(-2));
  const std::int64_t limit = std::max(x.size(-1), x.size(-2));  // beyond which nothing changes
  const Tensor keep =
      compared_with_diagonal(kept, x.size(-2), x.size(-1), std::clamp(diagonal, -limit, limit), x.device());
  return where(keep, x, 0);
}

}  // namespace

Tensor tril(const Tensor& x, std::int64_t diagonal) {
  return triangle("tril", CompareOp::less_equal, x, diagonal);
}
Tensor triu(const Tensor& x, std::int64_t diagonal) {
  return triangle("triu", CompareOp::greater_equal, x, diagonal);
}

Tensor eye(std::int64_t count, DType dtype, Device device) {
  check(count >= 0, "eye: the number of rows ", count, " is negative");
  check_positions("eye", count);
  return cast(compared_with_diagonal(CompareOp::equal, count, count, 0, device), dtype);
}

}  // namespace heed
