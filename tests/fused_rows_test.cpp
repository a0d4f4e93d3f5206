#include <cmath>
#include <limits>
#include <numbers>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "kernel_check.h"
#include "model_support.h"
#include "support.h"

// Softmax, layer normalisation, cross entropy and the Fourier transform: the fused kernels against the
// formulas in double.

using namespace heed;
using namespace heed::test;

namespace {

struct Extent {
  std::int64_t rows, n;
};
const std::vector<Extent> extents = {{1, 1},  {3, 2},    {5, 7},    {4, 16},   {9, 24},
                                     {2, 33}, {70, 129}, {6, 1000}, {3, 5003}, {900, 40}};

/// A row of a flat [rows, n] array.
std::vector<double> row_of(const std::vector<double>& values, std::int64_t row, std::int64_t n) {
  return {values.begin() + row * n, values.begin() + (row + 1) * n};
}

std::vector<double> softmax_by_loop(const std::vector<double>& x, std::int64_t n, bool log) {
  std::vector<double> y;
  for (auto row = x.begin(); row < x.end(); row += n) {
    const double largest = *std::max_element(row, row + n);
    double sum = 0;
    std::for_each(row, row + n, [&](double value) { sum += std::exp(value - largest); });
    std::transform(row, row + n, std::back_inserter(y), [&](double value) {
      if (largest == -infinity) return log ? -infinity : 0;
      return log ? value - largest - std::log(sum) : std::exp(value - largest) / sum;
    });
  }
  return y;
}

template <class T>
Tensor softmax(const Tensor& x, const Tensor& mask, bool log) {
  const Tensor out = Tensor::empty(x.shape(), dtype_of<T>);
  cpu_backend.softmax.forward(x, mask, log, out);
  return out;
}

template <class T>
Tensor softmax_backward(const Tensor& y, const Tensor& grad, bool log) {
  const Tensor dx = Tensor::empty(y.shape(), dtype_of<T>);
  cpu_backend.softmax.backward(y, grad, log, dx);
  return dx;
}

}  // namespace

TEST_CASE_TEMPLATE("softmax and log-softmax agree with plain loops", T, float, double) {
  for (const Extent& extent : extents) {
    const auto [rows, n] = extent;
    for (bool log : {false, true}) {
      CAPTURE(extent.n);
      CAPTURE(log);
      const Tensor x = tensor_of<T>(numbers(rows * n, -30, 30), {rows, n});
      const std::vector<double> expected = softmax_by_loop(values_of<T>(x), n, log);
      CHECK(worst_error(values_of<T>(softmax<T>(x, {}, log)), expected) <= tolerance<T>);
    }
  }
}

TEST_CASE_TEMPLATE("a masked softmax is that of the allowed entries", T, float, double) {
  for (const Extent& extent : extents) {
    const auto [rows, n] = extent;
    std::vector<double> values = numbers(rows * n, -3, 3);
    std::vector<double> allowed(values.size());
    for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] = random_word({7, 0, 0}, i) % 3 != 0;
    std::fill_n(allowed.begin(), n, 0);  // the first row allows nothing
    const Tensor mask = tensor_of<std::int32_t>(allowed, {rows, n});
    std::vector<double> masked = values;
    for (std::size_t i = 0; i < masked.size(); ++i) {
      if (allowed[i] == 0)
        masked[i] = -infinity, values[i] = i % 2 ? not_a_number : infinity;  // must not be seen
    }
    const Tensor x = tensor_of<T>(values, {rows, n});
    for (bool log : {false, true}) {
      CAPTURE(extent.n);
      const std::vector<double> expected = softmax_by_loop(masked, n, log);
      CHECK(worst_error(values_of<T>(softmax<T>(x, mask, log)), expected) <= tolerance<T>);
    }
  }
}

