#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"
#include "heed/base/error.h"
#include "heed/core/elementwise.h"

// The elementwise kernels; their shaders are made from core/elementwise.def, like the CPU's kernels.

namespace heed::vulkan {
namespace {

// --- how a dispatch walks its operands

/// Operands of one shape as one dispatch walks them (shaders/tensor_iterator.glsl). Axes that all operands
/// can walk as one are merged; the walk follows the memory order of the first operand, which is the output.
class TensorIterator {
 public:
  static constexpr std::size_t max_operands = 4;
  static constexpr int max_axes = 4;
  using Operands = std::array<const Tensor*, max_operands>;
  struct Axis {
    std::int64_t extent;
    std::array<std::int64_t, max_operands> strides;
  };

  /// Entries beyond `operand_count` are not read.
  TensorIterator(const Operands& operands, std::size_t operand_count);

  const Tensor& operator[](std::size_t i) const { return *operands_[i]; }
  std::size_t operand_count() const { return operand_count_; }
  /// Outermost first; may be more than max_axes.
  std::span<const Axis> axes() const { return std::span(axes_).first(static_cast<std::size_t>(rank_)); }
  std::int64_t count() const { return count_; }
  /// Whether one dispatch is enough.
  bool fits(const Gpu& gpu) const;
  /// The axis of the operands' shape to halve if one dispatch is not enough.
  int axis_to_cut(const Gpu& gpu) const;

  /// Launches a shader that includes tensor_iterator.glsl, with its specialisation constants 2 and 3 and its
  /// own push constants. Its bindings are the operands, in order.
  template <class... Parameters>
  void launch(Gpu& gpu, std::string_view shader, std::array<std::uint32_t, 2> constants,
              Parameters... parameters) const {
    Launch launch(
        gpu, shader,
        {workgroup(gpu), static_cast<std::uint32_t>(rank_), constants[0], constants[1], in_fours()});
    bind_and_push(launch);
    (launch.push(parameters), ...);
    launch.work(0, traffic()).folded_groups(ceil_div(count_, workgroup(gpu) * items));
  }

 private:
  static constexpr std::int64_t items = 4;  // elements per invocation, as in tensor_iterator.glsl
  static std::uint32_t workgroup(const Gpu& gpu) { return workgroup_size(gpu, 128); }

  void bind_and_push(Launch& launch) const;
  double traffic() const;
  /// Whether all operands can be read four elements at once.
  bool in_fours() const;

  Operands operands_;
  std::size_t operand_count_;
  std::array<Axis, Shape::max_rank> axes_;
  int rank_ = 0;
  std::int64_t count_ = 1;
};

/// n / divisor = (n * multiplier) >> (32 + shift) for n below 2^31 and a divisor of at least 2
/// (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
struct Reciprocal {
  std::uint32_t multiplier, shift;

  explicit Reciprocal(std::uint32_t divisor) {
    const int bits = std::bit_width(divisor - 1);  // 2^bits is the smallest power of two >= divisor
    shift = static_cast<std::uint32_t>(bits - 1);
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + bits)) + divisor - 1) / divisor);
  }
};

TensorIterator::TensorIterator(const Operands& operands, std::size_t operand_count)
    : operands_(operands), operand_count_(operand_count) {
  const Tensor& out = *operands[0];
  std::array<Axis, Shape::max_rank> all;
  int all_count = 0;
  for (int i = 0; i < out.rank(); ++i) {
    count_ *= out.shape()[i];
    if (out.shape()[i] == 1) continue;
    Axis axis{out.shape()[i], {}};
    for (std::size_t k = 0; k < operand_count; ++k) axis.strides[k] = operands[k]->strides()[i];
    // Insertion keeps equal strides in their order.
    int at = all_count++;
    for (; at > 0 && all[static_cast<std::size_t>(at - 1)].strides[0] < axis.strides[0]; --at)
      all[static_cast<std::size_t>(at)] = all[static_cast<std::size_t>(at - 1)];
    all[static_cast<std::size_t>(at)] = axis;
  }
  for (const Axis& axis : std::span(all).first(static_cast<std::size_t>(all_count))) {
    Axis* last = rank_ > 0 ? &axes_[static_cast<std::size_t>(rank_ - 1)] : nullptr;
    if (last && can_merge_axes(std::span(last->strides).first(operand_count), axis.strides, axis.extent)) {
      last->extent *= axis.extent;
      last->strides = axis.strides;
    } else {
      axes_[static_cast<std::size_t>(rank_++)] = axis;
    }
  }
  if (rank_ == 0) axes_[static_cast<std::size_t>(rank_++)] = {count_, {}};
}

bool TensorIterator::fits(const Gpu& gpu) const {
  if (rank_ > max_axes || count_ > std::int64_t{1} << 30) return false;
  if (ceil_div(count_, workgroup(gpu) * items) > most_groups(gpu)) return false;
  for (std::size_t k = 0; k < operand_count_; ++k)
    if (!range_holds(gpu, spanned_elements(*operands_[k]), operands_[k]->dtype())) return false;
  return true;
}

