#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

Shape without_axis(const Shape& shape, int at, bool keep) {
  Shape result;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != at) result.push_back(shape[i]);
    if (i == at && keep) result.push_back(1);
  }
  return result;
}

Tensor reduce(ReduceOp op, const Tensor& x, const AxisSplit& axis, bool keep) {
  const Tensor out = empty_like(x, without_axis(x.shape(), axis.at, keep));
  backend_of(x).reduce(op, plain(x).view(axis.shape()), out.view({axis.outer, axis.inner}));
  return out;
}

Tensor sum_axis(const char*, const Tensor& x, int axis, bool keep) {
  const AxisSplit at("sum", x, axis);
  const Tensor out = reduce(ReduceOp::sum, x, at, keep);
  return record("sum", out, {x}, [shape = x.shape(), at = at.at, keep](const Tensor& grad) {
    return Gradients{expand(keep ? grad : unsqueeze(grad, at), shape)};
  });
}

/// Largest or smallest; the gradient goes to the first element that attains it.
template <ReduceOp reduction>
Tensor extreme_axis(const char* op, const Tensor& x, int axis, bool keep) {
  const AxisSplit at(op, x, axis);
  check(at.extent > 0, op, ": axis ", axis, " of shape ", x.shape(), " is empty");
  const Tensor out = reduce(reduction, x, at, keep);
  if (!would_record({x})) return out;
  const Tensor first = argmax(reduction == ReduceOp::max ? x.detach() : neg(x.detach()), at.at);
  return record(op, out, {x}, [first, at = at.at, extent = at.extent, keep](const Tensor& grad) {
    return Gradients{scatter_add(keep ? grad : unsqueeze(grad, at), at, unsqueeze(first, at), extent)};
  });
}

/// The product by repeated halving, so that its gradient divides by no element.
Tensor product_axis(const char* op, const Tensor& x, int axis, bool keep) {
  const int at = resolve_axis(op, x, axis);
  Tensor rest = x, odd;                              // odd: elements without a partner
  if (x.size(at) == 0) rest = sum(x, at, true) + 1;  // 1, tracked when x is
  while (rest.size(at) > 1) {
    const std::int64_t half = rest.size(at) / 2;
    if (rest.size(at) % 2 != 0) {
      const Tensor last = slice(rest, at, 2 * half, 2 * half + 1);
      odd = odd.defined() ? odd * last : last;
    }
    rest = slice(rest, at, 0, half) * slice(rest, at, half, 2 * half);
  }
  if (odd.defined()) rest = rest * odd;
  return keep ? rest : squeeze(rest, at);
}

using AxisReduction = Tensor (*)(const char* op, const Tensor& x, int axis, bool keep);

/// The resolved axes in ascending order. Throws when one is out of range or named twice.
std::vector<int> resolved(const char* op, const Tensor& x, const Axes& axes) {
  check_defined(op, x);
  std::vector<int> list(axes.are_all() ? static_cast<std::size_t>(x.rank()) : 0);
  std::iota(list.begin(), list.end(), 0);
  for (const int axis : axes.list()) list.push_back(resolve_axis(op, x, axis));
  std::sort(list.begin(), list.end());
  const auto twice = std::adjacent_find(list.begin(), list.end());
  check(twice == list.end(), op, ": axis ", twice == list.end() ? 0 : *twice, " is named twice");
  return list;
}

/// Applies `along` to several axes, merging adjacent ones, from the last to the first.
Tensor reduce_axes(const char* op, AxisReduction along, const Tensor& x, const Axes& axes, bool keep) {
  check_defined(op, x);
  if (axes.list().size() == 1) return along(op, x, axes.list()[0], keep);
  const std::vector<int> list = resolved(op, x, axes);
  Tensor result = x;
  for (std::size_t end = list.size(); end > 0;) {
    std::size_t begin = end - 1;
    while (begin > 0 && list[begin - 1] + 1 == list[begin]) --begin;
    Shape merged;
    for (int i = 0; i < result.rank(); ++i)
      if (i > list[begin] && i <= list[end - 1])
        merged[list[begin]] *= result.shape()[i];
      else
        merged.push_back(result.shape()[i]);
    result = along(op, reshape(result, merged), list[begin], false);
    end = begin;
  }
  if (!keep) return result;
  Shape kept = x.shape();
  for (const int axis : list) kept[axis] = 1;
  return reshape(result, kept);
}

/// The number of elements that each result of a reduction combines.
std::int64_t reduced_count(const char* op, const Tensor& x, const Axes& axes) {
  std::int64_t count = 1;
  for (const int axis : resolved(op, x, axes)) count *= x.shape()[axis];
  return count;
}

/// The square root of sums of squares; 0 with gradient 0 where the sum is 0.
Tensor root(const Tensor& squares) {
  const Tensor nothing = equal(squares.detach(), 0);
  return where(nothing, 0, sqrt(where(nothing, 1, squares)));
}

