#include <algorithm>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

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
    row_step = column_step == 1 ? columns : 1;  // the stride of an axis with one element does not matter
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
  const Shape batch = broadcast_shapes("matmul", leading(a.shape()), leading(b.shape()));
  const Tensor out = empty_like(a, with_matrix(batch, a.size(-2), b.size(-1)));
  const Tensor left = broadcast_view(readable(a.detach()), with_matrix(batch, a.size(-2), a.size(-1)));
  const Tensor right = broadcast_view(readable(b.detach()), with_matrix(batch, b.size(-2), b.size(-1)));
  backend_of(a).matmul(left, right, plain(bias), 0, out);
  return out;
}

Shape with_width(const Shape& shape, std::int64_t width) {
  return with_extent(shape, shape.rank() - 1, width);
}

/// Throws unless the map accepts inputs of `shape` with the dtype and device of x.
void check_linear(const char* op, const Tensor& x, const Shape& shape, const LinearMap& map) {
  const auto& [weight, bias] = map;
  check_same(op, x, weight);
  check_floating(op, x);
  check(weight.rank() == 2 && shape.rank() >= 1 && shape[shape.rank() - 1] == weight.size(1), op,
        ": input of shape ", shape, " does not fit weight of shape ", weight.shape(), " ([out, in])");
  if (!bias.defined()) return;
  check_same(op, x, bias);
  check(bias.shape() == Shape{weight.size(0)}, op, ": bias of shape ", bias.shape(),
        " does not fit weight of shape ", weight.shape());
}

Tensor linear_composed(const Tensor& x, const LinearMap& map) {
  const Tensor product = matmul(x.rank() == 1 ? unsqueeze(x, 0) : x, transposed(map.weight));
  const Tensor y = reshape(product, with_width(x.shape(), map.weight.size(0)));
  return map.bias.defined() ? y + map.bias : y;
}

/// Applies every map to rows [rows, in]: [rows, out] each.
std::vector<Tensor> apply_maps(const Tensor& rows, std::span<const LinearMap> maps) {
  std::vector<Tensor> weights, biases, outs;
  const auto together = backend_of(rows).linear_maps;
  for (const auto& [weight, bias] : maps) {
    if (maps.size() == 1 || !together) {
      outs.push_back(product(rows, transposed(weight.detach()), bias));
      continue;
    }
    weights.push_back(plain(weight));
    biases.push_back(plain(bias));
    outs.push_back(empty_like(rows, {rows.size(0), weight.size(0)}));
  }
  if (!weights.empty()) together(rows, weights, biases, outs);
  return outs;
}

/// The backward pass of linear maps of the same x, with the tensors that it reads; those not needed are
/// undefined.
struct LinearBackward {
  struct Map {
    Tensor weight;  // defined when x needs a gradient
    bool want_weight, want_bias;
  };
  Shape shape;  // of x
  bool want_x;
  Tensor rows;  // x as [rows, in]; defined when a weight needs a gradient
  std::vector<Map> maps;

  /// The gradients of x and then of every weight and bias in turn. A map whose output received no gradient
  /// adds nothing to dx.
  Gradients operator()(std::span<const Tensor> grads) const {
    Gradients gradients(1 + 2 * maps.size());
    std::vector<Tensor> arrived;  // [rows, out]
    std::vector<std::size_t> from;
    for (std::size_t i = 0; i < maps.size(); ++i) {
      if (!grads[i].defined()) continue;
      arrived.push_back(contiguous(grads[i]).view({row_count(grads[i].shape()), grads[i].size(-1)}));
      from.push_back(i);
    }
    const Tensor dx =
        want_x ? empty_like(arrived[0], {arrived[0].size(0), shape[shape.rank() - 1]}) : Tensor();
    // `done`: one kernel call computed dx and all dweights. Otherwise each map below adds its part of dx.
    const bool done = multiply_in_one_call(arrived, from, dx, gradients);
    for (std::size_t n = 0; n < from.size(); ++n) {
      const std::size_t i = from[n];
      if (!done && want_x) backend_of(dx).matmul(arrived[n], readable(maps[i].weight), {}, n > 0 ? 1 : 0, dx);
      complete(maps[i], arrived[n], gradients[1 + 2 * i], gradients[2 + 2 * i]);
    }
    if (want_x) gradients[0] = dx.view(shape);
    return gradients;
  }

