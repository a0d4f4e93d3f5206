#include "heed/tests/model_support.h"
#include "heed/tests/row_cases.h"

// Softmax, layer normalisation, cross entropy and the Fourier transform: the fused kernels against single ops
// at every size, and where rows are odd.

namespace {

const std::vector<Extent> extents = {{1, 1},  {3, 2},    {5, 7},    {4, 16},   {9, 24},
                                     {2, 33}, {70, 129}, {6, 1000}, {3, 5003}, {900, 40}};

/// A row of a flat [rows, n] array.
Doubles row_of(const Doubles& values, std::int64_t row, std::int64_t n) {
  return {values.begin() + row * n, values.begin() + (row + 1) * n};
}

}  // namespace

TEST_CASE("fused rows give what single ops give, at every size, and so do their gradients") {
  for (const Extent& extent : extents)
    for (const OpCase& op_case : row_cases(extent)) {
      CAPTURE_ALL(op_case.name, extent.rows, extent.n);
      const auto wide = op_results(op_case, DType::f64), narrow = op_results(op_case, DType::f32);
      const ComposeOnly compose_only;
      const auto expected = op_results(op_case, DType::f64);
      CHECK(difference(wide, expected).worst <= 1e-11);
      CHECK(difference(narrow, expected).worst <= 1e-5);
    }
}

TEST_CASE("softmax of rows with infinities and NaN") {
  for (std::int64_t n : {5, 16, 40}) {
    Doubles x(static_cast<std::size_t>(4 * n), -infinity);
    x[static_cast<std::size_t>(n + 2)] = 3;                 // one finite entry takes all
    x[static_cast<std::size_t>(2 * n + 4)] = not_a_number;  // among -infinity only
    for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(3 * n + i)] = 1;
    x[static_cast<std::size_t>(3 * n + 1)] = infinity;
    const Doubles y = softmax(tensor_of<float>(x, {4, n})).to_doubles();
    CHECK(row_of(y, 0, n) == Doubles(static_cast<std::size_t>(n), 0.0));
    CHECK(row_of(y, 1, n)[2] == 1);
    CHECK(row_of(y, 1, n)[3] == 0);
    CHECK(std::isnan(row_of(y, 2, n)[0]));
    CHECK(std::isnan(row_of(y, 3, n)[1]));
    const Doubles logs = log_softmax(tensor_of<float>(x, {4, n})).to_doubles();
    CHECK(logs[0] == -infinity);
    CHECK(row_of(logs, 1, n)[2] == 0);
    CHECK(std::isnan(row_of(logs, 2, n)[0]));
  }
}

TEST_CASE("layer normalisation of a constant, a NaN and a far-off row") {
  const std::int64_t n = 48;
  Doubles x(static_cast<std::size_t>(3 * n), 7.0);
  x[static_cast<std::size_t>(n + 5)] = not_a_number;
  for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(2 * n + i)] = 1e4 + (i % 2 ? 1 : -1);
  const Doubles y = layer_norm(tensor_of<float>(x, {3, n}), {}, {}).to_doubles();
  CHECK(row_of(y, 0, n) == Doubles(n, 0.0));
  CHECK(std::isnan(row_of(y, 1, n)[0]));
  CHECK(std::abs(row_of(y, 2, n)[1] - 1) < 1e-3);  // a variance from squares would have lost it
}

TEST_CASE("rows whose squares leave the range of their type are normalised right; fused and composed") {
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
      const Doubles found = y.to_doubles();
      CHECK(std::abs(found[0]) > 0.9);
      CHECK(found[0] == found[1]);
      for (std::size_t i = 4; i < 8; ++i) CHECK(std::isnan(found[i]));
    }
  }
}

TEST_CASE("cross entropy of logits far apart, infinite and NaN") {
  const std::int64_t n = 3000;
  Doubles x(static_cast<std::size_t>(4 * n), -1e4);
  x[5] = 1e4;                                   // certain, and right
  x[static_cast<std::size_t>(n + 2500)] = 1e4;  // certain, and wrong
  x[static_cast<std::size_t>(2 * n + 1500)] = not_a_number;
  for (std::int64_t i = 0; i < 2000; ++i)
    x[static_cast<std::size_t>(3 * n + i)] = -infinity;  // excluded classes
  const Tensor logits = tensor_of<float>(x, {4, n});
  const Tensor targets = tensor_of<std::int32_t>({5, 5, 5, 2999}, {4});
  const Doubles losses = cross_entropy(logits, targets).to_doubles();
  CHECK(losses[0] == 0);
  CHECK(losses[1] == doctest::Approx(2e4));
  CHECK(std::isnan(losses[2]));
  CHECK(losses[3] == doctest::Approx(std::log(1000.0)));
}

