#include <vector>

#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/profile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"
#include "heed/core/checked.h"

// Layer normalisation (arXiv 1607.06450): y = (x - mean) inverse_deviation weight + bias. RMS normalisation (arXiv
// 1910.07467) is the same with 0 for the mean, and asked for by `mean` null.

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
struct LayerNormForward {
  using D = hn::ScalableTag<T>;
  const T *x, *weight, *bias;  // weight and bias may be null
  std::int64_t n;
  double epsilon;
  T *out, *mean, *inverse_deviation;

  void row(std::int64_t r) const {
    const D d;
    const T* from = x + r * n;
    T* to = out + r * n;
    const T row_mean = mean ? mean_of(from) : T(0);
    const auto m = hn::Set(d, row_mean);
    auto squares = hn::Zero(d);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto c = part.or_beyond(d, hn::Sub(part.load(d, from + i), m), T(0));
      squares = hn::MulAdd(c, c, squares);
    });
    const T variance = lane_sum(d, squares) / static_cast<T>(n);
    const T inverse = T(1) / std::sqrt(variance + static_cast<T>(epsilon));
    const auto s = hn::Set(d, inverse);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      auto y = hn::Mul(hn::Sub(part.load(d, from + i), m), s);
      if (weight) y = hn::Mul(y, part.load(d, weight + i));
      if (bias) y = hn::Add(y, part.load(d, bias + i));
      part.store(y, d, to + i);
    });
    if (mean) mean[r] = row_mean;
    inverse_deviation[r] = inverse;
  }

  T mean_of(const T* from) const {
    const D d;
    auto total = hn::Zero(d);
    for_each_vector(
        d, n, [&](auto part, std::int64_t i) HWY_ATTR { total = hn::Add(total, part.load(d, from + i)); });
    return lane_sum(d, total) / static_cast<T>(n);
  }
};

template <class T>
struct LayerNormBackward {
  using D = hn::ScalableTag<T>;
  const T *x, *weight, *mean, *inverse_deviation, *grad;  // weight and mean may be null
  std::int64_t n;
  T* dx;

  /// With h = (x - mean) s and u = grad weight: dx = s (u - mean(u) - h mean(u h)); without a mean h = x s, and mean(u)
  /// falls away.
  /// Adds grad h and grad to the sums of this block of rows, [2, n], unless null.
  void row(std::int64_t r, T* sums) const {
    const D d;
    const T* from = x + r * n;
    const T* g = grad + r * n;
    T* to = dx + r * n;
    const auto m = hn::Set(d, mean ? mean[r] : T(0)), s = hn::Set(d, inverse_deviation[r]);
    auto total = hn::Zero(d), projection = hn::Zero(d);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto gradient = part.load(d, g + i);
      const auto h = hn::Mul(hn::Sub(part.load(d, from + i), m), s);
      if (sums) {
        part.store(hn::MulAdd(gradient, h, part.load(d, sums + i)), d, sums + i);
        part.store(hn::Add(gradient, part.load(d, sums + n + i)), d, sums + n + i);
      }
      const auto u = weight ? hn::Mul(gradient, part.load(d, weight + i)) : gradient;
      total = hn::Add(total, u);
      projection = hn::MulAdd(u, h, projection);
    });
    const auto mean_u = hn::Set(d, mean ? lane_sum(d, total) / static_cast<T>(n) : T(0));
    const auto mean_uh = hn::Set(d, lane_sum(d, projection) / static_cast<T>(n));
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto h = hn::Mul(hn::Sub(part.load(d, from + i), m), s);
      auto u = part.load(d, g + i);
      if (weight) u = hn::Mul(u, part.load(d, weight + i));
      part.store(hn::Mul(s, hn::NegMulAdd(h, mean_uh, hn::Sub(u, mean_u))), d, to + i);
    });
  }
};

/// Rows whose contributions to dweight and dbias are added in one go: set by the shape, not by the threads.
inline std::int64_t rows_per_block(std::int64_t n) {
  return std::max<std::int64_t>(32, 32768 / n);
}

template <class T>
void layer_norm_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                     const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  const std::int64_t n = x.size(-1), rows = x.count() / n;
  const LayerNormForward<T> kernel{x.data<T>(),
                                   weight.defined() ? weight.data<T>() : nullptr,
                                   bias.defined() ? bias.data<T>() : nullptr,
                                   n,
                                   epsilon,
                                   out.data<T>(),
                                   mean.defined() ? mean.data<T>() : nullptr,
                                   inverse_deviation.data<T>()};
  parallel_ranges(rows, std::max<std::int64_t>(1, 16384 / n),
                  [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
                    for (std::int64_t r = begin; r < end; ++r) kernel.row(r);
                  });
}