/// Swaps `axis` and the last axis; applying it twice restores x.
Tensor swap_with_last(const char* op, const Tensor& x, int axis) {
  return resolve_axis(op, x, axis) == x.rank() - 1 ? x : transpose(x, axis, -1);
}

Tensor rows_of(const Tensor& x) {
  return plain(x).view({row_count(x.shape()), x.size(-1)});
}

/// The maximum along the last axis, or 0 where all entries are -infinity: what softmax subtracts.
Tensor finite_maximum(const Tensor& x) {
  const Tensor largest = max(x.detach(), -1, true);
  return masked_fill(largest, equal(largest, -std::numeric_limits<double>::infinity()), 0);
}

/// log(sum(exp(x))) along the last axis, untracked.
Tensor log_sum_exp_rows(const Tensor& x) {
  const Tensor largest = max(x, -1, true);
  const Tensor shift = masked_fill(largest, equal(abs(largest), std::numeric_limits<double>::infinity()), 0);
  return log(sum(exp(x - shift), -1, true)) + shift;
}

/// 1 where x is 0, so that a fully masked row is divided by 1.
Tensor one_if_zero(const Tensor& x) {
  return masked_fill(x, equal(x.detach(), 0), 1);
}

Tensor softmax_composed(const Tensor& x, bool log) {
  const Tensor shifted = x - finite_maximum(x);
  const Tensor weights = exp(shifted);
  const Tensor total = one_if_zero(sum(weights, -1, true));
  return log ? shifted - heed::log(total) : weights / total;
}

/// Softmax over the last axis; `mask` (i32, broadcast view of x's shape) may be undefined.
Tensor softmax_last(const char* op, const Tensor& x, const Tensor& mask, bool log) {
  if (x.count() == 0) return x;
  const Backend& backend = backend_of(x);
  if (!usable(backend.softmax)) {
    if (!mask.defined()) return softmax_composed(x, log);
    const Tensor forbidden = equal(mask, 0);
    return softmax_composed(masked_fill(x, forbidden, -std::numeric_limits<double>::infinity()), log);
  }
  const Tensor out = empty_like(x);
  const Tensor rows = rows_of(x);
  const Tensor mask_rows = mask.defined() ? contiguous(mask).view(rows.shape()) : Tensor();
  backend.softmax.forward(rows, mask_rows, log, out.view(rows.shape()));
  return record(op, out, {x},
                [out, log](const Tensor& grad) {
                  const Tensor dx = empty_like(grad);
                  const Tensor y = rows_of(out);
                  backend_of(grad).softmax.backward(y, rows_of(grad), log, dx.view(y.shape()));
                  return Gradients{dx};
                },
                {&out});
}

}  // namespace

Tensor scale_of_squares(const Tensor& x, const Axes& axes) {
  const double least = x.dtype() == DType::f64 ? 1e-290 : x.dtype() == DType::f16 ? 6.2e-5 : 1e-30;
  if (x.count() == 0) return sum(x.detach(), axes, true) + 1;
  return maximum(max(abs(x.detach()), axes, true), least);
}

Tensor sum(const Tensor& x, const Axes& axes, bool keep_axes) {
  return reduce_axes("sum", sum_axis, x, axes, keep_axes);
}

Tensor mean(const Tensor& x, const Axes& axes, bool keep_axes) {
  check_floating("mean", x);
  const std::int64_t count = reduced_count("mean", x, axes);
  check(count > 0, "mean: shape ", x.shape(), " has no elements to take the mean of");
  return reduce_axes("mean", sum_axis, x, axes, keep_axes) * (1.0 / static_cast<double>(count));
}

Tensor max(const Tensor& x, const Axes& axes, bool keep_axes) {
  return reduce_axes("max", extreme_axis<ReduceOp::max>, x, axes, keep_axes);
}
Tensor min(const Tensor& x, const Axes& axes, bool keep_axes) {
  return reduce_axes("min", extreme_axis<ReduceOp::min>, x, axes, keep_axes);
}

Tensor prod(const Tensor& x, const Axes& axes, bool keep_axes) {
  return reduce_axes("prod", product_axis, x, axes, keep_axes);
}

Tensor variance(const Tensor& x, const Axes& axes, bool keep_axes, std::int64_t correction) {
  check_floating("variance", x);
  const std::int64_t count = reduced_count("variance", x, axes);
  check(correction >= 0 && count > correction, "variance: ", count, " elements with a correction of ",
        correction, " leave nothing to divide by");
  return sum(square(x - mean(x, axes, true)), axes, keep_axes) *
         (1.0 / static_cast<double>(count - correction));
}

Tensor standard_deviation(const Tensor& x, const Axes& axes, bool keep_axes, std::int64_t correction) {
  check_floating("standard_deviation", x);
  const Tensor scale = scale_of_squares(x, axes);
  const Tensor scaled = root(variance(x / scale, axes, keep_axes, correction));
  return scaled * reshape(scale, scaled.shape());
}

