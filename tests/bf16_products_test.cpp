// Products in bf16 on the CPU: each against sums in f64 of the same rounded numbers, and what must not change
// by them.

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/backend.h"
#include "heed/core/device.h"
#include "heed/core/low_precision.h"
#include "heed/core/random.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/training/precision.h"
#include "model_support.h"

using namespace heed;

namespace {

bool available() {
  if (!Bf16Products::available()) MESSAGE("skipped: this processor has no AVX-512 BF16");
  return Bf16Products::available();
}

/// To the nearest bf16, ties to even.
float rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

Tensor rounded(const Tensor& x) {
  std::vector<float> values = contiguous(x).to_vector<float>();
  for (float& value : values) value = rounded(value);
  return Tensor::from(values, x.shape());
}

Tensor random(const Shape& shape, std::uint32_t stream) {
  return uniform(shape, -1, 1, {7, 0, stream});
}

Tensor in_bf16(const Tensor& a, const Tensor& b) {
  const Bf16Products products;
  return matmul(a, b);
}

/// The largest difference of a product from the exact one of the same numbers, over what rounding sums of k
/// terms to f32 allows.
double worst(const Tensor& a, const Tensor& b, const Tensor& found) {
  const Tensor exact = matmul(a.to(DType::f64), b.to(DType::f64));
  return test::worst_difference(found.to(DType::f64), exact) /
         (1e-6 * std::sqrt(static_cast<double>(a.size(-1)) + 1) + 1e-30);
}

}  // namespace

TEST_CASE("bf16 products: every shape and layout against f64") {
  if (!available()) return;
  std::uint32_t stream = 0;
  for (const std::int64_t m : {1, 2, 7, 14, 15, 31, 70, 260})
    for (const std::int64_t n : {1, 2, 16, 17, 33, 96})
      for (const std::int64_t k : {1, 2, 3, 16, 31, 32, 65, 257, 511, 514, 1030}) {
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        const Tensor a = rounded(random({m, k}, ++stream)), b = rounded(random({k, n}, ++stream));
        const Tensor a_turned = transpose(contiguous(transpose(a, 0, 1)), 0, 1),
                     b_turned = transpose(contiguous(transpose(b, 0, 1)), 0, 1);
        CHECK(worst(a, b, in_bf16(a, b)) < 1);
        CHECK(worst(a, b, in_bf16(a, b_turned)) < 1);
        CHECK(worst(a, b, in_bf16(a_turned, b)) < 1);
        CHECK(worst(a, b, in_bf16(a_turned, b_turned)) < 1);
      }
  const Tensor a = rounded(random({3, 1, 40, 24}, 1)), b = rounded(random({5, 24, 20}, 2));
  CHECK(worst(a, b, in_bf16(a, b)) < 1);
}

TEST_CASE("bf16 products: operands are rounded to the nearest even, and nothing else is") {
  if (!available()) return;
  const Tensor a = random({64, 48}, 1), b = random({48, 40}, 2);
  const std::vector<float> found = in_bf16(a, b).to_vector<float>();
  CHECK(found == in_bf16(rounded(a), rounded(b)).to_vector<float>());
  CHECK(found != matmul(a, b).to_vector<float>());
  // One column each of 1 + 2^-8, which is a tie, 1 + 3 * 2^-8, too, and of numbers at the ends of the range.
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> row{1 + 0x1p-8F, 1 + 3 * 0x1p-8F,  1 + 0x1.1p-8F,
                               0x1p-126F,   0x1.fffffcp-128F, infinity,
                               -infinity,   std::nanf(""),    std::numeric_limits<float>::max(),
                               -1e-30F};
  const auto count = static_cast<std::int64_t>(row.size());
  const Tensor column = Tensor::from(std::vector<float>(16, 1), {16, 1});
  const std::vector<float> ends = in_bf16(column, Tensor::from(row, {1, count})).to_vector<float>();
  const std::vector<float> expected{1,        1 + 0x1p-6F, 1 + 0x1p-7F, 0x1p-126F, 0,
                                    infinity, -infinity,   0,           infinity,  rounded(-1e-30F)};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    if (i == 7)
      CHECK(std::isnan(ends[i]));
    else
      CHECK(ends[i] == expected[i]);
  }
}