int TensorIterator::axis_to_cut(const Gpu& gpu) const {
  // The axis with the largest stride in an operand that does not fit a binding, or else in the output.
  std::size_t operand = 0;
  for (std::size_t k = 0; k < operand_count_; ++k)
    if (!range_holds(gpu, spanned_elements(*operands_[k]), operands_[k]->dtype())) operand = k;
  const Tensor& x = *operands_[operand];
  int axis = -1;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.shape()[i] == 1) continue;
    if (axis < 0 || x.strides()[i] > x.strides()[axis]) axis = i;
  }
  return axis;
}

void TensorIterator::bind_and_push(Launch& launch) const {
  launch.write(*operands_[0]);
  for (std::size_t k = 1; k < operand_count_; ++k) launch.read(*operands_[k]);
  // Innermost first.
  const auto axis = [&](int i) -> const Axis& { return axes_[static_cast<std::size_t>(rank_ - 1 - i)]; };
  launch.push(count_);
  std::array<Reciprocal, max_axes - 1> reciprocals{Reciprocal(2), Reciprocal(2), Reciprocal(2)};
  for (int i = 0; i < max_axes - 1; ++i) {
    const std::int64_t extent = i < rank_ - 1 ? axis(i).extent : 2;
    reciprocals[static_cast<std::size_t>(i)] = Reciprocal(static_cast<std::uint32_t>(extent));
    launch.push(extent);
  }
  for (const Reciprocal& reciprocal : reciprocals) launch.push(reciprocal.multiplier);
  for (const Reciprocal& reciprocal : reciprocals) launch.push(reciprocal.shift);
  for (std::size_t k = 0; k < operand_count_; ++k)
    for (int i = 0; i < max_axes; ++i) launch.push(i < rank_ ? axis(i).strides[k] : 0);
}

bool TensorIterator::in_fours() const {
  if (rank_ != 1 || count_ < 4) return false;
  for (std::size_t k = 0; k < operand_count_; ++k) {
    const Tensor& x = *operands_[k];
    const std::int64_t stride = axes_[0].strides[k];
    if (!is_floating(x.dtype()) || (k == 0 ? stride != 1 : stride != 0 && stride != 1)) return false;
    if (stride == 1 && x.offset() % 4 != 0) return false;
  }
  return true;
}

double TensorIterator::traffic() const {
  double bytes = 0;
  for (std::size_t k = 0; k < operand_count_; ++k) {
    const auto elements = std::min(count_, spanned_elements(*operands_[k]));
    bytes += static_cast<double>(elements) * static_cast<double>(size_of(operands_[k]->dtype()));
  }
  return bytes;
}

/// Calls body(iterator) for pieces of the operands that cover them and fit one dispatch each.
template <class Body>
void for_each_iterator(Gpu& gpu, const TensorIterator& iterator, const Body& body) {
  if (iterator.count() == 0) return;
  if (iterator.fits(gpu)) return body(iterator);
  const int axis = iterator.axis_to_cut(gpu);
  for (const Part part : halves(iterator[0].shape()[axis])) {
    std::array<Tensor, TensorIterator::max_operands> parts;
    TensorIterator::Operands list{};
    for (std::size_t i = 0; i < iterator.operand_count(); ++i) {
      parts[i] = narrowed(iterator[i], axis, part);
      list[i] = &parts[i];
    }
    for_each_iterator(gpu, TensorIterator(list, iterator.operand_count()), body);
  }
}

// --- the kernels

/// The tensor itself, or a contiguous copy if its neighbours in memory lie along a different axis than the
/// output's, as in a transposed matrix: copying it in tiles is cheaper than reading it with large strides.
Tensor iterable(const Tensor& x) {
  constexpr std::int64_t worth_a_copy = 1 << 14;
  if (x.count() < worth_a_copy || x.rank() < 2 || x.is_contiguous()) return x;
  int inner = x.rank() - 1;
  while (inner > 0 && x.shape()[inner] == 1) --inner;
  if (x.strides()[inner] <= 1) return x;
  const bool has_neighbours = std::find(x.strides().begin(), x.strides().end(), 1) != x.strides().end();
  const bool repeats = std::find(x.strides().begin(), x.strides().end(), 0) != x.strides().end();
  return has_neighbours && !repeats ? compact(x) : x;
}

/// Launches a shader with its specialisation constants 2 and 3 and its own push constants, which computes
/// `out` from up to three inputs.
template <class... Parameters>
void launch_each(std::string_view shader, std::array<std::uint32_t, 2> constants, const Tensor& out,
                 std::initializer_list<const Tensor*> inputs, Parameters... parameters) {
  Gpu& gpu = gpu_of(out);
  std::array<Tensor, TensorIterator::max_operands - 1> rows;
  TensorIterator::Operands operands{&out};
  std::size_t count = 0;
  for (const Tensor* input : inputs) {
    rows[count] = iterable(*input);
    operands[count + 1] = &rows[count];
    ++count;
  }
  for_each_iterator(gpu, TensorIterator(operands, count + 1), [&](const TensorIterator& iterator) {
    iterator.launch(gpu, shader, constants, parameters...);
  });
}