TEST_CASE("a softmax mask may be broadcast along either axis") {
  const std::int64_t rows = 5, n = 21;
  const Tensor x = tensor_of<float>(numbers(rows * n), {rows, n});
  std::vector<double> columns(n, 1.0), some_rows = {1, 0, 1, 1, 0};
  columns[3] = columns[20] = 0;
  std::vector<double> by_column = values_of<float>(x), by_row = by_column;
  for (std::size_t i = 0; i < by_column.size(); ++i) {
    if (columns[i % n] == 0) by_column[i] = -infinity;
    if (some_rows[i / n] == 0) by_row[i] = -infinity;
  }
  const Tensor column_mask = tensor_of<std::int32_t>(columns, {n}).view({rows, n}, {0, 1}, 0);
  const Tensor row_mask = tensor_of<std::int32_t>(some_rows, {rows}).view({rows, n}, {1, 0}, 0);
  for (bool log : {false, true}) {
    CHECK(worst_error(values_of<float>(softmax<float>(x, column_mask, log)),
                      softmax_by_loop(by_column, n, log)) < 1e-6);
    CHECK(worst_error(values_of<float>(softmax<float>(x, row_mask, log)), softmax_by_loop(by_row, n, log)) <
          1e-6);
  }
}

TEST_CASE("softmax of rows with infinities and NaN") {
  for (std::int64_t n : {5, 16, 40}) {
    std::vector<double> x(static_cast<std::size_t>(4 * n), -infinity);
    x[static_cast<std::size_t>(n + 2)] = 3;                 // one finite entry takes all
    x[static_cast<std::size_t>(2 * n + 4)] = not_a_number;  // among -infinity only
    for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(3 * n + i)] = 1;
    x[static_cast<std::size_t>(3 * n + 1)] = infinity;
    const std::vector<double> y = values_of<float>(softmax<float>(tensor_of<float>(x, {4, n}), {}, false));
    CHECK(row_of(y, 0, n) == std::vector<double>(static_cast<std::size_t>(n), 0.0));
    CHECK(row_of(y, 1, n)[2] == 1);
    CHECK(row_of(y, 1, n)[3] == 0);
    CHECK(std::isnan(row_of(y, 2, n)[0]));
    CHECK(std::isnan(row_of(y, 3, n)[1]));
    const std::vector<double> logs = values_of<float>(softmax<float>(tensor_of<float>(x, {4, n}), {}, true));
    CHECK(logs[0] == -infinity);
    CHECK(row_of(logs, 1, n)[2] == 0);
    CHECK(std::isnan(row_of(logs, 2, n)[0]));
  }
}

TEST_CASE_TEMPLATE("the gradients of softmax and log-softmax", T, float, double) {
  for (const Extent& extent : extents) {
    const auto [rows, n] = extent;
    const std::vector<double> g = values_of<T>(tensor_of<T>(numbers(rows * n, -1, 1, 1), {rows, n}));
    for (bool log : {false, true}) {
      CAPTURE(extent.n);
      CAPTURE(log);
      const Tensor y = softmax<T>(tensor_of<T>(numbers(rows * n, -3, 3), {rows, n}), {}, log);
      const std::vector<double> weights = values_of<T>(y);
      std::vector<double> expected(g.size());
      for (std::int64_t at = 0; at < rows * n; at += n) {
        const double *const dy = g.data() + at, *const w = weights.data() + at;
        double sum = 0;
        for (std::int64_t i = 0; i < n; ++i) sum += log ? dy[i] : dy[i] * w[i];
        for (std::int64_t i = 0; i < n; ++i)
          expected.data()[at + i] = log ? dy[i] - std::exp(w[i]) * sum : w[i] * (dy[i] - sum);
      }
      const Tensor dx = softmax_backward<T>(y, tensor_of<T>(g, {rows, n}), log);
      CHECK(worst_error(values_of<T>(dx), expected) <= 10 * tolerance<T>);
    }
  }
}

TEST_CASE("masked entries get no gradient through log-softmax") {
  const std::int64_t n = 19;
  std::vector<double> allowed(n, 1.0), g(n, 0.5);
  allowed[0] = allowed[17] = 0;
  g[17] = 100;
  const Tensor mask = tensor_of<std::int32_t>(allowed, {1, n});
  const Tensor y = softmax<double>(tensor_of<double>(numbers(n), {1, n}), mask, true);
  const std::vector<double> dx =
      values_of<double>(softmax_backward<double>(y, tensor_of<double>(g, {1, n}), true));
  CHECK(dx[0] == 0);
  CHECK(dx[17] == 0);
  double sum = 0;
  for (double value : dx) sum += value;
  CHECK(std::abs(sum) < 1e-12);  // log-softmax ignores a shift of its input
}

