// Mixed precision in loops of one's own, on a Vulkan device: halves within, f32 without, and the loss scale
// of f16.

#include <doctest/doctest.h>

#include <cmath>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/training/precision.h"
#include "model_support.h"
#include "vulkan_support.h"

using namespace heed;
using namespace heed::test;

namespace {

struct Loop {
  explicit Loop(Device device) : layer(4, 2, true, initialiser), device(device) {
    layer.to(DType::f32, device);
  }
  Tensor loss(DType dtype, double factor = 1) const {
    const Tensor x = uniform({6, 4}, -1, 1, {1, 0, 0}, DType::f32, device).to(dtype);
    const Tensor found = layer(x);
    CHECK(found.dtype() == dtype);
    return mean(square(found.to(DType::f32) - 1)) * factor;
  }
  Initialiser initialiser{3};
  Linear layer;
  Device device;
};

}  // namespace

TEST_CASE("vulkan autocast: gradients of both halves are near those of f32, and add up") {
  const auto device = vulkan_test_device();
  if (!device) return;
  Loop exact({});
  backward(exact.loss(DType::f32));
  for (const auto& half : {std::pair(Precision::f16, 2e-3), std::pair(Precision::bf16, 2e-2)}) {
    const auto [precision, tolerance] = half;
    CAPTURE(name_of(half.first));
    Loop loop(*device);
    Autocast autocast(loop.layer, precision);
    const Tensor loss = autocast.backward([&] { return loop.loss(autocast.dtype()); });
    CHECK(loss.dtype() == DType::f32);
    CHECK_FALSE(loss.tracked());
    CHECK(loop.layer.weight.dtype() == DType::f32);
    const Tensor once = gradient(loop.layer.weight) * 1.0;
    CHECK(once.dtype() == DType::f32);
    CHECK(test::worst_difference(once, gradient(exact.layer.weight)) < tolerance);
    CHECK(test::worst_difference(once, gradient(exact.layer.weight)) > 0);  // it was computed in halves
    autocast.backward([&] { return loop.loss(autocast.dtype()); });
    CHECK(test::worst_difference(gradient(loop.layer.weight), once * 2) < 1e-6);
  }
}

TEST_CASE("vulkan autocast: an overflow leaves the weights, halves the scale and is counted") {
  const auto device = vulkan_test_device();
  if (!device) return;
  Loop loop(*device);
  Optimizer adam(loop.layer.parameters(), {});
  Autocast autocast(loop.layer, Precision::f16, {.scale = 64});
  const std::vector<float> before = loop.layer.weight.to_vector<float>();
  autocast.backward([&] { return loop.loss(DType::f16, 1e6); });
  adam.clip(1);
  autocast.step(adam, 0.1);
  CHECK(loop.layer.weight.to_vector<float>() == before);
  CHECK(autocast.loss_scale_state().scale == 32);
  CHECK(autocast.loss_scale_state().skipped == 1);
  // A gradient that f16 holds only thanks to the scale.
  Loop tiny(*device);
  Autocast scaled(tiny.layer, Precision::f16, {.scale = 0x1p16});
  scaled.backward([&] { return tiny.loss(DType::f16, 1e-7); });
  CHECK(gradient(tiny.layer.weight).to_doubles()[0] != 0);
  autocast.backward([&] { return loop.loss(DType::f16); });
  adam.clip(1);
  autocast.step(adam, 0.1);
  CHECK(loop.layer.weight.to_vector<float>() != before);
  for (const double weight : loop.layer.weight.to_doubles()) CHECK(std::isfinite(weight));
  CHECK(autocast.loss_scale_state().skipped == 1);
  CHECK_THROWS_WITH_AS(Autocast(loop.layer, Precision::f16, {.scale = 0}),
                       doctest::Contains("loss scale is 0"), Error);
}
