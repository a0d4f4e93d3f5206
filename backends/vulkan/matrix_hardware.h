#pragma once

#include <string>

#include "heed/backends/vulkan/matmul_plan.h"
#include "heed/core/device.h"
#include "heed/core/dtype.h"

namespace heed::vulkan {

/// What the matrix hardware of an opened device is used for.
struct MatrixHardware {
  bool f16 = false, bf16 = false;
  std::string f16_problem, bf16_problem;  ///< why not
  TileSet tiles;                          ///< of the kernel on this device

  bool multiplies(DType dtype) const {
    return (dtype == DType::f16 && f16) || (dtype == DType::bf16 && bf16);
  }
};

/// Asks and tests at the first call for a device: products whose sums f32 holds exactly must have the bits
/// that the kernel for ordinary arithmetic gives, else the hardware is not used.
const MatrixHardware& matrix_hardware(Device device);

}  // namespace heed::vulkan
