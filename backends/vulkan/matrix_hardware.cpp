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

/// "f16 -> f32, tile 128 x 128 x 32, 64 x 32 each, 2 stages, a by rows in vectors, b by columns, row sums"
std::string text_of(const FragmentVariant& v) {
  const auto layout = [](bool by_rows, bool in_vectors) {
    return std::string(by_rows ? "by rows" : "by columns") + (in_vectors ? " in vectors" : "");
  };
  return concat_text(v.dtype, v.wide ? " -> f32" : "", ", tile ", name_of(v.tile), ", ", v.stages,
                     " stages, a ", layout(v.a_by_rows, v.a_in_vectors), ", b ",
                     layout(v.b_by_rows, v.b_in_vectors), v.row_sums ? ", row sums" : "");
}

/// Returns why the hardware is not used for a type; "" if it is.
std::string find_problem(Gpu& gpu, const TileSet& tiles, DType dtype) {
  const CooperativeMatrices& offered = gpu.capabilities().matrices;
  if (!offered.of(dtype).exists())
    return offered.missing.empty() ? "the driver does not offer it" : offered.missing;
  if (!find_shader(concat_text("matmul_cooperative_", dtype)))
    return concat_text("heed was built with a glslang that does not know ",
                       dtype == DType::f16 ? "GL_KHR_cooperative_matrix" : "GL_EXT_bfloat16");
  // The tile of large products; the others are tested before their first use, too.
  const TileShape* best = nullptr;
  for (const TileShape& tile : tiles.tiles)
    if (fits(tile, gpu.limits()) && (!best || tile.efficiency > best->efficiency)) best = &tile;
  if (!best) return "the device's workgroups hold none of its tiles";
  return problem_found_by([&] {
    for (const bool a_by_rows : {false, true})
      for (const bool b_by_rows : {false, true}) {
        const FragmentVariant variant{dtype, true, a_by_rows, b_by_rows, true, true, false, 1, *best};
        std::string problem = problem_of_variant(gpu, TileKernel::cooperative, variant);
        if (!problem.empty()) return problem;
      }
    return std::string();
  });
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

/// A device's tested variants, by their description, with the reason if the test failed.
using TestedVariants = std::map<std::string, std::string>;
TestedVariants& tested_variants(Device device) {
  static std::map<int, TestedVariants> all;
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

FragmentVariant fragment_variant(const TiledProduct& product, const MatmulPlan& plan) {
  const MatrixProduct& p = product.product;
  return {p.a.dtype(),
          product.is_wide(),
          product.a_place.by_rows,
          product.b_place.by_rows,
          product.a_place.in_vectors,
          product.b_place.in_vectors,
          p.row_sums.defined(),
          plan.stages,
          plan.tile};
}

std::string problem_of_variant(Gpu& gpu, TileKernel kernel, const FragmentVariant& v) {
  const Device device{DeviceType::vulkan, gpu.index()};
  // More than one tile in each direction, and no multiple of a fragment's or a vector's size.
  const std::int64_t m = v.tile.rows + 6, n = v.tile.columns + 13, k = 3 * v.tile.depth - 7;
  const DType out_type = v.wide ? DType::f32 : v.dtype;
  const Tensor a = exact_matrix(m, k, v.a_by_rows, v.a_in_vectors, v.dtype, device),
               b = exact_matrix(k, n, v.b_by_rows, v.b_in_vectors, v.dtype, device);
  const auto result = [&](TileKernel by, const TileShape& tile, std::uint32_t stages) {
    const Tensor out = Tensor::zeros({1, 1, m, n}, out_type, device),
                 sums = Tensor::zeros({m}, out_type, device);
    const MatrixProduct p{a, b, {}, out, false, v.row_sums ? sums : Tensor()};
    TiledProduct product = tiled(p, by, {});
    product.emulated = v.emulated;
    multiply_tiles(gpu, by, product, {tile, stages, 1, ceil_div(k, tile.depth) * tile.depth});
    return std::pair(out.to_doubles(), sums.to_doubles());
  };
  const auto found = result(kernel, v.tile, v.stages);
  if (found == result(TileKernel::scalar, scalar_tiles().tiles.back(), 1)) return "";
  return concat_text("the products of ", gpu.name(), " differ from those of ordinary arithmetic (",
                     text_of(v), ")");
}

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

bool is_trusted(Device device, const std::string& name, const std::function<std::string()>& problem) {
  const std::lock_guard lock(vulkan::gpu(device.index).mutex());
  TestedVariants& tested = tested_variants(device);
  auto found = tested.find(name);
  if (found == tested.end()) found = tested.emplace(name, problem()).first;
  return found->second.empty();
}

bool is_trusted(Device device, const FragmentVariant& variant) {
  return is_trusted(device, text_of(variant), [&] {
    return problem_of_variant(vulkan::gpu(device.index), TileKernel::cooperative, variant);
  });
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
  for (const auto& [variant, problem] : vulkan::tested_variants(device))
    if (!problem.empty()) text += "; left out: " + problem;
  return text;
}

}  // namespace heed
