#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "heed/backends/vulkan/gpu.h"
#include "heed/core/backend.h"
#include "kernel_check.h"
#include "vulkan_support.h"

// Helpers for tests that compare kernels of the Vulkan backend with those of the CPU.

namespace heed::test {

/// Lowers the limits of a device until the end of the scope, which makes kernels split their work.
class LoweredLimits {
 public:
  LoweredLimits(Device device, const std::function<void(vulkan::Limits&)>& change)
      : gpu_(vulkan::gpu(device.index)) {
    vulkan::Limits limits = gpu_.limits();
    change(limits);
    gpu_.lower_limits(limits);
  }
  ~LoweredLimits() { gpu_.restore_limits(); }
  LoweredLimits(const LoweredLimits&) = delete;
  LoweredLimits& operator=(const LoweredLimits&) = delete;

 private:
  vulkan::Gpu& gpu_;
};

/// A contiguous tensor behind a few other elements of its memory, so that its binding begins before it.
inline Tensor empty_on(Device device, const Shape& shape, DType dtype = DType::f32) {
  const std::int64_t before = 3;
  const Tensor storage = Tensor::empty({shape.count() + before}, dtype, device);
  return {storage.storage(), before, shape, contiguous_strides(shape), dtype};
}

/// NaN stays where a kernel forgets to write.
inline Tensor unwritten(const Shape& shape, DType dtype, Device device) {
  const Tensor x = Tensor::empty(shape, dtype, device);
  backend_of(x).fill(NAN, x);
  return x;
}

/// The elements of a contiguous tensor of the CPU; undefined tensors stay so.
inline Tensor copy_on(Device device, const Tensor& x) {
  if (!x.defined()) return x;
  const Tensor copy = empty_on(device, x.shape(), x.dtype());
  if (x.count() == 0) return copy;
  if (x.dtype() == DType::i32) {
    copy.assign(std::span<const std::int32_t>(x.to_vector<std::int32_t>()));
  } else {
    copy.assign(std::span<const float>(x.to_vector<float>()));
  }
  return copy;
}

/// What a computation leaves behind, given its backend, its device and its inputs there.
using Computation = std::function<std::vector<Tensor>(const Backend&, const std::vector<Tensor>&)>;

/// Runs a computation on the CPU and on a device; the largest relative error of each result must be small.
inline void check_agreement(Device device, const std::vector<Tensor>& inputs, const Computation& compute,
                            double allowed = 1e-5) {
  const auto on = [&](Device where) {
    std::vector<Tensor> copies;
    for (const Tensor& input : inputs) copies.push_back(copy_on(where, input));
    std::vector<std::vector<double>> results;
    for (const Tensor& result : compute(backend_of(where), copies)) results.push_back(result.to_doubles());
    return results;
  };
  const auto expected = on({}), found = on(device);
  REQUIRE(expected.size() == found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(worst_error(found[i], expected[i]) <= allowed);
  }
}

}  // namespace heed::test
