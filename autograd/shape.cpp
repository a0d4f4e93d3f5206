#include <cstddef>
#include <numeric>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed {

/// The view of `count` elements begin, begin + step, ... of an axis; untracked.
static Tensor slice_view(const Tensor& x, int axis, std::int64_t begin, std::int64_t count,
                         std::int64_t step) {
  Shape shape = x.shape();
  Shape strides = x.strides();
  shape[axis] = count;
  if (count > 1) strides[axis] *= step;  // a single element keeps its stride: any will do
  return x.view(shape, strides, x.offset() + begin * x.strides()[axis]);
}

static void copy_into(const Tensor& from, const Tensor& to) {
  if (to.count() > 0) backend_of(to).copy(from.detach(), to);
}

static Shape infer_extent(const Tensor& x, const Shape& shape) {
  Shape result = shape;
  int unknown = -1;
  std::int64_t known = 1, step = 1;  // strides of a shape with an extent of 0 must fit too
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] >= 0) {
      step = checked_product("reshape", step, std::max<std::int64_t>(shape[i], 1));
      known *= shape[i];
      continue;
    }
    check(shape[i] == -1 && unknown < 0, "reshape: shape ", shape,
          " may have one extent of -1 and no other negative one");
    unknown = i;
  }
  if (unknown >= 0 && known > 0) result[unknown] = x.count() / known;
  check(result.count() == x.count() && (unknown < 0 || known > 0), "reshape: shape ", x.shape(),
        " cannot be seen as ", shape);
  return result;
}

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", x);
  if (x.is_contiguous()) return x;
  const Tensor out = empty_like(x);
  copy_into(x, out);
  return record("contiguous", out, {x}, [](const Tensor& grad) { return Gradients{grad}; });
}

Tensor plain(const Tensor& x) {
  return x.defined() ? contiguous(x.detach()) : x;
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", x);
  const Shape target = infer_extent(x, shape);
  if (target == x.shape()) return x;
  const Tensor source = contiguous(x);
  return record("reshape", source.view(target), {source},
                [from = x.shape()](const Tensor& grad) { return Gradients{contiguous(grad).view(from)}; });
}

Tensor permute(const Tensor& x, const Shape& order) {
  check_defined("permute", x);
  check(order.rank() == x.rank(), "permute: order ", order, " does not fit shape ", x.shape());
  Shape shape = order, strides = order, inverse = order;
  unsigned seen = 0;
  for (int i = 0; i < order.rank(); ++i) {
    check(order[i] >= -x.rank() && order[i] < x.rank(), "permute: axis ", order[i],
          " is out of range for shape ", x.shape());
    const int axis = resolve_axis("permute", x, static_cast<int>(order[i]));
    check(!(seen & 1u << axis), "permute: order ", order, " names axis ", axis, " twice");
    seen |= 1u << axis;
    shape[i] = x.shape()[axis];
    strides[i] = x.strides()[axis];
    inverse[axis] = i;
  }
  return record("permute", x.view(shape, strides, x.offset()), {x},
                [inverse](const Tensor& grad) { return Gradients{permute(grad, inverse)}; });
}

Tensor transpose(const Tensor& x, int axis_a, int axis_b) {
  const int a = resolve_axis("transpose", x, axis_a), b = resolve_axis("transpose", x, axis_b);
  Shape order = x.shape();
  for (int i = 0; i < x.rank(); ++i) order[i] = i;
  std::swap(order[a], order[b]);
  return permute(x, order);
}

Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  const int at = resolve_axis("slice", x, axis);
  const std::int64_t extent = x.shape()[at];
  const std::int64_t from = begin < 0 ? begin + extent : begin;
  const std::int64_t to = end < 0 ? end + extent : end;
  check(step >= 1 && from >= 0 && from <= to && to <= extent, "slice: [", begin, ", ", end, ") with step ",
        step, " does not fit axis ", axis, " of shape ", x.shape());
  const std::int64_t count = ceil_div(to - from, step);
  if (count == extent) return x;
  return record("slice", slice_view(x, at, from, count, step), {x},
                [shape = x.shape(), at, from, count, step](const Tensor& grad) {
                  const Tensor dx = Tensor::zeros(shape, grad.dtype(), grad.device());
                  copy_into(grad, slice_view(dx, at, from, count, step));
                  return Gradients{dx};
                });
}

Tensor select(const Tensor& x, int axis, std::int64_t index) {
  const std::int64_t extent = x.size(resolve_axis("select", x, axis));
  check(index >= -extent && index < extent, "select: index ", index, " is outside axis ", axis, " of shape ",
        x.shape());
  const std::int64_t at = index < 0 ? index + extent : index;
  return squeeze(slice(x, axis, at, at + 1), axis);
}

