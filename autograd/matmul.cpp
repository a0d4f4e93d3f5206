#include "heed/autograd/ops.h"
#include "heed/autograd/recording.h"

namespace heed {

namespace {

/// The kernel reads a matrix by rows or by columns; anything else is copied first.
Tensor readable(const Tensor& x) {
  const int rank = x.rank();
  const std::int64_t rows = x.size(-2), columns = x.size(-1);
  Shape strides = x.strides();
  std::int64_t& row_step = strides[rank - 2];
  std::int64_t& column_step = strides[rank - 1];
  if (rows == 1)
    row_step = column_step == 1 ? columns : 1;  // the step of an axis of one element means nothing
  if (columns == 1) column_step = row_step == 1 ? rows : 1;
  const bool by_rows = column_step == 1 && row_step >= columns;
  const bool by_columns = row_step == 1 && column_step >= rows;
  return by_rows || by_columns ? x.view(x.shape(), strides, x.offset()) : contiguous(x);
}

Tensor transposed(const Tensor& x) {
  return transpose(x, -2, -1);
}

Shape leading(const Shape& shape) {
  return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 2)));
}

Shape with_matrix(Shape leading, std::int64_t rows, std::int64_t columns) {
  leading.push_back(rows);
  leading.push_back(columns);
  return leading;
}

/// out = a b + bias for untracked operands.
Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias = {}) {
  const Backend& backend = backend_of(a);
  require_kernel(backend.matmul, "matmul", a.device());
  const Shape batch = broadcast_shapes("matmul", leading(a.shape()), leading(b.shape()));
  const Tensor out = Tensor::empty(with_matrix(batch, a.size(-2), b.size(-1)), a.dtype(), a.device());
  const Tensor left = broadcast_view(readable(a.detach()), with_matrix(batch, a.size(-2), a.size(-1)));
  const Tensor right = broadcast_view(readable(b.detach()), with_matrix(batch, b.size(-2), b.size(-1)));
  backend.matmul(left, right, bias.defined() ? contiguous(bias.detach()) : bias, 0, out);
  return out;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  static const Tensor nothing;
  check_same("matmul", a, b);
  check_floating("matmul", a);
  check(a.rank() >= 2 && b.rank() >= 2 && a.size(-1) == b.size(-2), "matmul: shapes ", a.shape(), " and ",
        b.shape(), " do not multiply");
  if (a.rank() > 2 && b.rank() == 2) {  // one large product instead of many that share b
    Shape shape = a.shape();
    shape[a.rank() - 1] = b.size(1);
    return reshape(matmul(reshape(a, {row_count(a.shape()), a.size(-1)}), b), shape);
  }
  return record(
      "matmul", product(a, b), {a, b},
      [a = a.detach(), b = b.detach(), want_a = a.tracked(), want_b = b.tracked()](const Tensor& grad) {
        return Gradients{want_a ? sum_to(product(grad, transposed(b)), a.shape()) : Tensor(),
                         want_b ? sum_to(product(transposed(a), grad), b.shape()) : Tensor()};
      },
      {a.tracked() ? &b : &nothing, b.tracked() ? &a : &nothing});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_same("linear", x, weight);
  check_floating("linear", x);
  check(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1), "linear: input of shape ",
        x.shape(), " does not fit weight of shape ", weight.shape(), " ([out, in])");
  if (bias.defined()) {
    check_same("linear", x, bias);
    check(bias.shape() == Shape{weight.size(0)}, "linear: bias of shape ", bias.shape(),
          " does not fit weight of shape ", weight.shape());
  }
  if (ComposeOnly::active()) {
    const Tensor y = reshape(matmul(x.rank() == 1 ? unsqueeze(x, 0) : x, transposed(weight)), [&] {
      Shape shape = x.shape();
      shape[x.rank() - 1] = weight.size(0);
      return shape;
    }());
    return bias.defined() ? y + bias : y;
  }
  Shape shape = x.shape();
  shape[x.rank() - 1] = weight.size(0);
  const Tensor rows = contiguous(x.detach()).view({row_count(x.shape()), x.size(-1)});
  const Tensor out = product(rows, transposed(weight.detach()), bias).view(shape);
  const bool want_x = x.tracked(), want_weight = weight.tracked(), want_bias = bias.tracked();
  const Tensor read_rows = want_weight ? rows : Tensor(), read_weight = want_x ? weight.detach() : Tensor();
  return record("linear", out, {x, weight, bias},
                [read_rows, read_weight, shape = x.shape(), classes = weight.size(0), want_x, want_weight,
                 want_bias](const Tensor& grad) {
                  const Tensor g = contiguous(grad).view({row_count(grad.shape()), classes});
                  if (const auto both = backend_of(g).linear_backward;
                      both && want_x && want_weight && !ComposeOnly::active()) {
                    const Tensor w = contiguous(read_weight),
                                 dweight = Tensor::empty(w.shape(), w.dtype(), w.device()),
                                 dx = Tensor::empty(read_rows.shape(), g.dtype(), g.device());
                    both(g, read_rows, w, 0, dx, dweight);
                    return Gradients{dx.view(shape), dweight, want_bias ? sum(g, 0) : Tensor()};
                  }
                  const Tensor dx = want_x ? product(g, read_weight).view(shape) : Tensor();
                  if (const auto both = backend_of(g).linear_gradients;
                      both && want_weight && want_bias && !ComposeOnly::active()) {
                    const Tensor dweight = Tensor::empty({classes, read_rows.size(1)}, g.dtype(), g.device()),
                                 dbias = Tensor::empty({classes}, g.dtype(), g.device());
                    both(g, read_rows, dweight, dbias);
                    return Gradients{dx, dweight, dbias};
                  }
                  return Gradients{dx, want_weight ? product(transposed(g), read_rows) : Tensor(),
                                   want_bias ? sum(g, 0) : Tensor()};
                },
                {&read_rows, &read_weight});
}

}  // namespace heed
