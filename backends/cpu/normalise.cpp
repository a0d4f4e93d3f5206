#include <cmath>
#include <limits>
#include <vector>

#include "heed/backends/cpu/operands.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/normalise.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/philox-inl.h"

// Layer normalisation (arXiv 1607.06450): y = (x - mean) inverse_deviation weight + bias. RMS normalisation
// (arXiv 1910.07467) is the same with mean 0; a null `mean` selects it. For a sum with dropout, a few rows
// at a time are added and normalised while they are in cache.

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
    T row_mean = mean ? mean_of(from) : T(0);
    const auto m = hn::Set(d, row_mean);
    auto squares = hn::Zero(d);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto c = part.fill_tail(d, hn::Sub(part.load(d, from + i), m), T(0));
      squares = hn::MulAdd(c, c, squares);
    });
    const T variance = lane_sum(d, squares) / static_cast<T>(n) + static_cast<T>(epsilon);
    T inverse = T(1) / std::sqrt(variance);
    using Range = std::numeric_limits<T>;
    if (!(variance >= Range::min() / Range::epsilon() && variance <= Range::max())) [[unlikely]]
      scaled_statistics(from, row_mean, inverse);
    const auto centre = hn::Set(d, row_mean), s = hn::Set(d, inverse);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      auto y = hn::Mul(hn::Sub(part.load(d, from + i), centre), s);
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

  /// Those of a row whose sums or squares leave the range of T: it is divided by the power of two of its
  /// largest element. NaN where an element is NaN or infinite.
  void scaled_statistics(const T* from, T& row_mean, T& inverse) const {
    T largest = 0;
    for (std::int64_t i = 0; i < n; ++i) largest = std::abs(from[i]) <= largest ? largest : std::abs(from[i]);
    const int power = std::isfinite(largest) && largest > 0 ? std::ilogb(largest) : 0;
    double total = 0, squares = 0;
    for (std::int64_t i = 0; mean && i < n; ++i) total += std::scalbn(from[i], -power);
    const double centre = total / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double c = std::scalbn(from[i], -power) - centre;
      squares += c * c;
    }
    const double deviation = std::sqrt(squares / static_cast<double>(n) + std::scalbn(epsilon, -2 * power));
    row_mean = static_cast<T>(std::scalbn(centre, power));
    inverse = std::isfinite(deviation) ? static_cast<T>(std::scalbn(1 / deviation, -power))
                                       : std::numeric_limits<T>::quiet_NaN();
  }
};

template <class T>
struct LayerNormBackward {
  using D = hn::ScalableTag<T>;
  const T *x, *weight, *mean, *inverse_deviation, *grad;  // weight and mean may be null
  const T* also;                                          // added to dx; may be null
  std::int64_t n;
  T* dx;

  /// With h = (x - mean) s and u = grad weight: dx = s (u - mean(u) - h mean(u h)); without a mean h = x s,
  /// and mean(u) drops out. Adds grad h and grad to the sums of this block of rows, [2, n], unless null.
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
      auto gradient = hn::Mul(s, hn::NegMulAdd(h, mean_uh, hn::Sub(u, mean_u)));
      if (also) gradient = hn::Add(part.load(d, also + r * n + i), gradient);
      part.store(gradient, d, to + i);
    });
  }
};

/// to = from keep / (1 - p) + added for elements [begin, end), begin a multiple of four.
template <class T>
void add_dropped(const PhiloxStream& stream, double p, std::int64_t begin, std::int64_t end, const T* from,
                 const T* added, T* to) {
  if (p > 0) return dropout_range(stream, p, begin, end, from, added, to);
  const hn::ScalableTag<T> d;
  for_each_vector(d, end - begin, [&](auto part, std::int64_t i) HWY_ATTR {
    part.store(hn::Add(part.load(d, added + begin + i), part.load(d, from + begin + i)), d, to + begin + i);
  });
}

/// Rows whose contributions to dweight and dbias are added in one pass. Depends on the shape, not on the
/// threads. A multiple of four, so that it begins with a whole block of random words.
inline std::int64_t rows_per_block(std::int64_t n) {
  return std::max<std::int64_t>(32, 32768 / n / 4 * 4);
}

/// Rows that are added and normalised while they are in the first-level cache.
inline std::int64_t rows_in_cache(std::int64_t n) {
  return std::max<std::int64_t>(4, 4096 / n / 4 * 4);
}

template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

