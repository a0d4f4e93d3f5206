#include <doctest/doctest.h>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/core/device.h"

using namespace heed;

namespace {
std::vector<double> values(const Tensor& x) {
  return x.to_vector<double>();
}
Tensor leaf(std::vector<double> numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  return parameter(Tensor::from(numbers, {count}));
}
}  // namespace

TEST_CASE("autograd: gradients accumulate over calls until zeroed") {
  const Tensor x = leaf({1, 2});
  backward(sum(square(x)));
  CHECK(values(gradient(x)) == std::vector<double>{2, 4});
  backward(sum(square(x)));
  CHECK(values(gradient(x)) == std::vector<double>{4, 8});
  zero_gradient(x);
  CHECK_FALSE(gradient(x).defined());
}

TEST_CASE("autograd: a tensor used several times collects every path") {
  const Tensor x = leaf({3});
  const Tensor y = x * x + x + x;  // dy/dx = 2 x + 2
  backward(sum(y * y));
  CHECK(values(gradient(x))[0] == doctest::Approx(2 * 15 * 8));
}

TEST_CASE("autograd: two leaves that receive the same gradient do not share its memory when it is changed") {
  const Tensor a = leaf({1}), b = leaf({1});
  backward(sum(a + b));
  backward(sum(a * 3));
  CHECK(values(gradient(a))[0] == 4);
  CHECK(values(gradient(b))[0] == 1);
}

TEST_CASE("autograd: nothing is recorded without a parameter or under NoGrad") {
  const Tensor x = leaf({1, 2});
  CHECK_FALSE((x.detach() * 2).tracked());
  {
    const NoGrad no_grad;
    CHECK_FALSE((x * 2).tracked());
  }
  CHECK((x * 2).tracked());
}

TEST_CASE("autograd: the results of an op with several have one backward") {
  const Tensor x = leaf({1, 2}), weight = parameter(Tensor::ones({1, 2}, DType::f64));
  const auto through_two = [&] {
    const LinearMap maps[] = {{weight, {}}, {weight * 3.0, {}}};
    return linear_maps(reshape(x, {1, 2}), maps);
  };
  const auto loss = [](const Tensor& y) { return sum(square(y)); };
  const std::vector<Tensor> both = through_two();  // 3 and 9
  backward(loss(both[0]) + loss(both[1]) * 0.5);
  CHECK(gradient(x).to_doubles() == std::vector<double>{6 + 27, 6 + 27});
  CHECK(gradient(weight).to_doubles() == std::vector<double>{1 * (6 + 27), 2 * (6 + 27)});

  zero_gradient(x), zero_gradient(weight);
  const std::vector<Tensor> one = through_two();
  backward(loss(one[1]));
  CHECK(gradient(x).to_doubles() == std::vector<double>{54, 54});
  CHECK_THROWS_WITH_AS(backward(loss(one[0])), doctest::Contains("linear_maps was already walked"), Error);

  const NoGrad no_grad;
  for (const Tensor& result : through_two()) CHECK_FALSE(result.tracked());
}

TEST_CASE("autograd: errors name what is wrong") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH_AS(backward(x * 2), doctest::Contains("[2]"), Error);
  CHECK_THROWS_WITH_AS(backward(sum(x.detach())), doctest::Contains("does not depend"), Error);
  const Tensor y = sum(square(x));
  backward(y);
  CHECK_THROWS_WITH_AS(backward(y), doctest::Contains("already walked"), Error);
  CHECK_THROWS_WITH_AS(gradient(y), doctest::Contains("not a leaf"), Error);
  CHECK_THROWS_WITH_AS(x + leaf({1, 2, 3}), "add: shapes [2] and [3] do not broadcast", Error);
  CHECK_THROWS_WITH_AS(matmul(Tensor::ones({2, 3}), Tensor::ones({2, 3})), doctest::Contains("[2, 3]"),
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::ones({2}) + x, doctest::Contains("f32 and f64"), Error);
}

TEST_CASE(
    "autograd: a chain of a hundred thousand ops needs no deep stack, in backward and when it is dropped") {
  const Tensor x = leaf({1});
  Tensor y = x, dropped = x;
  for (int i = 0; i < 100000; ++i) y = y + 1.0, dropped = dropped + 1.0;
  backward(sum(y));
  CHECK(values(gradient(x))[0] == 1);
}

TEST_CASE("autograd: backward frees what the ops saved") {
  const Tensor x = parameter(Tensor::ones({1000}));
  const auto before = memory_stats().current_bytes;
  for (int i = 0; i < 3; ++i) {
    const Tensor loss = sum(square(exp(tanh(x))));
    CHECK(memory_stats().current_bytes > before + 8000);
    backward(loss);
    zero_gradient(x);
    CHECK(memory_stats().current_bytes < before + 1000);
  }
  CHECK(memory_stats().current_bytes == before);
}

TEST_CASE("autograd: a recomputed segment gives the same gradients and draws the same random numbers") {
  const auto run = [](bool recompute) {
    const Tensor x = leaf({1, 2, 3}), w = leaf({0.5, -1, 2});
    Random random(11);
    const auto segment = [&](std::span<const Tensor> in, Random& keys) {
      return dropout(tanh(in[0] * w), 0.4, keys.next());
    };
    const Tensor hidden =
        recompute ? recompute_in_backward(segment, {x}, random) : segment(std::vector<Tensor>{x}, random);
    backward(sum(dropout(hidden, 0.2, random.next()) * hidden));
    return std::make_pair(values(gradient(x)), values(gradient(w)));
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("gradcheck refuses a function that is none") {
  CHECK_THROWS_WITH_AS(gradcheck({}, {Tensor::from(std::vector<double>{1, 2}, {2})}),
                       "gradcheck: the function is empty", Error);
}

TEST_CASE("gradcheck records by itself: where the caller does not, and within a function that is checked") {
  const std::vector<Tensor> inputs{Tensor::from<double>({1, 2}, {2})};
  const auto squares = [](std::span<const Tensor> in) { return square(in[0]); };
  {
    const NoGrad no_grad;
    CHECK(gradcheck(squares, inputs).passed);
    CHECK_FALSE(recording());
  }
  const auto nested = [&](std::span<const Tensor> in) {
    CHECK(gradcheck(squares, inputs).passed);
    return squares(in);
  };
  CHECK(gradcheck(nested, inputs).passed);
}

TEST_CASE("gradcheck finds a wrong derivative") {
  const auto wrong = [](std::span<const Tensor> in) { return square(in[0]) + in[0].detach() * 0.01; };
  const GradcheckResult result = gradcheck(wrong, {Tensor::from(std::vector<double>{1, 2}, {2})});
  CHECK_FALSE(result.passed);
  CHECK(result.worst_error == doctest::Approx(0.01 / 2.01).epsilon(0.01));
}