 private:
  /// Computes the gradients that are wanted of a map's weight, unless it is there already, and bias.
  void complete(const Map& map, const Tensor& grad, Tensor& dweight, Tensor& dbias) const {
    const bool lacks_weight = map.want_weight && !dweight.defined();
    const auto both = backend_of(grad).linear_gradients;
    if (lacks_weight && map.want_bias && both && !ComposeOnly::active()) {
      dweight = empty_like(grad, {grad.size(1), rows.size(1)});
      dbias = empty_like(grad, {grad.size(1)});
      return both(grad, rows, dweight, dbias);
    }
    if (lacks_weight) dweight = product(transposed(grad), rows);
    if (map.want_bias) dbias = sum(grad, 0);
  }

  /// Computes dx and all dweights in one kernel call; returns false when the backend has no such kernel or
  /// one of them is not wanted.
  bool multiply_in_one_call(std::span<const Tensor> arrived, std::span<const std::size_t> from,
                            const Tensor& dx, Gradients& gradients) const {
    const auto at_once = backend_of(arrived[0]).linear_backward;
    const auto wanted = [&](std::size_t i) { return maps[i].want_weight; };
    if (!at_once || !want_x || !std::all_of(from.begin(), from.end(), wanted) || ComposeOnly::active())
      return false;
    std::vector<Tensor> weights, dweights;
    for (const std::size_t i : from) {
      weights.push_back(contiguous(maps[i].weight));
      dweights.push_back(empty_like(dx, weights.back().shape()));
      gradients[1 + 2 * i] = dweights.back();
    }
    at_once(arrived, rows, weights, 0, dx, dweights);
    return true;
  }
};

/// The backward pass of feed_forward, with the tensors that it reads.
struct FeedForwardBackward {
  UnaryOp activation;
  Tensor weight;                 // of the second map; defined when the first map or x needs a gradient
  Tensor saved;                  // x or y of the activation, as its derivative needs; defined with weight
  LinearBackward first, second;  // second: computes no gradient of its input