/// Calls before(begin, end) to prepare some rows, begin a multiple of four, and then normalises them.
template <class T, class Before>
void layer_norm_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                     const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation,
                     const Before& before) {
  const std::int64_t n = x.size(-1), rows = x.count() / n, piece = rows_in_cache(n);
  const LayerNormForward<T> kernel{
      x.data<T>(), data_or_null<T>(weight), data_or_null<T>(bias), n,
      epsilon,     out.data<T>(),           data_or_null<T>(mean), inverse_deviation.data<T>()};
  const std::int64_t grain = std::max<std::int64_t>(4, 16384 / n / 4 * 4);
  parallel_ranges(rows, grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t i = begin; i < end; i += piece) {
      before(i, std::min(end, i + piece));
      for (std::int64_t r = i; r < std::min(end, i + piece); ++r) kernel.row(r);
    }
  });
}

/// to[j] = sum over blocks of partial[block * 2 n + j], in order and in double.
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

/// Calls after(begin, end) once the dx of some rows is computed, begin a multiple of four.
template <class T, class After>
void layer_norm_backward_rows(const Tensor& x, const Tensor& weight, const Tensor& mean,
                              const Tensor& inverse_deviation, const Tensor& grad, const Tensor& also,
                              const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                              const After& after) {
  const std::int64_t n = x.size(-1), rows = x.count() / n, piece = rows_in_cache(n);
  const LayerNormBackward<T> kernel{x.data<T>(),
                                    data_or_null<T>(weight),
                                    data_or_null<T>(mean),
                                    inverse_deviation.data<T>(),
                                    grad.data<T>(),
                                    data_or_null<T>(also),
                                    n,
                                    dx.data<T>()};
  const std::int64_t grain = rows_per_block(n), blocks = ceil_div(rows, grain);
  const bool with_sums = dweight.defined() || dbias.defined();
  std::vector<T> partial(static_cast<std::size_t>(with_sums ? blocks * 2 * n : 0));  // [blocks, 2, n]
  parallel_for(blocks, [&](std::int64_t block) HWY_ATTR {
    T* sums = with_sums ? partial.data() + block * 2 * n : nullptr;
    const std::int64_t end = std::min(rows, (block + 1) * grain);
    for (std::int64_t i = block * grain; i < end; i += piece) {
      for (std::int64_t r = i; r < std::min(end, i + piece); ++r) kernel.row(r, sums);
      after(i, std::min(end, i + piece));
    }
  });
  if (dweight.defined()) combine_blocks(partial.data(), blocks, n, dweight.data<T>());
  if (dbias.defined()) combine_blocks(partial.data() + n, blocks, n, dbias.data<T>());
}

void layer_norm_tensor(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                       const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  const auto as_they_are = [](std::int64_t, std::int64_t) {};
  with_floating_type(x.dtype(), [&]<class T>(T) {
    layer_norm_rows<T>(x, weight, bias, epsilon, out, mean, inverse_deviation, as_they_are);
  });
}

void layer_norm_backward_tensor(const Tensor& x, const Tensor& weight, const Tensor& mean,
                                const Tensor& inverse_deviation, const Tensor& grad, const Tensor& dx,
                                const Tensor& dweight, const Tensor& dbias) {
  const auto done = [](std::int64_t, std::int64_t) {};
  with_floating_type(x.dtype(), [&]<class T>(T) {
    layer_norm_backward_rows<T>(x, weight, mean, inverse_deviation, grad, {}, dx, dweight, dbias, done);
  });
}

void add_norm_tensor(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                     const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& sum,
                     const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  const PhiloxStream stream(key);
  const std::int64_t n = x.size(-1);
  with_floating_type(x.dtype(), [&]<class T>(T) {
    const auto add = [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      add_dropped(stream, p, begin * n, end * n, x.data<T>(), residual.data<T>(), sum.data<T>());
    };
    layer_norm_rows<T>(sum, weight, bias, epsilon, out, mean, inverse_deviation, add);
  });
}

void add_norm_backward_tensor(const Tensor& sum, const Tensor& weight, const Tensor& mean,
                              const Tensor& inverse_deviation, const Tensor& grad, const Tensor& sum_grad,
                              double p, const RandomKey& key, const Tensor& dsum, const Tensor& dx,
                              const Tensor& dweight, const Tensor& dbias) {
  const PhiloxStream stream(key);
  const std::int64_t n = sum.size(-1);
  with_floating_type(sum.dtype(), [&]<class T>(T) {
    const T* const none = nullptr;
    const auto drop = [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      if (p > 0) dropout_range(stream, p, begin * n, end * n, dsum.data<T>(), none, dx.data<T>());
    };
    layer_norm_backward_rows<T>(sum, weight, mean, inverse_deviation, grad, sum_grad, dsum, dweight, dbias,
                                drop);
  });
}

// Rotary positions (arXiv 2104.09864): pairs of elements are rotated by the angles of their positions.

template <class T>
struct Rotary {
  using D = hn::ScalableTag<T>;
  const T *x, *cosines, *sines;
  std::int64_t heads, half;
  T direction;  // 1 to rotate, -1 to rotate back
  T* out;

