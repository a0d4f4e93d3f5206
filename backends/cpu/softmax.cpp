#include <cmath>
#include <limits>

#include "heed/backends/cpu/operands.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

constexpr std::int64_t task_size = 16384;  // elements worth a task of their own

/// The mask of one row, applied a vector at a time; null allows every entry.
class RowMask {
 public:
  explicit RowMask(const std::int32_t* allowed) : allowed_(allowed) {}

  /// x where allowed, else -infinity.
  template <class Part, class D>
  HWY_INLINE hn::Vec<D> apply(Part part, D d, hn::Vec<D> x, std::int64_t i) const {
    if (!allowed_) return x;
    const hn::Rebind<std::int32_t, D> narrow;
    const auto nothing = hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity());
    return hn::IfThenElse(nonzero_lanes(d, part.load(narrow, allowed_ + i)), x, nothing);
  }

 private:
  const std::int32_t* allowed_;
};

/// One row of a softmax, read through its mask; lanes beyond the end read as -infinity.
template <class T>
struct SoftmaxRow {
  using D = hn::ScalableTag<T>;
  static constexpr T minus_infinity = -std::numeric_limits<T>::infinity();

  const T* x;
  RowMask mask;
  std::int64_t n;
  T* out;

  template <class Part>
  HWY_INLINE hn::Vec<D> load(Part part, std::int64_t i) const {
    const D d;
    return part.fill_tail(d, mask.apply(part, d, part.load(d, x + i), i), minus_infinity);
  }

  /// The largest allowed value; -infinity if nothing is allowed, NaN if there is one in the row.
  HWY_INLINE T largest() const {
    const D d;
    auto best = hn::Set(d, minus_infinity);
    auto unordered = hn::FirstN(d, 0);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto v = load(part, i);
      unordered = hn::Or(unordered, hn::IsNaN(v));
      best = hn::Max(best, v);
    });
    if (!hn::AllFalse(d, unordered)) return std::numeric_limits<T>::quiet_NaN();
    return lane_max(d, best);
  }

  /// out = exp(x - largest); returns the sum.
  HWY_INLINE T exponentials(T largest) const {
    const D d;
    const auto shift = hn::Set(d, largest);
    auto sum = hn::Zero(d);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto v = exp(d, hn::Sub(load(part, i), shift));
      part.store(v, d, out + i);
      sum = hn::Add(sum, v);
    });
    return lane_sum(d, sum);
  }

  HWY_INLINE void scale(T factor) const {
    const D d;
    const auto f = hn::Set(d, factor);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      part.store(hn::Mul(part.load(d, out + i), f), d, out + i);
    });
  }

  /// out = (x - largest) - log_sum.
  HWY_INLINE void subtract(T largest, T log_sum) const {
    const D d;
    const auto a = hn::Set(d, largest), b = hn::Set(d, log_sum);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      part.store(hn::Sub(hn::Sub(load(part, i), a), b), d, out + i);
    });
  }
};

template <class T>
void softmax_rows(const Tensor& x, const Tensor& mask, bool log, const Tensor& out) {
  const std::int64_t n = x.size(-1), rows = x.count() / n;
  const T* from = x.data<T>();
  T* to = out.data<T>();
  const std::int32_t* allowed = mask.defined() ? mask.data<std::int32_t>() : nullptr;
  const std::int64_t mask_stride = allowed ? mask.stride(0) : 0;
  const bool whole_rows = allowed && mask.stride(1) == 0;  // one entry decides for its whole row
  const T nothing = log ? SoftmaxRow<T>::minus_infinity : T(0);

  parallel_ranges(rows, pieces_per_task(task_size, n), [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t* row_mask = allowed ? allowed + i * mask_stride : nullptr;
      const SoftmaxRow<T> row{from + i * n, RowMask(whole_rows ? nullptr : row_mask), n, to + i * n};
      const bool excluded = whole_rows && *row_mask == 0;
      const T largest = excluded ? row.minus_infinity : row.largest();
      if (largest == row.minus_infinity) {
        std::fill_n(row.out, n, nothing);
        continue;
      }
      const T sum = row.exponentials(largest);
      if (log)
        row.subtract(largest, std::log(sum));
      else
        row.scale(T(1) / sum);
    }
  });
}

/// dx = y (g - sum(g y)).
template <class T>
void softmax_backward_row(const T* y, const T* grad, std::int64_t n, T* dx) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
    sum = hn::MulAdd(part.load(d, y + i), part.load(d, grad + i), sum);
  });
  const auto dot = hn::Set(d, lane_sum(d, sum));
  for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
    part.store(hn::Mul(part.load(d, y + i), hn::Sub(part.load(d, grad + i), dot)), d, dx + i);
  });
}

/// dx = g - exp(y) sum(g). A y of -infinity is a constant (masked): it is excluded and gets 0.
template <class T>
void log_softmax_backward_row(const T* y, const T* grad, std::int64_t n, T* dx) {
  const hn::ScalableTag<T> d;
  const auto constant = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto total = hn::Zero(d);
  for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
    const auto masked = hn::Eq(part.load(d, y + i), constant);
    total = hn::Add(total, hn::IfThenZeroElse(masked, part.load(d, grad + i)));
  });
  const auto sum = hn::Set(d, lane_sum(d, total));
  for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
    const auto v = part.load(d, y + i);
    const auto result = hn::NegMulAdd(exp(d, v), sum, part.load(d, grad + i));
    part.store(hn::IfThenZeroElse(hn::Eq(v, constant), result), d, dx + i);
  });
}