TEST_CASE("bf16 products: the same bits for any number of threads, for this thread's f32 alone") {
  if (!available()) return;
  const int before = cpu_threads();
  const Tensor a = random({300, 520}, 1), b = random({520, 200}, 2), exact = matmul(a, b);
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    set_cpu_threads(threads);
    const std::vector<float> found = in_bf16(a, b).to_vector<float>();
    if (first.empty()) first = found;
    CHECK(found == first);
    CHECK(matmul(a, b).to_vector<float>() == exact.to_vector<float>());  // no worker keeps it
  }
  set_cpu_threads(before);
  const Bf16Products products;
  std::thread([&] { CHECK(matmul(a, b).to_vector<float>() == exact.to_vector<float>()); }).join();
  {
    const Bf16Products off(false);
    CHECK(matmul(a, b).to_vector<float>() == exact.to_vector<float>());
  }
  CHECK(matmul(a, b).to_vector<float>() == first);
  const Tensor a64 = a.to(DType::f64), b64 = b.to(DType::f64);
  CHECK(test::worst_difference(matmul(a64, b64), exact.to(DType::f64)) < 1e-4);
  CHECK(test::worst_difference(matmul(a.to(DType::f64), b64).to(DType::f32), matmul(a, b)) > 1e-4);
}

TEST_CASE("bf16 products: attention and linear maps, forward and backward, beside f32") {
  if (!available()) return;
  const auto compute = [&](bool rounds, bool fused) {
    const Bf16Products products(rounds);
    std::optional<ComposeOnly> composed;
    if (!fused) composed.emplace();
    const Tensor x = parameter(random({2, 40, 32}, 1)), weight = parameter(random({32, 32}, 2));
    const Tensor heads = transpose(reshape(linear(x, weight), {2, 40, 2, 16}), 1, 2);
    const Tensor found = attention(heads, heads, heads);
    backward(sum(found * random({2, 2, 40, 16}, 3)));
    return std::vector<Tensor>{found.detach(), gradient(x), gradient(weight)};
  };
  const std::vector<Tensor> exact = compute(false, true), fused = compute(true, true),
                            composed = compute(true, false);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    const double size = max(abs(exact[i])).item();
    CHECK(test::worst_difference(fused[i], exact[i]) < 0.02 * size);
    CHECK(test::worst_difference(fused[i], exact[i]) > 1e-5 * size);
    CHECK(test::worst_difference(fused[i], composed[i]) < 0.02 * size);
  }
}

TEST_CASE("bf16 products: the gradients of few queries are as near the exact ones as those of many") {
  if (!available()) return;
  // Large scores: weights that backward computes from other scores than forward would not add up to 1.
  const auto error_of = [](std::int64_t queries) {
    const auto gradients = [&](bool rounds) {
      const Bf16Products products(rounds);
      const Tensor query = parameter(random({1, 1, queries, 64}, 1) * 4),
                   key = parameter(random({1, 1, 200, 64}, 2) * 4), value = random({1, 1, 200, 64}, 3);
      backward(sum(attention(query, key, value) * random({1, 1, queries, 64}, 4)));
      return std::vector<Tensor>{gradient(query), gradient(key)};
    };
    const std::vector<Tensor> exact = gradients(false), rounded = gradients(true);
    double worst = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const Tensor off = rounded[i] - exact[i];
      worst = std::max(worst, std::sqrt(sum(off * off).item() / sum(exact[i] * exact[i]).item()));
    }
    return worst;
  };
  const double of_many = error_of(16);
  for (const std::int64_t queries : {1, 3, 8}) {
    CAPTURE(queries);
    CHECK(error_of(queries) < 2 * of_many);
  }
}

TEST_CASE(
    "bf16 products: Autocast on the CPU has tensors of f32, and gradients near the exact ones that add up") {
  if (!available()) return;
  Initialiser initialiser(3);
  Linear layer(24, 18, true, initialiser);
  const auto loss = [&] { return mean(square(layer(random({20, 24}, 1)) - 1)); };
  backward(loss());
  const Tensor exact = gradient(layer.weight) * 1.0;
  zero_gradient(layer.weight);
  Autocast autocast(layer, Precision::bf16);
  CHECK(autocast.dtype() == DType::f32);
  autocast.backward(loss);
  CHECK_FALSE(Bf16Products::active());
  const Tensor once = gradient(layer.weight) * 1.0;
  CHECK(test::worst_difference(once, exact) < 1e-2);
  CHECK(test::worst_difference(once, exact) > 1e-7);
  autocast.backward(loss);
  CHECK(test::worst_difference(gradient(layer.weight), once * 2) < 1e-6);
}

TEST_CASE("bf16 products: refused where the processor has none, f16 on every CPU") {
  Initialiser initialiser(3);
  Linear layer(4, 2, true, initialiser);
  CHECK_THROWS_WITH_AS(Autocast(layer, Precision::f16), doctest::Contains("f16 needs a Vulkan device"),
                       Error);
  if (Bf16Products::available()) return;
  CHECK_THROWS_WITH_AS(Autocast(layer, Precision::bf16), doctest::Contains("this one has none"), Error);
  CHECK_THROWS_WITH_AS(Bf16Products(), doctest::Contains("this one has none"), Error);
  CHECK_FALSE(Bf16Products::active());
}
