#include <type_traits>

#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/checked.h"
#include "heed/core/profile.h"

namespace heed::cpu {
namespace {

constexpr std::int64_t task_size = 16384;  // elements worth a task of their own
constexpr std::int64_t tile_width = 256;   // columns followed at once

template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;

/// One row, whose sum stays in a register.
template <class T>
void scan_row(const T* x, std::int64_t n, bool reverse, T* out) {
  Wide<T> sum = 0;
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = reverse ? n - 1 - step : step;
    sum += x[i];
    out[i] = static_cast<T>(sum);
  }
}

/// One tile of columns, running in double (int64) so that the error does not grow with n.
/// x and out [n, stride]; `reverse` starts from the last row.
template <class T>
void scan_columns(const T* x, std::int64_t n, std::int64_t stride, std::int64_t width, bool reverse, T* out) {
  Wide<T> sum[tile_width] = {};
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t row = (reverse ? n - 1 - step : step) * stride;
    for (std::int64_t j = 0; j < width; ++j) {
      sum[j] += x[row + j];
      out[row + j] = static_cast<T>(sum[j]);
    }
  }
}

template <class T>
void cumulative_sum_as(const Tensor& x, bool reverse, const Tensor& out) {
  const std::int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const T* from = x.data<T>();
  T* to = out.data<T>();
  const std::int64_t width = std::min(inner, tile_width), tiles = ceil_div(inner, tile_width);
  const std::int64_t grain = std::max<std::int64_t>(1, task_size / (n * width));
  parallel_ranges(outer * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t left = task % tiles * tile_width, at = task / tiles * n * inner + left;
      if (inner == 1) {
        scan_row(from + at, n, reverse, to + at);
        continue;
      }
      scan_columns(from + at, n, inner, std::min(tile_width, inner - left), reverse, to + at);
    }
  });
}

}  // namespace

void cumulative_sum(const Tensor& x, bool reverse, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("cumulative_sum", 0, 2.0 * static_cast<double>(x.count()) * size_of(x.dtype()));
  switch (x.dtype()) {
    case DType::f32:
      return cumulative_sum_as<float>(x, reverse, out);
    case DType::f64:
      return cumulative_sum_as<double>(x, reverse, out);
    case DType::i32:
      return cumulative_sum_as<std::int32_t>(x, reverse, out);
    case DType::f16:  // not on the CPU: Tensor::empty refuses
    case DType::bf16:
      break;
  }
}

}  // namespace heed::cpu