namespace {

struct NormGradients {
  std::int64_t rows, n;
  Tensor x, weight, bias, grad;
  Tensor out, mean, inverse, dx, dweight, dbias;
};

template <class T>
NormGradients run_layer_norm(std::int64_t rows, std::int64_t n, bool affine, bool centred = true) {
  NormGradients t{rows, n,  tensor_of<T>(numbers(rows * n, -2, 5), {rows, n}),
                  {},   {}, tensor_of<T>(numbers(rows * n, -1, 1, 1), {rows, n}),
                  {},   {}, {},
                  {},   {}, {}};
  t.out = Tensor::empty({rows, n}, dtype_of<T>);
  t.dx = Tensor::empty({rows, n}, dtype_of<T>);
  if (centred) t.mean = Tensor::empty({rows}, dtype_of<T>);
  t.inverse = Tensor::empty({rows}, dtype_of<T>);
  if (affine) {
    t.weight = tensor_of<T>(numbers(n, 0.5, 2, 2), {n});
    t.bias = tensor_of<T>(numbers(n, -1, 1, 3), {n});
    t.dweight = Tensor::empty({n}, dtype_of<T>);
    t.dbias = Tensor::empty({n}, dtype_of<T>);
  }
  cpu_backend.layer_norm.forward(t.x, t.weight, t.bias, 1e-5, t.out, t.mean, t.inverse);
  cpu_backend.layer_norm.backward(t.x, t.weight, t.mean, t.inverse, t.grad, t.dx, t.dweight, t.dbias);
  return t;
}

/// Centred, or as they are: RMS normalisation.
template <class T>
void check_norms_of_rows(bool centred) {
  for (const Extent& extent : extents) {
    const auto [rows, n] = extent;
    for (bool affine : {false, true}) {
      CAPTURE(extent.rows);
      CAPTURE(extent.n);
      const NormGradients t = run_layer_norm<T>(rows, n, affine, centred);
      const auto x = values_of<T>(t.x), g = values_of<T>(t.grad);
      const std::vector<double> ones(static_cast<std::size_t>(n), 1.0),
          zeros(static_cast<std::size_t>(n), 0.0);
      const auto weight = affine ? values_of<T>(t.weight) : ones,
                 bias = affine ? values_of<T>(t.bias) : zeros;
      std::vector<double> y(x.size()), dx(x.size()), dweight(zeros), dbias(zeros), means, inverses;
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto at = static_cast<std::size_t>(r * n);
        const auto width = static_cast<std::size_t>(n);
        double mean = 0, variance = 0;
        for (std::size_t i = 0; centred && i < width; ++i) mean += x[at + i] / static_cast<double>(n);
        for (std::size_t i = 0; i < width; ++i)
          variance += std::pow(x[at + i] - mean, 2) / static_cast<double>(n);
        const double inverse = 1 / std::sqrt(variance + 1e-5);
        means.push_back(mean);
        inverses.push_back(inverse);
        double mean_u = 0, mean_uh = 0;
        for (std::size_t i = 0; i < width; ++i) {
          const double h = (x[at + i] - mean) * inverse, u = g[at + i] * weight[i];
          y[at + i] = h * weight[i] + bias[i];
          dweight[i] += g[at + i] * h;
          dbias[i] += g[at + i];
          if (centred) mean_u += u / static_cast<double>(n);
          mean_uh += u * h / static_cast<double>(n);
        }
        for (std::size_t i = 0; i < width; ++i) {
          const double h = (x[at + i] - mean) * inverse;
          dx[at + i] = inverse * (g[at + i] * weight[i] - mean_u - h * mean_uh);
        }
      }
      // With n = 1 the variance is 0 and everything is scaled by 1 / sqrt(epsilon) = 316.
      const double allowed = tolerance<T> * (n <= 2 ? 1000 : 10);
      CHECK(worst_error(values_of<T>(t.out), y) <= allowed);
      if (centred) CHECK(worst_error(values_of<T>(t.mean), means) <= allowed);
      CHECK(worst_error(values_of<T>(t.inverse), inverses) <= allowed);
      CHECK(worst_error(values_of<T>(t.dx), dx) <= allowed);
      if (affine) {
        CHECK(worst_error(values_of<T>(t.dweight), dweight) <= allowed);
        CHECK(worst_error(values_of<T>(t.dbias), dbias) <= allowed);
      }
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("layer normalisation and its gradients agree with plain loops", T, float, double) {
  check_norms_of_rows<T>(true);
}

TEST_CASE_TEMPLATE("RMS normalisation and its gradients agree with plain loops", T, float, double) {
  check_norms_of_rows<T>(false);
}

TEST_CASE("layer normalisation of a constant, a NaN and a far-off row") {
  const std::int64_t n = 48;
  std::vector<double> x(static_cast<std::size_t>(3 * n), 7.0);
  x[static_cast<std::size_t>(n + 5)] = not_a_number;
  for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(2 * n + i)] = 1e4 + (i % 2 ? 1 : -1);
  const Tensor out = Tensor::empty({3, n}), mean = Tensor::empty({3}), inverse = Tensor::empty({3});
  cpu_backend.layer_norm.forward(tensor_of<float>(x, {3, n}), {}, {}, 1e-5, out, mean, inverse);
  const std::vector<double> y = values_of<float>(out);
  CHECK(row_of(y, 0, n) == std::vector<double>(n, 0.0));
  CHECK(std::isnan(row_of(y, 1, n)[0]));
  CHECK(std::abs(row_of(y, 2, n)[1] - 1) < 1e-3);  // a variance from squares would have lost it
}

TEST_CASE("rows whose squares leave the range of their type are normalised right; fused and composed") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool composed : {false, true}) {
    const std::unique_ptr<ComposeOnly> scope = composed ? std::make_unique<ComposeOnly>() : nullptr;
    for (const DType dtype : {DType::f32, DType::f64})
      for (const double size : {1e-36, 1e-25, 1e18, 1e25, 1e38, 1e300}) {
        if (dtype == DType::f32 && size > 1e38) continue;
        CAPTURE(size);
        const Tensor drawn = cast(uniform({2, 1000}, -1, 1, {3, 0, 1}, DType::f64), dtype);
        for (const bool centred : {false, true}) {
          const Tensor one = parameter(drawn), x = parameter(drawn * size);
          const auto normed = [&](const Tensor& t) {
            const Tensor y = centred ? layer_norm(t, {}, {}, 0) : rms_norm(t, {}, 0);
            backward(sum(y * flip(drawn, 1)));
            return y.detach();
          };
          CHECK(max(abs(normed(x) - normed(one))).item() < 1e-5);
          CHECK(max(abs(gradient(x) * size - gradient(one))).item() < 1e-5);
        }
      }
    const Tensor x =
        Tensor::from<float>({1e38f, 1e38f, -1e38f, 0, 1, 2, 3, static_cast<float>(infinity)}, {2, 4});
    for (const Tensor& y :
         {add_rms_norm(x, x, 0, {}, {}).normalised, add_layer_norm(x, x, 0, {}, {}, {}).normalised}) {
      const std::vector<double> found = y.to_doubles();
      CHECK(std::abs(found[0]) > 0.9);
      CHECK(found[0] == found[1]);
      for (std::size_t i = 4; i < 8; ++i) CHECK(std::isnan(found[i]));
    }
  }
}