Tensor unsqueeze(const Tensor& x, int axis) {
  check_defined("unsqueeze", x);
  const int at = axis < 0 ? axis + x.rank() + 1 : axis;
  check(at >= 0 && at <= x.rank(), "unsqueeze: axis ", axis, " is out of range for shape ", x.shape());
  Shape shape, strides;
  for (int i = 0; i <= x.rank(); ++i) {
    if (i == at) {
      shape.push_back(1);
      strides.push_back(0);
    }
    if (i < x.rank()) {
      shape.push_back(x.shape()[i]);
      strides.push_back(x.strides()[i]);
    }
  }
  return record("unsqueeze", x.view(shape, strides, x.offset()), {x},
                [at](const Tensor& grad) { return Gradients{squeeze(grad, at)}; });
}

Tensor squeeze(const Tensor& x, int axis) {
  const int at = resolve_axis("squeeze", x, axis);
  check(x.shape()[at] == 1, "squeeze: axis ", axis, " of shape ", x.shape(), " does not have extent 1");
  Shape shape, strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == at) continue;
    shape.push_back(x.shape()[i]);
    strides.push_back(x.strides()[i]);
  }
  return record("squeeze", x.view(shape, strides, x.offset()), {x},
                [at](const Tensor& grad) { return Gradients{unsqueeze(grad, at)}; });
}

Tensor expand(const Tensor& x, const Shape& shape) {
  check_defined("expand", x);
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    check(extent >= 0, "expand: shape ", shape, " has a negative extent");
    count = checked_product("expand", count, std::max<std::int64_t>(extent, 1));
  }
  check(broadcast_shapes("expand", x.shape(), shape) == shape, "expand: shape ", x.shape(),
        " does not broadcast to ", shape);
  if (shape == x.shape()) return x;
  return record("expand", broadcast_view(x, shape), {x},
                [from = x.shape()](const Tensor& grad) { return Gradients{sum_to(grad, from)}; });
}

Tensor concat(std::span<const Tensor> parts, int axis) {
  check(!parts.empty(), "concat: no parts given");
  const int at = resolve_axis("concat", parts[0], axis);
  Shape shape = parts[0].shape();
  shape[at] = 0;
  for (const Tensor& part : parts) {
    check_same("concat", parts[0], part);
    Shape others = part.shape();
    if (others.rank() == shape.rank()) others[at] = shape[at];
    check(others == shape, "concat: shapes ", parts[0].shape(), " and ", part.shape(),
          " differ outside axis ", axis);
    shape[at] += part.shape()[at];
  }
  const Tensor out = empty_like(parts[0], shape);
  std::vector<std::int64_t> extents;
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    copy_into(part, slice_view(out, at, begin, part.shape()[at], 1));
    extents.push_back(part.shape()[at]);
    begin += extents.back();
  }
  return record("concat", out, parts, [at, extents](const Tensor& grad) {
    Gradients pieces;
    std::int64_t from = 0;
    for (std::int64_t extent : extents) {
      pieces.push_back(slice_view(grad, at, from, extent, 1));
      from += extent;
    }
    return pieces;
  });
}

Tensor concat(std::initializer_list<Tensor> parts, int axis) {
  return concat(std::span(parts.begin(), parts.size()), axis);
}

Tensor stack(std::span<const Tensor> parts, int axis) {
  check(!parts.empty(), "stack: no parts given");
  std::vector<Tensor> expanded;
  for (const Tensor& part : parts) {
    check_same("stack", parts[0], part);
    check(part.shape() == parts[0].shape(), "stack: shapes ", parts[0].shape(), " and ", part.shape(),
          " differ");
    check(axis >= -part.rank() - 1 && axis <= part.rank(), "stack: axis ", axis,
          " is out of range for parts of shape ", part.shape());
    expanded.push_back(unsqueeze(part, axis));
  }
  return concat(expanded, axis);
}

Tensor stack(std::initializer_list<Tensor> parts, int axis) {
  return stack(std::span(parts.begin(), parts.size()), axis);
}

Tensor flip(const Tensor& x, const Axes& axes) {
  check_defined("flip", x);
  Tensor result = x;
  for (const int axis : axes.list()) {
    const AxisSplit at("flip", x, axis);
    if (at.extent <= 1 || x.count() == 0) continue;
    check_positions("flip", at.extent);
    const Tensor reversed =
        Tensor::arange(at.extent, DType::i32, x.device()) * -1 + static_cast<double>(at.extent - 1);
    const Tensor rows = gather_rows(reshape(result, at.shape()), expand(reversed, {at.outer, at.extent}));
    result = reshape(rows, x.shape());
  }
  return result;
}

Tensor roll(const Tensor& x, std::int64_t shift, int axis) {
  const int at = resolve_axis("roll", x, axis);
  const std::int64_t extent = x.size(at);
  if (extent == 0) return x;
  const std::int64_t last = (shift % extent + extent) % extent;  // how many come in at the beginning
  if (last == 0) return x;
  return concat({slice(x, at, extent - last, extent), slice(x, at, 0, extent - last)}, at);
}

