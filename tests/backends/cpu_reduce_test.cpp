#include "heed/tests/kernel_check.h"

namespace {

// Ragged and round, rows and columns, one task and many.
const std::vector<Shape> reduced_shapes = {{1, 1, 1},     {3, 5, 1},      {2, 16, 1},      {7, 1000, 1},
                                           {1, 70001, 1}, {2, 131072, 1}, {1, 33, 7},      {2, 3, 17},
                                           {5, 9, 16},    {1, 257, 33},   {1, 1030, 1024}, {3, 300, 1029},
                                           {1, 9000, 3},  {1, 4, 2500},   {300, 7, 5},     {4000, 2, 1}};

Shape reduced(const Shape& shape) {
  return {shape[0], shape[2]};
}

/// Calls f(o, j, values of the line).
template <class F>
void for_each_line(const Doubles& x, const Shape& shape, F f) {
  Doubles line(static_cast<std::size_t>(shape[1]));
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    for (std::int64_t j = 0; j < shape[2]; ++j) {
      for (std::int64_t i = 0; i < shape[1]; ++i)
        line[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>((o * shape[1] + i) * shape[2] + j)];
      f(static_cast<std::size_t>(o * shape[2] + j), line);
    }
  }
}

/// f(line) for every line.
template <class F>
Doubles by_loop(const Doubles& x, const Shape& shape, F f) {
  Doubles out(static_cast<std::size_t>(shape[0] * shape[2]));
  for_each_line(x, shape, [&](std::size_t at, const Doubles& line) { out[at] = f(line); });
  return out;
}

double reduced(ReduceOp op, const Doubles& line) {
  if (op == ReduceOp::sum) return std::accumulate(line.begin(), line.end(), 0.0);
  return op == ReduceOp::max ? *std::ranges::max_element(line) : *std::ranges::min_element(line);
}

template <class T>
Tensor reduce(ReduceOp op, const Tensor& x) {
  const Tensor out = Tensor::empty(reduced(x.shape()), dtype_of<T>);
  cpu_backend.reduce(op, x, out);
  return out;
}

Tensor cpu_argmax(const Tensor& x) {
  const Tensor out = Tensor::empty(reduced(x.shape()), DType::i32);
  cpu_backend.argmax(x, out);
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("reductions agree with plain loops", T, float, double, std::int32_t) {
  for (const Shape& shape : reduced_shapes) {
    CAPTURE(shape);
    const Tensor x = tensor_of<T>(numbers(shape.count(), -50, 50), shape);
    const Doubles values = values_of<T>(x);
    const double scale =
        std::is_integral_v<T> ? 0 : tolerance<T> * std::sqrt(static_cast<double>(shape[1])) * 50;
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      const double allowed = op == ReduceOp::sum ? scale : 0;
      const auto expected = by_loop(values, shape, [&](const auto& line) { return reduced(op, line); });
      const auto result = values_of<T>(reduce<T>(op, x));
      for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(std::abs(result[i] - expected[i]) <= allowed);
    }
    const auto first_largest = [](const auto& line) {
      return static_cast<double>(std::ranges::max_element(line) - line.begin());
    };
    CHECK(values_of<std::int32_t>(cpu_argmax(x)) == by_loop(values, shape, first_largest));
  }
}

TEST_CASE("the error of a sum does not grow with its length") {
  const std::int64_t n = 3'000'000;
  const Doubles x(static_cast<std::size_t>(n), 0.1f);
  const double exact = static_cast<double>(0.1f) * static_cast<double>(n);
  for (const Shape& shape : {Shape{1, n, 1}, Shape{1, n / 2, 2}, Shape{1, n / 64, 64}}) {
    CAPTURE(shape);
    const double expected = exact / static_cast<double>(shape[2]);
    for (double sum : values_of<float>(reduce<float>(ReduceOp::sum, tensor_of<float>(x, shape))))
      CHECK(std::abs(sum - expected) / expected < 1e-6);
  }
}