namespace {

constexpr std::int32_t ignored = -100;

std::vector<double> some_targets(std::int64_t rows, std::int64_t classes) {
  std::vector<double> targets(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto word = static_cast<std::int64_t>(random_word({3, 0, 0}, i));
    targets[i] = i % 4 == 2 ? ignored : static_cast<double>(word % classes);
  }
  return targets;
}

}  // namespace

TEST_CASE_TEMPLATE("cross entropy and its gradient agree with plain loops", T, float, double) {
  for (const Extent& extent : extents) {
    const auto [rows, n] = extent;
    for (double smoothing : {0.0, 0.1}) {
      CAPTURE(extent.rows);
      CAPTURE(extent.n);
      const Tensor logits = tensor_of<T>(numbers(rows * n, -8, 8), {rows, n});
      const Tensor targets = tensor_of<std::int32_t>(some_targets(rows, n), {rows});
      const Tensor grad = tensor_of<T>(numbers(rows, -1, 1, 1), {rows});
      const auto x = values_of<T>(logits), g = values_of<T>(grad), target = values_of<std::int32_t>(targets);
      const auto logs = softmax_by_loop(x, n, true);
      std::vector<double> losses(static_cast<std::size_t>(rows), 0.0), dlogits(x.size(), 0.0);
      for (std::size_t r = 0; r < losses.size(); ++r) {
        if (target[r] == ignored) continue;
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
          const std::size_t at = r * static_cast<std::size_t>(n) + i;
          const double share =
              (static_cast<double>(i) == target[r] ? 1 - smoothing : 0) + smoothing / static_cast<double>(n);
          losses[r] -= share * logs[at];
          dlogits[at] = g[r] * (std::exp(logs[at]) - share);
        }
      }
      const Tensor loss = Tensor::empty({rows}, dtype_of<T>),
                   log_sum_exp = Tensor::empty({rows, 2}, dtype_of<T>);
      cpu_backend.cross_entropy.forward(logits, targets, smoothing, ignored, loss, log_sum_exp);
      CHECK(worst_error(values_of<T>(loss), losses) <= tolerance<T>);
      // In place.
      cpu_backend.cross_entropy.backward(logits, targets, log_sum_exp, grad, smoothing, ignored, logits);
      CHECK(worst_error(values_of<T>(logits), dlogits) <= 2 * tolerance<T>);
    }
  }
}