template <class T>
void softmax_backward_rows(const Tensor& y, const Tensor& grad, bool log, const Tensor& dx) {
  const std::int64_t n = y.size(-1), rows = y.count() / n;
  const T* weights = y.data<T>();
  const T* from = grad.data<T>();
  T* to = dx.data<T>();
  const auto row = log ? log_softmax_backward_row<T> : softmax_backward_row<T>;
  parallel_ranges(rows, pieces_per_task(task_size, n), [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t at = begin * n; at < end * n; at += n) row(weights + at, from + at, n, to + at);
  });
}

void softmax_tensor(const Tensor& x, const Tensor& mask, bool log, const Tensor& out) {
  with_floating_type(x.dtype(), [&]<class T>(T) { softmax_rows<T>(x, mask, log, out); });
}

void softmax_backward_tensor(const Tensor& y, const Tensor& grad, bool log, const Tensor& dx) {
  with_floating_type(y.dtype(), [&]<class T>(T) { softmax_backward_rows<T>(y, grad, log, dx); });
}

// Cross entropy with label smoothing (arXiv 1512.00567, section 7) straight from the logits:
// loss = log_sum_exp - (1 - e) x_target - e mean(x). The value subtracted from the logits is itself one of
// them, so that logits far from 0 lose no digits.

constexpr std::int64_t block_size = 1024;  // elements read twice while in the first-level cache

/// The sum of exponentials and the sum of one row, which is read from memory once: each block is summed
/// relative to the largest value so far (arXiv 1805.02867).
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
      best = hn::Max(best, part.fill_tail(d, v, lowest));
      sum = hn::Add(sum, hn::Sub(part.fill_tail(d, v, origin), zero_at));
    });
    values += lane_sum(d, sum);
    const T bound = lane_max(d, best);
    if (bound == lowest && values == values) return;  // only -infinity so far
    const auto shift = hn::Set(d, bound);
    auto total = hn::Zero(d);
    for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
      const auto v = exp(d, hn::Sub(part.load(d, x + i), shift));
      total = hn::Add(total, part.fill_tail(d, v, T(0)));
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
  parallel_ranges(
      rows, pieces_per_task(task_size, classes), [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
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
            value +=
                on_mean * (((sums.largest - sums.origin) - sums.values / static_cast<T>(classes)) + log_sum);
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
  parallel_ranges(rows, pieces_per_task(task_size, classes),
                  [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
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
  with_floating_type(logits.dtype(), [&]<class T>(T) {
    cross_entropy_rows<T>(logits, targets, smoothing, ignored, loss, log_sum_exp);
  });
}

void cross_entropy_backward_tensor(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp,
                                   const Tensor& grad, double smoothing, std::int32_t ignored,
                                   const Tensor& dlogits) {
  with_floating_type(logits.dtype(), [&]<class T>(T) {
    cross_entropy_backward_rows<T>(logits, targets, log_sum_exp, grad, smoothing, ignored, dlogits);
  });
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(softmax_tensor);
HWY_EXPORT(softmax_backward_tensor);
HWY_EXPORT(cross_entropy_tensor);
HWY_EXPORT(cross_entropy_backward_tensor);

static void check_targets(const Tensor& targets, std::int64_t classes, std::int32_t ignored) {
  const std::int32_t* target = targets.data<std::int32_t>();
  for (std::int64_t i = 0; i < targets.count(); ++i) {
    check(target[i] == ignored || (target[i] >= 0 && target[i] < classes), "cross_entropy: target ",
          target[i], " of row ", i, " is not a class in [0, ", classes, ") and not the ignored index ",
          ignored);
  }
}

void softmax_forward(const Tensor& x, const Tensor& mask, bool log, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("softmax", 0, 2 * bytes_of(x));
  HWY_DYNAMIC_DISPATCH(softmax_tensor)(x, mask, log, out);
}

void softmax_backward(const Tensor& y, const Tensor& grad, bool log, const Tensor& dx) {
  if (y.count() == 0) return;
  const ProfileScope profile("softmax backward", 0, 3 * bytes_of(y));
  HWY_DYNAMIC_DISPATCH(softmax_backward_tensor)(y, grad, log, dx);
}

void cross_entropy_forward(const Tensor& logits, const Tensor& targets, double smoothing,
                           std::int32_t ignored, const Tensor& loss, const Tensor& log_sum_exp) {
  check_targets(targets, logits.size(-1), ignored);
  if (logits.count() == 0) return;
  const ProfileScope profile("cross_entropy", 0, bytes_of(logits));
  HWY_DYNAMIC_DISPATCH(cross_entropy_tensor)(logits, targets, smoothing, ignored, loss, log_sum_exp);
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp,
                            const Tensor& grad, double smoothing, std::int32_t ignored,
                            const Tensor& dlogits) {
  check_targets(targets, logits.size(-1), ignored);
  if (logits.count() == 0) return;
  const ProfileScope profile("cross_entropy backward", 0, 2 * bytes_of(logits));
  HWY_DYNAMIC_DISPATCH(cross_entropy_backward_tensor)
  (logits, targets, log_sum_exp, grad, smoothing, ignored, dlogits);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