  /// Rotates all heads at one position of one sample; `row` counts positions over all samples.
  void turn(std::int64_t row, std::int64_t position) const {
    const D d;
    const auto forth = hn::Set(d, direction);
    const T *cosine = cosines + position * half, *sine = sines + position * half;
    for (std::int64_t head = row * heads; head < (row + 1) * heads; ++head) {
      const T *first = x + head * 2 * half, *second = first + half;
      T* const to = out + head * 2 * half;
      for_each_vector(d, half, [&](auto part, std::int64_t i) HWY_ATTR {
        const auto a = part.load(d, first + i), b = part.load(d, second + i);
        const auto c = part.load(d, cosine + i), s = hn::Mul(forth, part.load(d, sine + i));
        part.store(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, to + i);
        part.store(hn::MulAdd(a, s, hn::Mul(b, c)), d, to + half + i);
      });
    }
  }
};

template <class T>
void rotary_rows(const Tensor& x, const Tensor& cosines, const Tensor& sines, double direction,
                 const Tensor& out) {
  const std::int64_t positions = x.size(1), width = x.size(2) * x.size(3);
  const Rotary<T> kernel{x.data<T>(),   cosines.data<T>(),         sines.data<T>(), x.size(2),
                         x.size(3) / 2, static_cast<T>(direction), out.data<T>()};
  const std::int64_t grain = pieces_per_task(16384, width);
  parallel_ranges(x.size(0) * positions, grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) kernel.turn(row, row % positions);
  });
}

void rotary_tensor(const Tensor& x, const Tensor& cosines, const Tensor& sines, double direction,
                   const Tensor& out) {
  with_floating_type(x.dtype(), [&]<class T>(T) { rotary_rows<T>(x, cosines, sines, direction, out); });
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(layer_norm_tensor);
HWY_EXPORT(layer_norm_backward_tensor);
HWY_EXPORT(add_norm_tensor);
HWY_EXPORT(add_norm_backward_tensor);
HWY_EXPORT(rotary_tensor);

static void no_rows(const Tensor& dweight, const Tensor& dbias) {
  for (const Tensor& sum : {dweight, dbias})
    if (sum.defined()) fill(0, sum);
}

void layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                        const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  if (x.count() == 0) return;
  const ProfileScope profile("layer_norm", 0, 2 * bytes_of(x));
  HWY_DYNAMIC_DISPATCH(layer_norm_tensor)(x, weight, bias, epsilon, out, mean, inverse_deviation);
}

void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& inverse_deviation, const Tensor& grad, const Tensor& dx,
                         const Tensor& dweight, const Tensor& dbias) {
  if (x.count() == 0) return no_rows(dweight, dbias);
  const ProfileScope profile("layer_norm backward", 0, 3 * bytes_of(x));
  HWY_DYNAMIC_DISPATCH(layer_norm_backward_tensor)
  (x, weight, mean, inverse_deviation, grad, dx, dweight, dbias);
}

void add_norm_forward(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                      const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& sum,
                      const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  if (x.count() == 0) return;
  const ProfileScope profile("add_norm", 0, 4 * bytes_of(x));
  HWY_DYNAMIC_DISPATCH(add_norm_tensor)
  (x, residual, p, key, weight, bias, epsilon, sum, out, mean, inverse_deviation);
}

void add_norm_backward(const Tensor& sum, const Tensor& weight, const Tensor& mean,
                       const Tensor& inverse_deviation, const Tensor& grad, const Tensor& sum_grad, double p,
                       const RandomKey& key, const Tensor& dsum, const Tensor& dx, const Tensor& dweight,
                       const Tensor& dbias) {
  if (sum.count() == 0) return no_rows(dweight, dbias);
  const double tensors = 3.0 + sum_grad.defined() + dx.defined();
  const ProfileScope profile("add_norm backward", 0, tensors * bytes_of(sum));
  HWY_DYNAMIC_DISPATCH(add_norm_backward_tensor)
  (sum, weight, mean, inverse_deviation, grad, sum_grad, p, key, dsum, dx, dweight, dbias);
}

void rotary_forward(const Tensor& x, const Tensor& cosines, const Tensor& sines, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("rotary", 0, 2 * bytes_of(x));
  HWY_DYNAMIC_DISPATCH(rotary_tensor)(x, cosines, sines, 1, out);
}

void rotary_backward(const Tensor& grad, const Tensor& cosines, const Tensor& sines, const Tensor& dx) {
  if (grad.count() == 0) return;
  const ProfileScope profile("rotary backward", 0, 2 * bytes_of(grad));
  HWY_DYNAMIC_DISPATCH(rotary_tensor)(grad, cosines, sines, -1, dx);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
