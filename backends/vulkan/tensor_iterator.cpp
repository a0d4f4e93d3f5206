#include "heed/backends/vulkan/tensor_iterator.h"

#include <bit>

#include "heed/backends/kernels.h"

namespace heed::vulkan {

namespace {

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

}  // namespace

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
    if (last && goes_on_evenly(std::span(last->strides).first(operand_count), axis.strides, axis.extent)) {
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
    if (!range_holds(gpu, reach_of(*operands_[k]), operands_[k]->dtype())) return false;
  return true;
}

int TensorIterator::axis_to_cut(const Gpu& gpu) const {
  // The axis with the largest stride in an operand that does not fit a binding, or else in the output.
  std::size_t operand = 0;
  for (std::size_t k = 0; k < operand_count_; ++k)
    if (!range_holds(gpu, reach_of(*operands_[k]), operands_[k]->dtype())) operand = k;
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
    const auto elements = std::min(count_, reach_of(*operands_[k]));
    bytes += static_cast<double>(elements) * static_cast<double>(size_of(operands_[k]->dtype()));
  }
  return bytes;
}

}  // namespace heed::vulkan