TEST_CASE_TEMPLATE("largest and smallest: NaN wins, infinities count", T, float, double) {
  for (const Shape& shape : {Shape{1, 40, 1}, Shape{1, 37, 1}, Shape{1, 40, 3}}) {
    CAPTURE(shape);
    for (std::int64_t at : {0, 15, 21, 36}) {
      const auto place = static_cast<std::size_t>(at * shape[2]);
      Doubles x = numbers(shape.count());
      x[place] = not_a_number;
      CHECK(std::isnan(values_of<T>(reduce<T>(ReduceOp::max, tensor_of<T>(x, shape)))[0]));
      CHECK(std::isnan(values_of<T>(reduce<T>(ReduceOp::min, tensor_of<T>(x, shape)))[0]));
      CHECK(std::isnan(values_of<T>(reduce<T>(ReduceOp::sum, tensor_of<T>(x, shape)))[0]));
      CHECK(values_of<std::int32_t>(cpu_argmax(tensor_of<T>(x, shape)))[0] == static_cast<double>(at));
      x[place] = infinity;
      CHECK(values_of<T>(reduce<T>(ReduceOp::max, tensor_of<T>(x, shape)))[0] == infinity);
      x[place] = -infinity;
      CHECK(values_of<T>(reduce<T>(ReduceOp::min, tensor_of<T>(x, shape)))[0] == -infinity);
    }
    const Doubles low(static_cast<std::size_t>(shape.count()), -infinity);
    CHECK(values_of<T>(reduce<T>(ReduceOp::max, tensor_of<T>(low, shape)))[0] == -infinity);
    CHECK(values_of<std::int32_t>(cpu_argmax(tensor_of<T>(low, shape)))[0] == 0);
  }
}

TEST_CASE("argmax takes the lowest index of equal values") {
  Doubles x(100, 1.0);
  CHECK(values_of<std::int32_t>(cpu_argmax(tensor_of<float>(x, {1, 100, 1}))) == Doubles{0});
  x[37] = x[53] = x[98] = 2;
  CHECK(values_of<std::int32_t>(cpu_argmax(tensor_of<float>(x, {1, 100, 1}))) == Doubles{37});
  CHECK(values_of<std::int32_t>(cpu_argmax(tensor_of<float>(x, {1, 50, 2}))) == Doubles{49, 18});
}

TEST_CASE_TEMPLATE("cumulative sums run forwards and backwards", T, float, double, std::int32_t) {
  for (const Shape& shape : reduced_shapes) {
    CAPTURE(shape);
    const Tensor x = tensor_of<T>(numbers(shape.count(), -9, 9), shape);
    const Doubles values = values_of<T>(x);
    for (bool reverse : {false, true}) {
      const Tensor out = Tensor::empty(shape, dtype_of<T>);
      cpu_backend.cumulative_sum(x, reverse, out);
      const Doubles result = values_of<T>(out);
      std::vector<Doubles> lines;
      for_each_line(result, shape, [&](std::size_t, const auto& line) { lines.push_back(line); });
      double worst = 0;
      for_each_line(values, shape, [&](std::size_t at, Doubles line) {
        if (reverse) std::ranges::reverse(line), std::ranges::reverse(lines[at]);
        std::partial_sum(line.begin(), line.end(), line.begin());
        worst = std::max(worst, worst_error(lines[at], line));
      });
      CHECK(worst <= (std::is_integral_v<T> ? 0 : tolerance<T>));
    }
  }
}

TEST_CASE("a sum over nothing is zero") {
  CHECK(values_of<float>(reduce<float>(ReduceOp::sum, Tensor::empty({2, 0, 1}))) == Doubles{0, 0});
  CHECK(values_of<float>(reduce<float>(ReduceOp::sum, Tensor::empty({1, 0, 2}))) == Doubles{0, 0});
  cpu_backend.reduce(ReduceOp::sum, Tensor::empty({0, 3, 1}), Tensor::empty({0, 1}));
  cpu_backend.cumulative_sum(Tensor::empty({2, 0, 1}), false, Tensor::empty({2, 0, 1}));
}

TEST_CASE("reductions have the same bits for any number of threads") {
  for (const Shape& shape :
       {Shape{1, 400001, 1}, Shape{700, 333, 1}, Shape{1, 4096, 129}, Shape{9, 700, 40}}) {
    const Tensor x = tensor_of<float>(numbers(shape.count()), shape);
    check_thread_identity([&]() -> std::vector<Tensor> {
      const Tensor running = Tensor::empty(shape);
      cpu_backend.cumulative_sum(x, false, running);
      return {reduce<float>(ReduceOp::sum, x), reduce<float>(ReduceOp::max, x), cpu_argmax(x), running};
    });
  }
}