/// Every block of the axes from `axis` on, `count` times in a row, as x with `extents[at]` that much larger.
static Tensor repeated(const char* op, const Tensor& x, int axis, std::int64_t count, int at) {
  check(count >= 0, op, ": a count of ", count, " is negative");
  Shape shape = x.shape();
  shape[at] = checked_product(op, shape[at], count);
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < x.rank(); ++i) (i < axis ? outer : inner) *= x.size(i);
  return reshape(expand(reshape(x, {outer, 1, inner}), {outer, count, inner}), shape);
}

Tensor repeat(const Tensor& x, std::int64_t count, int axis) {
  const int at = resolve_axis("repeat", x, axis);
  return repeated("repeat", x, at + 1, count, at);
}

Tensor tile(const Tensor& x, const Shape& counts) {
  check_defined("tile", x);
  check(counts.rank() >= x.rank(), "tile: the counts ", counts, " are fewer than the axes of shape ",
        x.shape());
  Tensor result = x;
  while (result.rank() < counts.rank()) result = unsqueeze(result, 0);
  for (int i = 0; i < counts.rank(); ++i)
    if (counts[i] != 1) result = repeated("tile", result, i, counts[i], i);
  return result;
}

/// By halves: the gradient of a slice is as large as what it was cut from, so pieces all cut from x
/// would cost their number times x.
static void cut(const Tensor& x, int axis, std::span<const std::int64_t> sizes, std::vector<Tensor>& pieces) {
  if (sizes.size() <= 1) {
    if (!sizes.empty()) pieces.push_back(x);
    return;
  }
  const auto first = sizes.first(sizes.size() / 2), second = sizes.subspan(first.size());
  const std::int64_t middle = std::accumulate(first.begin(), first.end(), std::int64_t{0});
  cut(slice(x, axis, 0, middle), axis, first, pieces);
  cut(slice(x, axis, middle, x.size(axis)), axis, second, pieces);
}

std::vector<Tensor> split(const Tensor& x, int axis, std::span<const std::int64_t> sizes) {
  const std::int64_t extent = x.size(resolve_axis("split", x, axis));
  std::int64_t total = 0;
  for (std::int64_t size : sizes) {
    check(size >= 0, "split: size ", size, " is negative");
    total += size;
  }
  check(total == extent, "split: sizes add up to ", total, ", axis ", axis, " of shape ", x.shape(), " has ",
        extent);
  std::vector<Tensor> pieces;
  cut(x, axis, sizes, pieces);
  return pieces;
}

Tensor pad(const Tensor& x, int axis, std::int64_t before, std::int64_t after, double value) {
  const int at = resolve_axis("pad", x, axis);
  check(before >= 0 && after >= 0, "pad: ", before, " and ", after, " must not be negative");
  if (before == 0 && after == 0) return x;
  Shape shape = x.shape();
  const std::int64_t extent = shape[at];
  shape[at] = checked_sum("pad", extent, checked_sum("pad", before, after));
  const Tensor out = Tensor::full(shape, value, x.dtype(), x.device());
  copy_into(x, slice_view(out, at, before, extent, 1));
  return record("pad", out, {x}, [at, before, extent](const Tensor& grad) {
    return Gradients{slice_view(grad, at, before, extent, 1)};
  });
}

// The members of Tensor that the op layer implements; core/tensor.h declares them.

Tensor Tensor::to(DType dtype) const {
  check_defined("to", *this);
  return cast(*this, dtype);
}

Tensor Tensor::to(Device device) const {
  check_defined("to", *this);
  if (this->device() == device) return *this;
  const bool to_cpu = device.type == DeviceType::cpu;
  check(to_cpu || dtype() != DType::f64, "to: f64 exists on the CPU only, not on ", device,
        "; cast to f32 first");
  check(!to_cpu || !is_half(dtype()), "to: ", dtype(), " exists on Vulkan devices only; cast to f32 first");
  const Tensor source = plain(*this);
  const Tensor out = Tensor::empty(shape(), dtype(), device);
  std::vector<std::byte> host(static_cast<std::size_t>(count()) * size_of(dtype()));
  if (!host.empty()) {
    backend_of(source).download(source, host.data());
    backend_of(out).upload(host.data(), out);
  }
  return record("to", out, {*this},
                [from = this->device()](const Tensor& grad) { return Gradients{grad.to(from)}; });
}

Tensor Tensor::operator[](std::int64_t index) const {
  check(defined(), "[]: the tensor is undefined");
  check(rank() > 0, "[", index, "]: a tensor of rank 0 has no axis to index");
  const std::int64_t extent = shape_[0];
  check(index >= -extent && index < extent, "[", index, "]: the first axis of shape ", shape_, " has ",
        extent, " elements");
  return select(*this, 0, index);
}

}  // namespace heed
