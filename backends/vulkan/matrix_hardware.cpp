#include "heed/backends/vulkan/matrix_hardware.h"

#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "heed/backends/vulkan/gpu.h"
#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/launch.h"
#include "heed/backends/vulkan/matmul_tiles.h"
#include "heed/backends/vulkan/shader_code.h"
#include "heed/core/devices.h"
#include "heed/core/error.h"

namespace heed::vulkan {
namespace {

/// The bits of a number that half precision holds exactly, and that is 0 or neither tiny nor huge.
std::uint16_t half_bits(float x, DType dtype) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (dtype == DType::bf16 || x == 0) return static_cast<std::uint16_t>(bits >> 16);
  constexpr std::uint32_t bias = (127 - 15) << 23;  // of the exponents
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | ((bits & 0x7fffffffu) - bias) >> 13);
}

/// Multiples of 1/8 between -1 and 1: exact in half precision, and so are sums of their products in f32.
Tensor exact_halves(const Shape& shape, DType dtype, Device device) {
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < bits.size(); ++i)
    bits[i] = half_bits(static_cast<float>(i * 7 % 17) / 8 - 1, dtype);
  const Tensor halves = Tensor::empty(shape, dtype, device);
  upload(bits.data(), halves);
  return halves;
}

/// Whether the two kernels agree on one product with these layouts.
bool agrees(Gpu& gpu, const TileShape& tile, DType dtype, Device device, bool a_by_rows, bool b_by_rows) {
  constexpr std::int64_t m = 150, n = 140, k = 88;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, bool by_rows) {
    const Tensor x = exact_halves({rows * columns}, dtype, device);
    return x.view({1, 1, rows, columns}, {0, 0, by_rows ? columns : 1, by_rows ? 1 : rows}, 0);
  };
  const auto product = [&](TileKernel kernel, const TileShape& shape) {
    const Tensor out = Tensor::empty({1, 1, m, n}, DType::f32, device);
    const MatrixProduct p{matrix(m, k, a_by_rows), matrix(k, n, b_by_rows), {}, out, false};
    const std::int64_t depth = ceil_div(k, shape.depth) * shape.depth;
    multiply_tiles(gpu, kernel, tiled(p, kernel, {}), {shape, 1, 1, depth});
    return out.to_vector<float>();
  };
  return product(TileKernel::cooperative, tile) == product(TileKernel::scalar, scalar_tiles().tiles.back());
}

/// Why the hardware is not used for a type; empty: it is.
std::string problem_of(Gpu& gpu, const TileSet& tiles, DType dtype, Device device) {
  const Capabilities& can = gpu.capabilities();
  const bool there = dtype == DType::f16 ? can.cooperative_matrix : can.cooperative_bfloat16;
  if (!there)
    return can.no_cooperative_matrix.empty() ? "the driver does not offer it" : can.no_cooperative_matrix;
  if (!find_shader(concat_text("matmul_cooperative_", dtype)))
    return concat_text("heed was built with a glslang that does not know ",
                       dtype == DType::f16 ? "GL_KHR_cooperative_matrix" : "GL_EXT_bfloat16");
  try {
    for (const TileShape& tile : tiles.tiles)
      for (const bool a_by_rows : {false, true})
        for (const bool b_by_rows : {false, true})
          if (!agrees(gpu, tile, dtype, device, a_by_rows, b_by_rows))
            return concat_text("its products differ from those of ordinary arithmetic (tile ", tile.rows,
                               " x ", tile.columns, ")");
  } catch (const OutOfMemory&) {  // says nothing about the hardware
    throw;
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

MatrixHardware test_hardware(Device device) {
  Gpu& gpu = vulkan::gpu(device.index);
  MatrixHardware hardware;
  hardware.tiles = fragment_tiles(gpu.capabilities().subgroup_size);
  hardware.f16_problem = problem_of(gpu, hardware.tiles, DType::f16, device);
  hardware.bf16_problem = problem_of(gpu, hardware.tiles, DType::bf16, device);
  hardware.f16 = hardware.f16_problem.empty();
  hardware.bf16 = hardware.bf16_problem.empty();
  return hardware;
}

}  // namespace

const MatrixHardware& matrix_hardware(Device device) {
  const std::lock_guard gpu_lock(gpu(device.index).mutex());  // first, as callers may hold it
  static std::mutex mutex;
  static std::map<int, MatrixHardware> tested;
  const std::lock_guard lock(mutex);
  const auto found = tested.find(device.index);
  return found != tested.end() ? found->second
                               : tested.emplace(device.index, test_hardware(device)).first->second;
}

}  // namespace heed::vulkan

namespace heed {

std::string matrix_hardware_use(Device device) {
  const vulkan::MatrixHardware& hardware = vulkan::matrix_hardware(device);
  const auto use = [](const char* type, const std::string& problem) {
    return std::string(type) + (problem.empty() ? ": used" : ": not used, " + problem);
  };
  return use("f16", hardware.f16_problem) + "; " + use("bf16", hardware.bf16_problem);
}

}  // namespace heed
