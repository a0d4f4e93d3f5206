#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/profile.h"

namespace heed::cpu {
namespace {

constexpr std::int64_t task_size = 16384;  // elements worth a task of their own
constexpr std::int64_t tile_width = 512;   // columns followed at once

/// True when `x` takes the place of `best`; a NaN counts as the largest, as it does for the maximum itself.
template <class T>
bool beats(T x, T best) {
  return x > best || (x != x && best == best);
}

/// One tile of columns; x [n, stride], out [width].
template <class T>
void argmax_columns(const T* x, std::int64_t n, std::int64_t stride, std::int64_t width, std::int32_t* out) {
  T best[tile_width];
  std::copy_n(x, width, best);
  std::fill_n(out, width, 0);
  for (std::int64_t row = 1; row < n; ++row) {
    for (std::int64_t j = 0; j < width; ++j) {
      const T value = x[row * stride + j];
      const bool better = beats(value, best[j]);
      best[j] = better ? value : best[j];
      out[j] = better ? static_cast<std::int32_t>(row) : out[j];
    }
  }
}

/// Eight independent runs hide the latency of the comparison; the lowest index wins when they meet.
template <class T>
std::int32_t argmax_row(const T* x, std::int64_t n) {
  constexpr std::int64_t runs = 8;
  if (n < 2 * runs) {
    std::int32_t result;
    argmax_columns(x, n, 1, 1, &result);
    return result;
  }
  T best[runs];
  std::int32_t index[runs];
  for (std::int64_t k = 0; k < runs; ++k) best[k] = x[k], index[k] = static_cast<std::int32_t>(k);
  std::int64_t i = runs;
  for (; i + runs <= n; i += runs) {
    for (std::int64_t k = 0; k < runs; ++k) {
      const bool better = beats(x[i + k], best[k]);
      best[k] = better ? x[i + k] : best[k];
      index[k] = better ? static_cast<std::int32_t>(i + k) : index[k];
    }
  }
  for (; i < n; ++i) {
    if (beats(x[i], best[0])) best[0] = x[i], index[0] = static_cast<std::int32_t>(i);
  }
  for (std::int64_t k = 1; k < runs; ++k) {
    const bool tied = !beats(best[0], best[k]) && index[k] < index[0];
    if (beats(best[k], best[0]) || tied) best[0] = best[k], index[0] = index[k];
  }
  return index[0];
}

template <class T>
void argmax_as(const Tensor& x, const Tensor& out) {
  const std::int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const T* from = x.data<T>();
  std::int32_t* to = out.data<std::int32_t>();
  const std::int64_t width = std::min(inner, tile_width), tiles = (inner + tile_width - 1) / tile_width;
  const std::int64_t grain = std::max<std::int64_t>(1, task_size / (n * width));
  parallel_ranges(outer * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t o = task / tiles, left = task % tiles * tile_width;
      const T* values = from + o * n * inner + left;
      if (inner == 1) {
        to[o] = argmax_row(values, n);
      } else {
        argmax_columns(values, n, inner, std::min(tile_width, inner - left), to + o * inner + left);
      }
    }
  });
}

}  // namespace

void argmax(const Tensor& x, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("argmax", 0, static_cast<double>(x.count()) * size_of(x.dtype()));
  switch (x.dtype()) {
    case DType::f32:
      return argmax_as<float>(x, out);
    case DType::f64:
      return argmax_as<double>(x, out);
    case DType::i32:
      return argmax_as<std::int32_t>(x, out);
  }
}

}  // namespace heed::cpu
