#include <cmath>
#include <limits>

#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/profile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"

// Cross entropy with label smoothing (arXiv 1512.00567, section 7) straight from the logits:
// loss = log_sum_exp - (1 - e) x_target - e mean(x). What is subtracted from logits is one of them, so that logits far
// from 0 lose no digits.

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

constexpr std::int64_t task_size = 16384;  // elements worth a task of their own
constexpr std::int64_t block_size = 1024;  // elements read twice while they are in the first-level cache

/// The log of the sum of exponentials and the sum of one row, read from memory once: each block is summed
/// against the largest value so far (arXiv 1805.02867).
template <class T>
struct RowSums {
  T largest = -std::numeric_limits<T>::infinity();
  T exponentials = 0;  // sum of exp(x - largest)
  T origin = 0;        // a logit of the row
  T values = 0;        // sum of x - origin

  void add(const T* x, std::int64_t n) {
    const hn::ScalableTag<T> d;
    const T lowest = -std::numeric_limits<T>::infinity();
    const auto zero_at = hn::Set(d, origin);
    auto best = hn::Set(d, largest);
    auto sum = hn::Zero(d);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto v = part.load(d, x + i);
      best = hn::Max(best, part.or_beyond(d, v, lowest));
      sum = hn::Add(sum, hn::Sub(part.or_beyond(d, v, origin), zero_at));
    });
    values += lane_sum(d, sum);
    const T bound = lane_max(d, best);
    if (bound == lowest && values == values) return;  // only -infinity so far
    const auto shift = hn::Set(d, bound);
    auto total = hn::Zero(d);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto v = exp(d, hn::Sub(part.load(d, x + i), shift));
      total = hn::Add(total, part.or_beyond(d, v, T(0)));
    });
    if (bound != largest) exponentials *= std::exp(largest - bound);
    exponentials += lane_sum(d, total);
    largest = bound;
  }
};

template <class T>
void cross_entropy_rows(const Tensor& logits, const Tensor& targets, double smoothing, std::int32_t ignored,
                        const Tensor& loss, const Tensor& log_sum_exp) {
  const std::int64_t classes = logits.size(-1), rows = logits.count() / classes;
  const T* from = logits.data<T>();
  const std::int32_t* target = targets.data<std::int32_t>();
  T* losses = loss.data<T>();
  T* logs = log_sum_exp.data<T>();
  const T on_target = static_cast<T>(1 - smoothing), on_mean = static_cast<T>(smoothing);
  const std::int64_t grain = std::max<std::int64_t>(1, task_size / classes);
  parallel_ranges(rows, grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t r = begin; r < end; ++r) {
      if (target[r] == ignored) {
        losses[r] = logs[2 * r] = logs[2 * r + 1] = 0;
        continue;
      }
      const T* row = from + r * classes;
      RowSums<T> sums;
      if (std::isfinite(row[0])) sums.origin = row[0];
      for (std::int64_t i = 0; i < classes; i += block_size)
        sums.add(row + i, std::min(block_size, classes - i));
      const T log_sum = std::log(sums.exponentials);
      logs[2 * r] = sums.largest;
      logs[2 * r + 1] = log_sum;
      T value = on_target * ((sums.largest - row[target[r]]) + log_sum);
      if (on_mean != 0)
        value += on_mean * (((sums.largest - sums.origin) - sums.values / static_cast<T>(classes)) + log_sum);
      losses[r] = value;
    }
  });
}

/// dlogits = grad (softmax - (1 - e) one_hot(target) - e / classes).
template <class T>
void cross_entropy_backward_rows(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp,
                                 const Tensor& grad, double smoothing, std::int32_t ignored,
                                 const Tensor& dlogits) {
  const std::int64_t classes = logits.size(-1), rows = logits.count() / classes;
  const T* from = logits.data<T>();
  const std::int32_t* target = targets.data<std::int32_t>();
  const T* logs = log_sum_exp.data<T>();
  const T* gradient = grad.data<T>();
  T* to = dlogits.data<T>();
  const T on_target = static_cast<T>(1 - smoothing);
  const T on_every = static_cast<T>(smoothing / static_cast<double>(classes));
  const std::int64_t grain = std::max<std::int64_t>(1, task_size / classes);
  parallel_ranges(rows, grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = from + r * classes;
      T* out = to + r * classes;
      if (target[r] == ignored) {
        std::fill_n(out, classes, T(0));
        continue;
      }
      const auto largest = hn::Set(d, logs[2 * r]), log_sum = hn::Set(d, logs[2 * r + 1]);
      const auto g = hn::Set(d, gradient[r]), share = hn::Set(d, on_every);
      for_each_vector(d, classes, [&](auto part, std::int64_t i) HWY_ATTR {
        const auto p = exp(d, hn::Sub(hn::Sub(part.load(d, row + i), largest), log_sum));
        part.store(hn::Mul(hn::Sub(p, share), g), d, out + i);
      });
      out[target[r]] -= gradient[r] * on_target;
    }
  });
}

void cross_entropy_tensor(const Tensor& logits, const Tensor& targets, double smoothing, std::int32_t ignored,
                          const Tensor& loss, const Tensor& log_sum_exp) {
  logits.dtype() == DType::f64
      ? cross_entropy_rows<double>(logits, targets, smoothing, ignored, loss, log_sum_exp)
      : cross_entropy_rows<float>(logits, targets, smoothing, ignored, loss, log_sum_exp);
}

void cross_entropy_backward_tensor(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp,
                                   const Tensor& grad, double smoothing, std::int32_t ignored,
                                   const Tensor& dlogits) {
  logits.dtype() == DType::f64
      ? cross_entropy_backward_rows<double>(logits, targets, log_sum_exp, grad, smoothing, ignored, dlogits)
      : cross_entropy_backward_rows<float>(logits, targets, log_sum_exp, grad, smoothing, ignored, dlogits);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

void check_targets(const Tensor& targets, std::int64_t classes, std::int32_t ignored) {
  const std::int32_t* target = targets.data<std::int32_t>();
  for (std::int64_t i = 0; i < targets.count(); ++i) {
    check(target[i] == ignored || (target[i] >= 0 && target[i] < classes), "cross_entropy: target ",
          target[i], " of row ", i, " is not a class in [0, ", classes, ") and not the ignored index ",
          ignored);
  }
}

}  // namespace

HWY_EXPORT(cross_entropy_tensor);
HWY_EXPORT(cross_entropy_backward_tensor);

void cross_entropy_forward(const Tensor& logits, const Tensor& targets, double smoothing,
                           std::int32_t ignored, const Tensor& loss, const Tensor& log_sum_exp) {
  check_targets(targets, logits.size(-1), ignored);
  if (logits.count() == 0) return;
  const ProfileScope profile("cross_entropy", 0,
                             static_cast<double>(logits.count()) * size_of(logits.dtype()));
  HWY_DYNAMIC_DISPATCH(cross_entropy_tensor)(logits, targets, smoothing, ignored, loss, log_sum_exp);
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp,
                            const Tensor& grad, double smoothing, std::int32_t ignored,
                            const Tensor& dlogits) {
  check_targets(targets, logits.size(-1), ignored);
  if (logits.count() == 0) return;
  const ProfileScope profile("cross_entropy backward", 0,
                             2.0 * static_cast<double>(logits.count()) * size_of(logits.dtype()));
  HWY_DYNAMIC_DISPATCH(cross_entropy_backward_tensor)
  (logits, targets, log_sum_exp, grad, smoothing, ignored, dlogits);
}

}  // namespace heed::cpu
#endif