template <class Op>
std::uint32_t line_of(Op op) {
  return static_cast<std::uint32_t>(op);
}

// Filling and copying with any strides on both sides, between any two dtypes.

/// Truncates; values beyond the range of i32 become the nearest bound, and NaN becomes 0.
std::int32_t to_i32(double value) {
  using Bounds = std::numeric_limits<std::int32_t>;
  if (std::isnan(value)) return 0;
  return static_cast<std::int32_t>(std::clamp<double>(value, Bounds::min(), Bounds::max()));
}

constexpr std::int64_t tile = 32;  // as in transpose.comp

/// A copy between matrices of which one is stored by rows and the other by columns, with up to two axes
/// around them.
struct Transposition {
  TensorIterator::Axis outer{1, {}}, inner{1, {}}, rows, columns;

  std::int64_t matrices() const { return outer.extent * inner.extent; }
  std::int64_t row_tiles() const { return ceil_div(rows.extent, tile); }
  std::int64_t column_tiles() const { return ceil_div(columns.extent, tile); }
  std::int64_t tiles() const { return matrices() * row_tiles() * column_tiles(); }
};

/// The transposition that an iterator describes; nullopt if the plain kernel does as well.
std::optional<Transposition> as_transposition(const TensorIterator& iterator) {
  const auto axes = iterator.axes();
  const TensorIterator::Axis& columns = axes.back();
  if (columns.strides[0] != 1 || columns.strides[1] == 1 || columns.extent < tile / 4) return {};
  const auto is_row_axis = [](const TensorIterator::Axis& axis) { return axis.strides[1] == 1; };
  const auto rows = std::find_if(axes.begin(), axes.end() - 1, is_row_axis);
  if (rows == axes.end() - 1 || rows->extent < tile / 4) return {};
  Transposition result{.rows = *rows, .columns = columns};
  TensorIterator::Axis* const around[] = {&result.inner, &result.outer};
  std::size_t found = 0;
  for (const TensorIterator::Axis& axis : axes.first(axes.size() - 1))
    if (&axis != &*rows) *around[found++] = axis;
  return result;
}

void transpose(Gpu& gpu, const TensorIterator& iterator, const Transposition& t) {
  const Tensor &out = iterator[0], &x = iterator[1];
  Launch launch(gpu, shader_name_by_size("transpose", out.dtype()), {workgroup_size(gpu)});
  launch.write(out).read(x);
  launch.push(t.rows.extent, t.columns.extent, t.row_tiles(), t.column_tiles());
  launch.push(t.matrices(), t.inner.extent);
  launch.push(t.rows.strides[0], t.outer.strides[0], t.inner.strides[0]);
  launch.push(t.columns.strides[1], t.outer.strides[1], t.inner.strides[1]);
  launch.work(0, 2.0 * static_cast<double>(iterator.count()) * static_cast<double>(size_of(out.dtype())));
  launch.folded_groups(t.tiles());
}

}  // namespace

void unary(UnaryOp op, UnaryParams params, const Tensor& x, const Tensor& out) {
  launch_each(shader_name("unary", out.dtype()), {line_of(op)}, out, {&x}, params.p, params.q);
}

void unary_backward(UnaryOp op, UnaryParams params, const Tensor& saved, const Tensor& grad,
                    const Tensor& out) {
  launch_each(shader_name("unary_backward", out.dtype()), {line_of(op)}, out, {&saved, &grad}, params.p,
              params.q);
}

void binary(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  launch_each(shader_name("binary", out.dtype()), {line_of(op)}, out, {&a, &b});
}

void binary_backward(BinaryOp op, int operand, const Tensor& a, const Tensor& b, const Tensor& grad,
                     const Tensor& out) {
  launch_each(shader_name("binary_backward", out.dtype()), {line_of(op), static_cast<std::uint32_t>(operand)},
              out, {&a, &b, &grad});
}

void compare(CompareOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  launch_each(shader_name("compare", a.dtype()), {line_of(op)}, out, {&a, &b});
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) {
  launch_each(shader_name_by_size("where", out.dtype()), {}, out, {&condition, &a, &b});
}

void fill(double value, const Tensor& out) {
  const std::string_view shader = shader_name("fill", out.dtype());
  out.dtype() == DType::i32 ? launch_each(shader, {}, out, {}, to_i32(value))
                            : launch_each(shader, {}, out, {}, value);
}

void copy(const Tensor& x, const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const bool converts = x.dtype() != out.dtype();
  const std::string shader = converts ? "copy_to_" + std::string(name_of(out.dtype())) : "copy";
  for_each_iterator(gpu, TensorIterator({&out, &x}, 2), [&](const TensorIterator& iterator) {
    if (!converts && workgroup_size(gpu) >= tile) {
      const auto transposition = as_transposition(iterator);
      if (transposition && transposition->tiles() <= most_groups(gpu))
        return transpose(gpu, iterator, *transposition);
    }
    iterator.launch(gpu, shader_name(shader, x.dtype()), {});
  });
}

}  // namespace heed::vulkan