TEST_CASE("cross entropy of logits far apart, infinite and NaN") {
  const std::int64_t n = 3000;
  std::vector<double> x(static_cast<std::size_t>(4 * n), -1e4);
  x[5] = 1e4;                                   // certain, and right
  x[static_cast<std::size_t>(n + 2500)] = 1e4;  // certain, and wrong
  x[static_cast<std::size_t>(2 * n + 1500)] = not_a_number;
  for (std::int64_t i = 0; i < 2000; ++i)
    x[static_cast<std::size_t>(3 * n + i)] = -infinity;  // excluded classes
  const Tensor logits = tensor_of<float>(x, {4, n});
  const Tensor targets = tensor_of<std::int32_t>({5, 5, 5, 2999}, {4});
  const Tensor loss = Tensor::empty({4}), log_sum_exp = Tensor::empty({4, 2});
  cpu_backend.cross_entropy.forward(logits, targets, 0, ignored, loss, log_sum_exp);
  const std::vector<double> losses = values_of<float>(loss);
  CHECK(losses[0] == 0);
  CHECK(losses[1] == doctest::Approx(2e4));
  CHECK(std::isnan(losses[2]));
  CHECK(losses[3] == doctest::Approx(std::log(1000.0)));
}

TEST_CASE("cross entropy of logits far from 0 is that of logits around it, and so is its gradient") {
  const auto results = [](double far, double smoothing) {
    std::vector<double> x;  // multiples of 1 / 8, which f32 adds to 1e5 exactly
    for (double value : numbers(3 * 40, -4, 4)) x.push_back(std::round(8 * value) / 8 + far);
    const Tensor logits = parameter(tensor_of<float>(x, {3, 40}));
    const Tensor loss = cross_entropy(logits, tensor_of<std::int32_t>({0, 7, 39}, {3}), smoothing);
    backward(sum(loss));
    std::vector<double> all = loss.to_doubles();
    for (double value : gradient(logits).to_doubles()) all.push_back(value);
    return all;
  };
  for (const double smoothing : {0.0, 0.1})
    for (const double far : {1e5, -1e5}) {
      const std::vector<double> near = results(0, smoothing), found = results(far, smoothing);
      for (std::size_t i = 0; i < near.size(); ++i)
        CHECK(found[i] == doctest::Approx(near[i]).epsilon(1e-5).scale(0.1));
    }
}