  Gradients operator()(const Tensor& grad) const {
    const Gradients after = second(std::span(&grad, 1));
    Gradients gradients(3);
    if (weight.defined()) {
      const Tensor rows = contiguous(grad).view({row_count(grad.shape()), grad.size(-1)});
      const Tensor dsums = empty_like(saved);
      backend_of(rows).activated_linear.backward(rows, contiguous(weight), activation, saved, dsums);
      gradients = first(std::span(&dsums, 1));
    }
    gradients.insert(gradients.end(), after.begin() + 1, after.end());
    return gradients;
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  static const Tensor nothing;
  check_same("matmul", a, b);
  check_floating("matmul", a);
  check(a.rank() >= 1 && b.rank() >= 1 && a.size(-1) == b.size(b.rank() == 1 ? 0 : -2), "matmul: shapes ",
        a.shape(), " and ", b.shape(), " do not multiply");
  if (a.rank() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.rank() == 1 ? 0 : -2);
  if (b.rank() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  if (a.rank() > 2 && b.rank() == 2)  // one large product instead of many that share b
    return reshape(matmul(reshape(a, {row_count(a.shape()), a.size(-1)}), b),
                   with_width(a.shape(), b.size(1)));
  return record(
      "matmul", product(a, b), {a, b},
      [a = a.detach(), b = b.detach(), want_a = a.tracked(), want_b = b.tracked()](const Tensor& grad) {
        return Gradients{want_a ? sum_to(product(grad, transposed(b)), a.shape()) : Tensor(),
                         want_b ? sum_to(product(transposed(a), grad), b.shape()) : Tensor()};
      },
      {a.tracked() ? &b : &nothing, b.tracked() ? &a : &nothing});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const LinearMap map{weight, bias};
  return linear_maps(x, std::span(&map, 1))[0];
}

std::vector<Tensor> linear_maps(const Tensor& x, std::span<const LinearMap> maps) {
  check(!maps.empty(), "linear_maps: there is no map");
  const char* op = maps.size() > 1 ? "linear_maps" : "linear";
  check(x.defined(), op, ": an operand is undefined");
  for (const LinearMap& map : maps) check_linear(op, x, x.shape(), map);
  std::vector<Tensor> outs;
  if (ComposeOnly::active()) {
    for (const LinearMap& map : maps) outs.push_back(linear_composed(x, map));
    return outs;
  }
  const Tensor rows = plain(x).view({row_count(x.shape()), x.size(-1)});
  for (const Tensor& out : apply_maps(rows, maps))
    outs.push_back(out.view(with_width(x.shape(), out.size(1))));
  LinearBackward backward{x.shape(), x.tracked(), {}, {}};
  std::vector<Tensor> inputs{x};
  for (const auto& [weight, bias] : maps) {
    inputs.insert(inputs.end(), {weight, bias});
    backward.maps.push_back({x.tracked() ? weight.detach() : Tensor(), weight.tracked(), bias.tracked()});
    if (weight.tracked()) backward.rows = rows;
  }
  std::vector<const Tensor*> reads{&backward.rows};
  for (const LinearBackward::Map& map : backward.maps) reads.push_back(&map.weight);
  if (maps.size() > 1) return record_joint("linear_maps", outs, inputs, backward, reads);
  return {record(
      "linear", outs[0], inputs, [backward](const Tensor& grad) { return backward(std::span(&grad, 1)); },
      reads)};
}

Tensor feed_forward(const Tensor& x, const LinearMap& first, UnaryOp activation, const LinearMap& second) {
  check(x.defined(), "feed_forward: an operand is undefined");
  check_linear("feed_forward", x, x.shape(), first);
  check_linear("feed_forward", x, with_width(x.shape(), first.weight.size(0)), second);
  const Backend& backend = backend_of(x);
  if (!usable(backend.activated_linear) ||
      std::ranges::find(activation_ops, activation) == std::end(activation_ops))
    return linear(unary(activation, linear(x, first.weight, first.bias)), second.weight, second.bias);
  const Tensor rows = plain(x).view({row_count(x.shape()), x.size(-1)});
  const auto tracked = [](const LinearMap& map) { return map.weight.tracked() || map.bias.tracked(); };
  const bool behind = recording() && (x.tracked() || tracked(first));
  const Tensor hidden = empty_like(x, {rows.size(0), first.weight.size(0)});
  const Tensor sums = behind && derivative_reads_operand(activation) ? empty_like(hidden) : Tensor();
  backend.activated_linear.forward(rows, plain(first.weight), plain(first.bias), activation, sums, hidden);
  const Tensor out = product(hidden, transposed(second.weight.detach()), second.bias)
                         .view(with_width(x.shape(), second.weight.size(0)));
  const auto backward_function = [](const Shape& shape, bool want_x, const Tensor& in, const LinearMap& map) {
    return LinearBackward{
        shape,
        want_x,
        map.weight.tracked() ? in : Tensor(),
        {{want_x ? map.weight.detach() : Tensor(), map.weight.tracked(), map.bias.tracked()}}};
  };
  const Tensor saved = sums.defined() ? sums : hidden;
  const FeedForwardBackward backward{activation, behind ? second.weight.detach() : Tensor(),
                                     behind ? saved : Tensor(),
                                     backward_function(x.shape(), x.tracked(), rows, first),
                                     backward_function(hidden.shape(), false, hidden, second)};
  return record("feed_forward", out, {x, first.weight, first.bias, second.weight, second.bias}, backward,
                {&backward.weight, &backward.saved, &backward.first.rows, &backward.first.maps[0].weight,
                 &backward.second.rows});
}

}  // namespace heed