/// to[j] = sum of the blocks' partial[block * 2 n + j], in their order and in double.
template <class T>
void combine_blocks(const T* partial, std::int64_t blocks, std::int64_t n, T* to) {
  constexpr std::int64_t width = 256;
  for (std::int64_t left = 0; left < n; left += width) {
    const std::int64_t columns = std::min(width, n - left);
    double sum[width] = {};
    for (std::int64_t block = 0; block < blocks; ++block) {
      const T* values = partial + block * 2 * n + left;
      for (std::int64_t j = 0; j < columns; ++j) sum[j] += values[j];
    }
    for (std::int64_t j = 0; j < columns; ++j) to[left + j] = static_cast<T>(sum[j]);
  }
}

template <class T>
void layer_norm_backward_rows(const Tensor& x, const Tensor& weight, const Tensor& mean,
                              const Tensor& inverse_deviation, const Tensor& grad, const Tensor& dx,
                              const Tensor& dweight, const Tensor& dbias) {
  const std::int64_t n = x.size(-1), rows = x.count() / n;
  const LayerNormBackward<T> kernel{x.data<T>(),
                                    weight.defined() ? weight.data<T>() : nullptr,
                                    mean.defined() ? mean.data<T>() : nullptr,
                                    inverse_deviation.data<T>(),
                                    grad.data<T>(),
                                    n,
                                    dx.data<T>()};
  const std::int64_t grain = rows_per_block(n), blocks = ceil_div(rows, grain);
  const bool with_sums = dweight.defined() || dbias.defined();
  std::vector<T> partial(static_cast<std::size_t>(with_sums ? blocks * 2 * n : 0));  // [blocks, 2, n]
  parallel_for(blocks, [&](std::int64_t block) HWY_ATTR {
    T* sums = with_sums ? partial.data() + block * 2 * n : nullptr;
    for (std::int64_t r = block * grain; r < std::min(rows, (block + 1) * grain); ++r) kernel.row(r, sums);
  });
  if (dweight.defined()) combine_blocks(partial.data(), blocks, n, dweight.data<T>());
  if (dbias.defined()) combine_blocks(partial.data() + n, blocks, n, dbias.data<T>());
}

void layer_norm_tensor(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                       const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  x.dtype() == DType::f64 ? layer_norm_rows<double>(x, weight, bias, epsilon, out, mean, inverse_deviation)
                          : layer_norm_rows<float>(x, weight, bias, epsilon, out, mean, inverse_deviation);
}

void layer_norm_backward_tensor(const Tensor& x, const Tensor& weight, const Tensor& mean,
                                const Tensor& inverse_deviation, const Tensor& grad, const Tensor& dx,
                                const Tensor& dweight, const Tensor& dbias) {
  x.dtype() == DType::f64
      ? layer_norm_backward_rows<double>(x, weight, mean, inverse_deviation, grad, dx, dweight, dbias)
      : layer_norm_backward_rows<float>(x, weight, mean, inverse_deviation, grad, dx, dweight, dbias);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(layer_norm_tensor);
HWY_EXPORT(layer_norm_backward_tensor);

void layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                        const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  if (x.count() == 0) return;
  const ProfileScope profile("layer_norm", 0, 2.0 * static_cast<double>(x.count()) * size_of(x.dtype()));
  HWY_DYNAMIC_DISPATCH(layer_norm_tensor)(x, weight, bias, epsilon, out, mean, inverse_deviation);
}

void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& inverse_deviation, const Tensor& grad, const Tensor& dx,
                         const Tensor& dweight, const Tensor& dbias) {
  if (x.count() == 0) {
    for (const Tensor& sum : {dweight, dbias}) {
      if (sum.defined()) fill(0, sum);
    }
    return;
  }
  const ProfileScope profile("layer_norm backward", 0,
                             3.0 * static_cast<double>(x.count()) * size_of(x.dtype()));
  HWY_DYNAMIC_DISPATCH(layer_norm_backward_tensor)
  (x, weight, mean, inverse_deviation, grad, dx, dweight, dbias);
}

}  // namespace heed::cpu
#endif
