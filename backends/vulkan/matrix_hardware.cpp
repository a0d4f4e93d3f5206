#include "heed/backends/vulkan/matrix_hardware.h"

#include <bit>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/shader_code.h"
#include "heed/base/error.h"
#include "heed/core/device.h"

namespace heed::vulkan {
namespace {

/// The bits of a number in half precision. It must be exact there, and 0 or a normal number of f16.
std::uint16_t half_bits(float x, DType dtype) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (dtype == DType::bf16 || x == 0) return static_cast<std::uint16_t>(bits >> 16);
  constexpr std::uint32_t bias = (127 - 15) << 23;  // of the exponents
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | ((bits & 0x7fffffffu) - bias) >> 13);
}

/// A matrix [1, 1, rows, columns] whose lines begin at multiples of eight elements if `in_vectors`, and do
/// not otherwise.
Tensor exact_matrix(std::int64_t rows, std::int64_t columns, bool by_rows, bool in_vectors, DType dtype,
                    Device device) {
  const std::int64_t leading = ceil_div(by_rows ? columns : rows, 8) * 8 + (in_vectors ? 0 : 1);
  const Tensor x = exact_halves({(by_rows ? rows : columns) * leading}, dtype, device);
  return x.view({1, 1, rows, columns}, {0, 0, by_rows ? leading : 1, by_rows ? 1 : leading}, 0);
}

/// The result of a kernel's test, or the message of the Error that it throws. OutOfMemory and DeviceLost say
/// nothing about the hardware.
std::string problem_found_by(const std::function<std::string()>& test) {
  try {
    return test();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
}

/// Returns why the hardware is not used for a type; "" if it is.
std::string find_problem(Gpu& gpu, const TileSet& tiles, DType dtype) {
  const CooperativeMatrices& offered = gpu.capabilities().matrices;
  if (!offered.of(dtype).exists())
    return offered.missing.empty() ? "the driver does not offer it" : offered.missing;
  if (!find_shader(concat_text("matmul_cooperative_", dtype)))
    return concat_text("heed was built with a glslang that does not know ",
                       dtype == DType::f16 ? "GL_KHR_cooperative_matrix" : "GL_EXT_bfloat16");
  const TileShape* best = nullptr;  // the tile of large products
  for (const TileShape& tile : tiles.tiles)
    if (fits(tile, gpu.limits()) && (!best || tile.efficiency > best->efficiency)) best = &tile;
  if (!best) return "the device's workgroups hold none of its tiles";
  return problem_found_by([&] { return problem_of_products(gpu, TileKernel::cooperative, dtype, *best); });
}

MatrixHardware test_hardware(Device device) {
  Gpu& gpu = vulkan::gpu(device.index);
  MatrixHardware hardware;
  hardware.tiles = gpu.tuning().fragments;
  hardware.f16_problem = find_problem(gpu, hardware.tiles, DType::f16);
  hardware.bf16_problem = find_problem(gpu, hardware.tiles, DType::bf16);
  hardware.f16 = hardware.f16_problem.empty();
  hardware.bf16 = hardware.bf16_problem.empty();
  return hardware;
}

/// A device's tested kernels, by name, with the reason if the test failed.
using TestedKernels = std::map<std::string, std::string>;
TestedKernels& tested_kernels(Device device) {
  static std::map<int, TestedKernels> all;
  return all[device.index];
}

}  // namespace

Tensor exact_halves(const Shape& shape, DType dtype, Device device) {
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < bits.size(); ++i)
    bits[i] = half_bits(static_cast<float>(i * 7 % 17) / 8 - 1, dtype);
  const Tensor halves = Tensor::empty(shape, dtype, device);
  upload(bits.data(), halves);
  return halves;
}

const MatrixHardware& matrix_hardware(Device device) {
  const std::lock_guard gpu_lock(gpu(device.index).mutex());  // locked first, as callers may hold it
  static std::mutex mutex;
  static std::map<int, MatrixHardware> tested;
  const std::lock_guard lock(mutex);
  const auto found = tested.find(device.index);
  return found != tested.end() ? found->second
                               : tested.emplace(device.index, test_hardware(device)).first->second;
}

std::string problem_of_products(Gpu& gpu, TileKernel kernel, DType dtype, const TileShape& tile,
                                Fragment emulated) {
  const Device device{DeviceType::vulkan, gpu.index()};
  // More than one tile in each direction, and no multiple of a fragment's or a vector's size.
  const std::int64_t m = tile.rows + 6, n = tile.columns + 13, k = 3 * tile.depth - 7;
  for (const bool a_by_rows : {false, true})
    for (const bool b_by_rows : {false, true}) {
      const bool in_vectors = a_by_rows || b_by_rows, sums_rows = a_by_rows && b_by_rows;
      const Tensor a = exact_matrix(m, k, a_by_rows, in_vectors, dtype, device),
                   b = exact_matrix(k, n, b_by_rows, in_vectors, dtype, device);
      const auto result = [&](TileKernel by, const TileShape& cut, std::uint32_t stages) {
        const Tensor out = Tensor::zeros({1, 1, m, n}, DType::f32, device),
                     sums = Tensor::zeros({m}, DType::f32, device);
        TiledProduct product = tiled({a, b, {}, out, false, sums_rows ? sums : Tensor()}, by, {});
        product.emulated = emulated;
        multiply_tiles(gpu, by, product, {cut, stages, 1, ceil_div(k, cut.depth) * cut.depth});
        return std::pair(out.to_doubles(), sums.to_doubles());
      };
      if (result(kernel, tile, stage_count(tile, gpu.limits())) !=
          result(TileKernel::scalar, scalar_tiles().tiles.back(), 1))
        return concat_text("the products of ", gpu.name(), " in ", dtype,
                           " differ from those of ordinary arithmetic");
    }
  return "";
}

bool is_trusted(Device device, const std::string& name, const std::function<std::string()>& problem) {
  const std::lock_guard lock(vulkan::gpu(device.index).mutex());
  TestedKernels& tested = tested_kernels(device);
  auto found = tested.find(name);
  if (found == tested.end()) found = tested.emplace(name, problem_found_by(problem)).first;
  return found->second.empty();
}

}  // namespace heed::vulkan

namespace heed {

std::string matrix_hardware_use(Device device) {
  const vulkan::MatrixHardware& hardware = vulkan::matrix_hardware(device);
  const auto use = [](const char* type, const std::string& problem) {
    return std::string(type) + (problem.empty() ? ": used" : ": not used, " + problem);
  };
  std::string text = use("f16", hardware.f16_problem) + "; " + use("bf16", hardware.bf16_problem);
  const std::lock_guard lock(vulkan::gpu(device.index).mutex());
  for (const auto& [kernel, problem] : vulkan::tested_kernels(device))
    if (!problem.empty()) text += "; left out: " + problem;
  return text;
}

}  // namespace heed
