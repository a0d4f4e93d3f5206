#include "heed/models/attention/rotary.h"

#include <algorithm>
#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

/// The cosines (or sines) of n 10000^(-2i / dh): [count, half].
template <class T>
Tensor table_of(double (*function)(double), std::int64_t count, std::int64_t half, Device device) {
  std::vector<T> table(static_cast<std::size_t>(count * half));
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
    for (std::int64_t n = 0; n < count; ++n)
      table[static_cast<std::size_t>(n * half + i)] =
          static_cast<T>(function(static_cast<double>(n) * frequency));
  }
  return Tensor::from(table, {count, half}, device);
}

}  // namespace

Rotary::Rotary(const AttentionConfig& config)
    : width_(config.rotary ? config.inner_width() / config.heads : 0) {
  check(width_ % 2 == 0, "rotary positions turn pairs of elements, but a head has a width of ", width_,
        ": choose width and heads so that it is even");
}

Tensor Rotary::operator()(const Tensor& x, std::int64_t begin) {
  if (width_ == 0) return x;
  const std::int64_t end = begin + x.size(1);
  const Angles all = angles(end, x);
  return turned(x, slice(all.cosines, 0, begin, end), slice(all.sines, 0, begin, end));
}

Tensor Rotary::at(const Tensor& x, const Tensor& positions, std::int64_t end) {
  if (width_ == 0) return x;
  const Angles all = angles(end, x);
  return turned(x, index_select(all.cosines, 0, positions), index_select(all.sines, 0, positions));
}

Tensor Rotary::turned(const Tensor& x, const Tensor& cosines, const Tensor& sines) const {
  const Tensor heads = reshape(x, {x.size(0), x.size(1), x.size(2) / width_, width_});
  return reshape(rotary(heads, cosines, sines), x.shape());
}

Rotary::Angles Rotary::angles(std::int64_t end, const Tensor& like) {
  const std::lock_guard lock(mutex_);
  const DType dtype = statistics_type(like.dtype());
  const Tensor& held = table_.cosines;
  if (held.defined() && held.size(0) >= end && held.dtype() == dtype && held.device() == like.device())
    return table_;
  // A little more than asked for, because decoding asks for one more position at every step.
  const std::int64_t room = std::max<std::int64_t>(64, end + end / 2), half = width_ / 2;
  const auto made = [&](double (*function)(double)) {
    return dtype == DType::f64 ? table_of<double>(function, room, half, like.device())
                               : table_of<float>(function, room, half, like.device());
  };
  return table_ = {made(std::cos), made(std::sin)};
}

}  // namespace heed
