#pragma once

#include <functional>
#include <string>

#include "heed/backends/vulkan/gpu.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/backends/vulkan/tuning.h"
#include "heed/core/device.h"
#include "heed/core/tensor.h"

namespace heed::vulkan {

/// The types for which an opened device's matrix hardware is used.
struct MatrixHardware {
  bool f16 = false, bf16 = false;
  std::string f16_problem, bf16_problem;  ///< why not
  TileSet tiles;                          ///< of the fragment kernel on this device

  bool multiplies(DType dtype) const {
    return (dtype == DType::f16 && f16) || (dtype == DType::bf16 && bf16);
  }
};

/// Returns the types for which a device's matrix hardware is used. The first call queries the
/// hardware and tests it: products whose sums f32 holds exactly must equal those of the ordinary
/// kernel bit for bit, or the hardware is not used.
const MatrixHardware& matrix_hardware(Device device);

/// Returns how products of factors of this type differ from those of ordinary arithmetic when f32 holds all
/// sums exactly; "" if all bits agree. `kernel` is the cooperative one, or its emulation for tests.
std::string problem_of_products(Gpu& gpu, TileKernel kernel, DType dtype, const TileShape& tile,
                                Fragment emulated = {16, 16, 16});

/// Returns whether a kernel for matrix hardware may be used. `problem` tests it before its first use, which
/// waits for the device. A kernel that fails, or whose test throws an Error, is never used, and
/// matrix_hardware_use() reports why.
bool is_trusted(Device device, const std::string& name, const std::function<std::string()>& problem);

/// Returns multiples of 1/8 between -1 and 1: exact in half precision, and so are sums of their
/// products in f32.
Tensor exact_halves(const Shape& shape, DType dtype, Device device);

}  // namespace heed::vulkan
