// What a program writes every day, on a Vulkan device; ops_test.cpp and vulkan_ops_test.cpp compare the ops.

#include <doctest/doctest.h>

#include <sstream>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/device.h"
#include "vulkan_support.h"

using namespace heed;
using Floats = std::vector<float>;

TEST_CASE("vulkan: tensors move between devices, and their gradients back") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Tensor p = parameter(Tensor::from<float>({1, 2, 3}, {3}));
  const Tensor there = p.to(*device);
  CHECK(there.device() == *device);
  const Tensor back = (there * there).to(Device{});
  CHECK(back.to_vector<float>() == Floats{1, 4, 9});
  backward(sum(back));
  CHECK(gradient(p).device() == Device{});
  CHECK(gradient(p).to_vector<float>() == Floats{2, 4, 6});
  const Tensor transposed = transpose(Tensor::from<float>({{1, 2}, {3, 4}}).to(*device), 0, 1);
  CHECK(transposed.to(Device{}).to_vector<float>() == Floats{1, 3, 2, 4});
  CHECK_THROWS_WITH_AS(Tensor::ones({1}, DType::f64).to(*device),
                       doctest::Contains("to: f64 exists on the CPU only"), Error);
  CHECK_THROWS_WITH_AS(there.to(DType::f16).to(Device{}),
                       doctest::Contains("to: f16 exists on Vulkan devices only"), Error);
  CHECK(there.to(DType::f16).to(DType::f32).to(Device{}).to_vector<float>() == Floats{1, 2, 3});
}

TEST_CASE("vulkan: a tensor prints with its device") {
  const auto device = vulkan_test_device();
  if (!device) return;
  std::ostringstream text;
  text << Tensor::from<float>({1, 2.5}, {2}).to(*device).to(DType::f16);
  CHECK(text.str() == "[1.0, 2.5] f16 [2] " + name_of(*device));
  std::ostringstream large;
  large << Tensor::arange(2000, DType::i32, *device);
  CHECK(large.str() == "[   0,    1,    2, ..., 1997, 1998, 1999] i32 [2000] " + name_of(*device));
}

TEST_CASE("vulkan: an index out of range is reported by the next read of anything") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Tensor table = Tensor::ones({4, 2}, DType::f32, *device),
               other = Tensor::ones({3}, DType::f32, *device);
  CHECK(other.to_vector<float>() == Floats{1, 1, 1});
  for (int round = 0; round < 20; ++round) {
    const Tensor wrong = embedding(table, Tensor::full({1}, 4, DType::i32, *device));
    // A tensor that has nothing to do with it, and was read before.
    CHECK_THROWS_WITH_AS(other.to_vector<float>(), doctest::Contains("outside [0, 4)"), Error);
    CHECK(other.to_vector<float>() == Floats{1, 1, 1});  // once
  }
}

TEST_CASE("vulkan: synchronize reports what nobody has read") {
  const auto device = vulkan_test_device();
  if (!device) return;
  CHECK_NOTHROW(synchronize(*device));
  { const Tensor wrong = one_hot(Tensor::full({2}, 7, DType::i32, *device), 3); }
  CHECK_THROWS_WITH_AS(synchronize(*device), doctest::Contains("outside [0, 3)"), Error);
  CHECK_NOTHROW(synchronize(*device));
  CHECK_NOTHROW(synchronize(Device{}));
}

TEST_CASE("vulkan: an assignment between forward and backward is seen there, too") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Tensor w = parameter(Tensor::ones({2}, DType::f32, *device)),
               x = Tensor::ones({2}, DType::f32, *device);
  const Tensor loss = sum(w * x);
  x.assign(std::span<const float>(Floats{3, 3}));
  CHECK_THROWS_WITH_AS(backward(loss), doctest::Contains("overwritten"), Error);
}
