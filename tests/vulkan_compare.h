#pragma once

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

/// Makes a device's driver skip one of the next dispatches while it lives.
class LeftOut {
 public:
  LeftOut(vulkan::Gpu& gpu, int number) : gpu_(gpu) {
    real() = gpu.api().CmdDispatch;
    left() = number;
    gpu.replaceable_api().CmdDispatch = [](VkCommandBuffer buffer, std::uint32_t x, std::uint32_t y,
                                           std::uint32_t z) {
      if (--left() != 0) real()(buffer, x, y, z);
    };
  }
  ~LeftOut() { gpu_.replaceable_api().CmdDispatch = real(); }
  LeftOut(const LeftOut&) = delete;
  LeftOut& operator=(const LeftOut&) = delete;

 private:
  static PFN_vkCmdDispatch& real() {
    static PFN_vkCmdDispatch function;
    return function;
  }
  static int& left() {
    static int number;
    return number;
  }
  vulkan::Gpu& gpu_;
};

/// Makes a contiguous tensor behind a few other elements of its memory, so that its binding begins
/// before it.
inline Tensor empty_on(Device device, const Shape& shape, DType dtype = DType::f32) {
  const std::int64_t before = 3;
  const Tensor storage = Tensor::empty({shape.count() + before}, dtype, device);
  return {storage.storage(), before, shape, contiguous_strides(shape), dtype};
}

/// Makes a tensor of NaN, which stay where a kernel forgets to write.
inline Tensor unwritten(const Shape& shape, DType dtype, Device device) {
  const Tensor x = Tensor::empty(shape, dtype, device);
  backend_of(x).fill(NAN, x);
  return x;
}

/// Copies a contiguous tensor of the CPU to a device; undefined tensors stay undefined.
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

/// Returns random numbers of a dtype, in memory that begins before them.
inline Tensor drawn_on(Device device, const Shape& shape, DType dtype, std::uint32_t stream,
                       double bound = 2) {
  const Tensor full = copy_on(device, tensor_of<float>(numbers(shape.count(), -bound, bound, stream), shape));
  if (dtype == DType::f32) return full;
  const Tensor x = empty_on(device, shape, dtype);
  backend_of(device).copy(full, x);
  return x;
}

/// Makes a contiguous copy of another dtype.
inline Tensor converted(const Tensor& x, DType dtype) {
  const Tensor other = Tensor::empty(x.shape(), dtype, x.device());
  backend_of(x).copy(x, other);
  return other;
}

using Numbers = std::vector<Doubles>;

inline Numbers numbers_of(const std::vector<Tensor>& tensors) {
  Numbers numbers;
  for (const Tensor& x : tensors) numbers.push_back(x.to_doubles());
  return numbers;
}

/// Checks that the largest relative error of each result is small.
inline void check_near(const Numbers& found, const Numbers& expected, double allowed) {
  REQUIRE(expected.size() == found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(worst_error(found[i], expected[i]) <= allowed);
  }
}

/// Returns how many dispatches `work` records.
inline std::int64_t dispatches_of(Device device, const std::function<void()>& work) {
  const std::int64_t before = device_counters(device).dispatches;
  work();
  return device_counters(device).dispatches - before;
}

/// Computes results from a backend and inputs on its device.
using Computation = std::function<std::vector<Tensor>(const Backend&, const std::vector<Tensor>&)>;

/// Returns the results of a computation on a device, from copies of the inputs there.
inline Numbers results_on(Device device, const std::vector<Tensor>& inputs, const Computation& compute) {
  std::vector<Tensor> copies;
  for (const Tensor& input : inputs) copies.push_back(copy_on(device, input));
  return numbers_of(compute(backend_of(device), copies));
}

/// Checks that a computation gives the same results on the CPU and on a device.
inline void check_agreement(Device device, const std::vector<Tensor>& inputs, const Computation& compute,
                            double allowed = 1e-5) {
  check_near(results_on(device, inputs, compute), results_on({}, inputs, compute), allowed);
}

}  // namespace heed::test