Tensor norm(const Tensor& x, const Axes& axes, bool keep_axes) {
  check_floating("norm", x);
  static_cast<void>(resolved("norm", x, axes));
  const Tensor scale = scale_of_squares(x, axes);
  const Tensor scaled = root(sum(square(x / scale), axes, keep_axes));
  return scaled * reshape(scale, scaled.shape());
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int extra = x.rank() - shape.rank();
  check(extra >= 0, "sum_to: shape ", x.shape(), " cannot be summed to ", shape);
  Tensor result = x;
  if (extra > 0) {  // all added leading axes in one pass
    Shape rest;
    rest.push_back(-1);
    for (int i = extra; i < x.rank(); ++i) rest.push_back(x.shape()[i]);
    if (x.count() == 0) rest[0] = 0;
    result = sum(reshape(result, rest), 0);
  }
  for (int i = 0; i < shape.rank(); ++i) {
    if (result.shape()[i] == shape[i]) continue;
    check(shape[i] == 1, "sum_to: shape ", x.shape(), " cannot be summed to ", shape);
    result = sum(result, i, true);
  }
  return result;
}

Tensor argmax(const Tensor& x, int axis) {
  const AxisSplit at("argmax", x, axis);
  check(at.extent > 0, "argmax: axis ", axis, " of shape ", x.shape(), " is empty");
  check_positions("argmax", at.extent);
  const Tensor out = Tensor::empty(without_axis(x.shape(), at.at, false), DType::i32, x.device());
  backend_of(x).argmax(plain(x).view(at.shape()), out.view({at.outer, at.inner}));
  return out;
}

Tensor argmax(const Tensor& x) {
  check_defined("argmax", x);
  return argmax(reshape(x, {x.count()}), 0);
}

Tensor cumulative_sum(const Tensor& x, int axis, bool reverse) {
  check_floating("cumulative_sum", x);
  const Shape around = AxisSplit("cumulative_sum", x, axis).shape();
  const Tensor out = empty_like(x);
  backend_of(x).cumulative_sum(plain(x).view(around), reverse, out.view(around));
  return record("cumulative_sum", out, {x}, [axis, reverse](const Tensor& grad) {
    return Gradients{cumulative_sum(grad, axis, !reverse)};
  });
}

Tensor running_max(const Tensor& x, int axis) {
  check_floating("running_max", x);
  const AxisSplit at("running_max", x, axis);
  if (const auto kernel = backend_of(x).running_max; kernel && !ComposeOnly::active()) {
    const Tensor out = empty_like(x);
    kernel(plain(x).view(at.shape()), out.view(at.shape()));
    return out;
  }
  Tensor largest = x.detach();
  for (std::int64_t shift = 1; shift < at.extent; shift *= 2)
    largest = maximum(largest, pad(slice(largest, at.at, 0, at.extent - shift), at.at, shift, 0,
                                   -std::numeric_limits<double>::infinity()));
  return largest;
}

Tensor softmax(const Tensor& x, int axis) {
  check_floating("softmax", x);
  return swap_with_last("softmax", softmax_last("softmax", swap_with_last("softmax", x, axis), {}, false),
                        axis);
}

Tensor log_softmax(const Tensor& x, int axis) {
  check_floating("log_softmax", x);
  return swap_with_last("log_softmax",
                        softmax_last("log_softmax", swap_with_last("log_softmax", x, axis), {}, true), axis);
}

Tensor masked_softmax(const Tensor& x, const Tensor& allowed) {
  check_floating("masked_softmax", x);
  check_indices("masked_softmax", allowed);
  check(broadcast_shapes("masked_softmax", x.shape(), allowed.shape()) == x.shape(),
        "masked_softmax: mask of shape ", allowed.shape(), " does not broadcast to ", x.shape());
  return softmax_last("masked_softmax", x, broadcast_view(allowed, x.shape()), false);
}

Tensor log_sum_exp(const Tensor& x, int axis, bool keep_axis) {
  check_floating("log_sum_exp", x);
  const Tensor last = swap_with_last("log_sum_exp", x, axis);
  check(last.size(-1) > 0, "log_sum_exp: axis ", axis, " of shape ", x.shape(), " is empty");
  const Tensor saved = last.detach(), sums = log_sum_exp_rows(saved);
  const auto backward = [saved, sums](const Tensor& grad) {
    // Where all elements are -infinity, the gradient is 0.
    const Tensor nothing = equal(sums, -std::numeric_limits<double>::infinity());
    return Gradients{grad * where(nothing, 0, exp(saved - sums))};
  };
  const Tensor result =
      swap_with_last("log_sum_exp", record("log_sum_exp", sums, {last}, backward, {&saved, &sums}), axis);
  return keep_axis ? result : squeeze(result, axis);
}

}  // namespace heed