namespace {

/// The sum, what it is normalised, and all gradients; in one kernel each way, or one after the other.
template <class T>
std::vector<Tensor> added_and_normalised(std::int64_t rows, std::int64_t n, double p, bool centred,
                                         bool at_once) {
  const auto drawn = [&](const Shape& shape, double low, std::uint32_t stream) {
    return parameter(tensor_of<T>(numbers(shape.count(), low, 2, stream), shape));
  };
  const Tensor x = drawn({rows, n}, -2, 1), residual = drawn({rows, n}, -2, 2), weight = drawn({n}, 0.5, 3),
               bias = centred ? drawn({n}, -1, 4) : Tensor();
  const RandomKey key{5, 6, 7};
  NormedSum y;
  if (at_once) {
    y = centred ? add_layer_norm(x, residual, p, key, weight, bias)
                : add_rms_norm(x, residual, p, key, weight);
  } else {
    y.sum = dropout_add(x, residual, p, key);
    y.normalised = centred ? layer_norm(y.sum, weight, bias) : rms_norm(y.sum, weight);
  }
  backward(sum(square(y.sum)) + sum(square(y.normalised) * 0.5));
  std::vector<Tensor> results{y.sum.detach(), y.normalised.detach(), gradient(x), gradient(residual),
                              gradient(weight)};
  if (centred) results.push_back(gradient(bias));
  return results;
}

}  // namespace

TEST_CASE_TEMPLATE(
    "a sum with dropout that is normalised on its way has the bits of one step after the other", T, float,
    double) {
  for (const Extent& extent : extents)
    for (const double p : {0.0, 0.3})
      for (const bool centred : {false, true}) {
        const auto [rows, n] = extent;
        CAPTURE(extent.rows);
        CAPTURE(extent.n);
        CAPTURE(p);
        CAPTURE(centred);
        const auto at_once = added_and_normalised<T>(rows, n, p, centred, true),
                   in_turn = added_and_normalised<T>(rows, n, p, centred, false);
        for (std::size_t i = 0; i < at_once.size(); ++i) {
          CAPTURE(i);
          CHECK(bits_of(at_once[i]) == bits_of(in_turn[i]));
        }
      }
}

TEST_CASE("fused rows have the same bits for any number of threads") {
  for (const auto& [rows, n] : {Extent{1000, 256}, Extent{64, 3001}, Extent{5000, 23}})
    check_thread_identity(
        [&, rows = rows, n = n] { return added_and_normalised<float>(rows, n, 0.3, true, true); });

  for (const auto& [rows, n] : {Extent{1000, 256}, Extent{64, 3001}, Extent{5000, 24}}) {
    const Tensor x = tensor_of<float>(numbers(rows * n, -4, 4), {rows, n});
    const Tensor g = tensor_of<float>(numbers(rows * n, -1, 1, 1), {rows, n});
    const Tensor row_grad = tensor_of<float>(numbers(rows), {rows});
    const Tensor targets = tensor_of<std::int32_t>(some_targets(rows, n), {rows});
    check_thread_identity([&, rows = rows, n = n]() -> std::vector<Tensor> {
      const NormGradients t = run_layer_norm<float>(rows, n, true);
      const Tensor y = softmax<float>(x, {}, false), logs = softmax<float>(x, {}, true);
      const Tensor loss = Tensor::empty({rows}), log_sum_exp = Tensor::empty({rows, 2}),
                   dlogits = Tensor::empty({rows, n});
      cpu_backend.cross_entropy.forward(x, targets, 0.1, ignored, loss, log_sum_exp);
      cpu_backend.cross_entropy.backward(x, targets, log_sum_exp, row_grad, 0.1, ignored, dlogits);
      return {t.out,     t.mean,
              t.inverse, t.dx,
              t.dweight, t.dbias,
              y,         softmax_backward<float>(y, g, false),
              logs,      softmax_backward<float>(logs, g, true),
              loss,      log_sum_exp,
              dlogits};
    });
  }
}

// --- the Fourier transform

namespace {

/// Its definition. Rows from `length` on are 0.
std::vector<double> fourier_by_loop(const std::vector<double>& x, std::int64_t n, std::int64_t d,
                                    std::int64_t length) {
  std::vector<double> out(x.size(), 0);
  const auto turns = [](std::int64_t a, std::int64_t b, std::int64_t period) {
    return static_cast<double>(a * b % period) / static_cast<double>(period);
  };
  for (std::int64_t k = 0; k < length; ++k)
    for (std::int64_t l = 0; l < d; ++l)
      for (std::int64_t j = 0; j < length; ++j)
        for (std::int64_t m = 0; m < d; ++m)
          out[static_cast<std::size_t>(k * d + l)] +=
              x[static_cast<std::size_t>(j * d + m)] *
              std::cos(2 * std::numbers::pi * (turns(j, k, length) + turns(m, l, d)));
  REQUIRE(static_cast<std::int64_t>(x.size()) == n * d);
  return out;
}

}  // namespace