TEST_CASE("cross entropy of logits far from 0 is that of logits around it, and so is its gradient") {
  const auto results = [](double far, double smoothing) {
    Doubles x;  // multiples of 1 / 8, which f32 adds to 1e5 exactly
    for (double value : numbers(3 * 40, -4, 4)) x.push_back(std::round(8 * value) / 8 + far);
    const Tensor logits = parameter(tensor_of<float>(x, {3, 40}));
    const Tensor loss = cross_entropy(logits, tensor_of<std::int32_t>({0, 7, 39}, {3}), smoothing);
    backward(sum(loss));
    Doubles all = loss.to_doubles();
    for (double value : gradient(logits).to_doubles()) all.push_back(value);
    return all;
  };
  for (const double smoothing : {0.0, 0.1})
    for (const double far : {1e5, -1e5}) {
      const Doubles near = results(0, smoothing), found = results(far, smoothing);
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
        CAPTURE_ALL(extent.rows, extent.n, p, centred);
        const auto at_once = added_and_normalised<T>(rows, n, p, centred, true),
                   in_turn = added_and_normalised<T>(rows, n, p, centred, false);
        for (std::size_t i = 0; i < at_once.size(); ++i) {
          CAPTURE(i);
          CHECK(bits_of(at_once[i]) == bits_of(in_turn[i]));
        }
      }
}

TEST_CASE("fused rows have the same bits for any number of threads") {
  for (const Extent& extent : {Extent{1000, 256}, Extent{64, 3001}, Extent{5000, 23}}) {
    check_thread_identity(
        [&] { return added_and_normalised<float>(extent.rows, extent.n, 0.3, true, true); });
    for (const OpCase& op_case : row_cases(extent)) {
      CAPTURE(op_case.name);
      std::vector<Doubles> one;
      for (const int threads : {1, 2, 3, 8}) {
        const WithThreads scope(threads);
        const auto found = op_results(op_case, DType::f32);
        if (threads == 1) one = found;
        CHECK(found == one);
      }
    }
  }
}

// --- the Fourier transform

TEST_CASE("fourier: the fast transform gives what products with waves give") {
  for (const std::int64_t n :
       {1, 2, 3, 4, 5, 8, 9, 16, 22, 31, 32, 33, 49, 64, 65, 97, 120, 131, 256, 262, 360, 1024})
    for (const std::int64_t d : {1, 2, 3, 4, 7, 16, 30, 31, 32, 33, 62, 64, 65, 96, 130}) {
      if (n * d > 40'000) continue;
      CAPTURE_ALL(n, d);
      const Ints lengths{static_cast<std::int32_t>(n), static_cast<std::int32_t>((n + 1) / 2), 0,
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
      }
    }
}

TEST_CASE(
    "fourier: the same bits with more threads; what is beyond a length is not read; lengths are checked") {
  const Tensor x = uniform({5, 70, 48}, -1, 1, {3, 0, 2});
  const Tensor lengths = Tensor::from(Ints{70, 1, 64, 13, 30}, {5});
  const Floats expected = fourier(x, lengths).to_vector<float>();
  for (const int threads : {1, 2, 3, 8}) {
    const WithThreads scope(threads);
    CHECK(fourier(x, lengths).to_vector<float>() == expected);
  }
  const Tensor real = less(unsqueeze(Tensor::arange(70, DType::i32), 0), unsqueeze(lengths, 1));
  const Tensor with_holes = where(unsqueeze(real, 2), x, not_a_number);
  CHECK(fourier(with_holes, lengths).to_vector<float>() == expected);
  const auto with = [&](std::int32_t length) {
    return fourier(slice(x, 0, 0, 1), Tensor::from(Ints{length}, {1}));
  };
  CHECK_ERROR(with(71), "the length of sample 0 is 71, and x has 70 positions");
  CHECK_ERROR(with(-1), "is -1");
  CHECK_ERROR(fourier(x, cast(lengths, DType::f32)), "lengths must be i32 [5]");
  CHECK_ERROR(fourier(slice(x, 0, 0, 2), lengths), "lengths must be i32 [2]");
  CHECK_ERROR(fourier(reshape(x, {350, 48})), "got shape");
  CHECK_ERROR(fourier(Tensor::zeros({1, 46'341, 1})), "46340");
}