TEST_CASE("fourier: the fast transform gives its definition, and what products with waves give") {
  for (const std::int64_t n :
       {1, 2, 3, 4, 5, 8, 9, 16, 22, 31, 32, 33, 49, 64, 65, 97, 120, 131, 256, 262, 360, 1024})
    for (const std::int64_t d : {1, 2, 3, 4, 7, 16, 30, 31, 32, 33, 62, 64, 65, 96, 130}) {
      if (n * d > 40'000) continue;
      CAPTURE(n);
      CAPTURE(d);
      const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(n),
                                              static_cast<std::int32_t>((n + 1) / 2), 0,
                                              static_cast<std::int32_t>(std::min<std::int64_t>(n, 7))};
      const Tensor x = uniform({4, n, d}, -1, 1, {3, 0, 1}, DType::f64),
                   of_samples = Tensor::from(lengths, {4});
      for (const bool whole : {true, false}) {
        CAPTURE(whole);
        const Tensor fast = whole ? fourier(x) : fourier(x, of_samples);
        Tensor waves;
        {
          const ComposeOnly scope;
          waves = whole ? fourier(x) : fourier(x, of_samples);
        }
        const double size = std::sqrt(static_cast<double>(n * d));
        CHECK(worst_difference(fast, waves) < 1e-12 * size);
        const Tensor single = whole ? fourier(cast(x, DType::f32)) : fourier(cast(x, DType::f32), of_samples);
        CHECK(worst_difference(cast(single, DType::f64), fast) < 2e-6 * size);
        if (n * d <= 1100)
          for (std::int64_t b = 0; b < 4; ++b) {
            const Tensor sample = reshape(slice(x, 0, b, b + 1), {n * d});
            const std::vector<double> expected =
                fourier_by_loop(sample.to_doubles(), n, d, whole ? n : lengths[static_cast<std::size_t>(b)]);
            CHECK(worst_difference(reshape(slice(fast, 0, b, b + 1), {n * d}),
                                   Tensor::from(expected, {n * d})) < 1e-12 * size);
          }
      }
    }
}

TEST_CASE(
    "fourier: the same bits with more threads; what is beyond a length is not read; lengths are checked") {
  const Tensor x = uniform({5, 70, 48}, -1, 1, {3, 0, 2});
  const Tensor lengths = Tensor::from(std::vector<std::int32_t>{70, 1, 64, 13, 30}, {5});
  const std::vector<float> expected = fourier(x, lengths).to_vector<float>();
  for (const int threads : {1, 2, 3, 8}) {
    const WithThreads scope(threads);
    CHECK(fourier(x, lengths).to_vector<float>() == expected);
  }
  const Tensor real = less(unsqueeze(Tensor::arange(70, DType::i32), 0), unsqueeze(lengths, 1));
  const Tensor with_holes = where(unsqueeze(real, 2), x, not_a_number);
  CHECK(fourier(with_holes, lengths).to_vector<float>() == expected);
  const auto with = [&](std::int32_t length) {
    return fourier(slice(x, 0, 0, 1), Tensor::from(std::vector<std::int32_t>{length}, {1}));
  };
  CHECK_THROWS_WITH_AS(with(71), doctest::Contains("the length of sample 0 is 71, and x has 70 positions"),
                       Error);
  CHECK_THROWS_WITH_AS(with(-1), doctest::Contains("is -1"), Error);
  CHECK_THROWS_WITH_AS(fourier(x, cast(lengths, DType::f32)), doctest::Contains("lengths must be i32 [5]"),
                       Error);
  CHECK_THROWS_WITH_AS(fourier(slice(x, 0, 0, 2), lengths), doctest::Contains("lengths must be i32 [2]"),
                       Error);
  CHECK_THROWS_WITH_AS(fourier(reshape(x, {350, 48})), doctest::Contains("got shape"), Error);
  CHECK_THROWS_WITH_AS(fourier(Tensor::zeros({1, 46'341, 1})), doctest::Contains("46340"), Error);
}
