// Linear maps of the same rows by one dispatch: the bits of one product after the other.

#include "heed/autograd/ops.h"
#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/core/device.h"
#include "vulkan_compare.h"

using namespace heed;
using namespace heed::test;

namespace {

constexpr int one_by_one = -1;

struct MapsCase {
  std::int64_t rows, inputs;
  std::vector<std::int64_t> outputs;
  int dispatches;
  DType dtype = DType::f32;
  bool biased = true;
};

Tensor values_on(Device device, const Shape& shape, DType dtype, std::uint32_t stream) {
  const Tensor full = copy_on(device, tensor_of<float>(numbers(shape.count(), -2, 2, stream), shape));
  const Tensor x = empty_on(device, shape, dtype);
  backend_of(device).copy(full, x);
  return x;
}

void check_maps(Device device, const MapsCase& c) {
  CAPTURE(c.rows);
  CAPTURE(c.inputs);
  CAPTURE(c.outputs.size());
  CAPTURE(c.outputs[0]);
  CAPTURE(c.dtype);
  CAPTURE(c.biased);
  const Backend& backend = backend_of(device);
  const Tensor x = values_on(device, {c.rows, c.inputs}, c.dtype, 1);
  std::vector<Tensor> weights, biases, outs;
  std::uint32_t stream = 2;
  for (const std::int64_t width : c.outputs) {
    weights.push_back(values_on(device, {width, c.inputs}, c.dtype, stream++));
    biases.push_back(c.biased ? values_on(device, {width}, c.dtype, stream++) : Tensor());
    outs.push_back(empty_on(device, {c.rows, width}, c.dtype));
  }
  backend.linear_maps(x, weights, biases,
                      outs);  // kernels of matrix hardware are tested before their first use
  const std::int64_t before = device_counters(device).dispatches;
  backend.linear_maps(x, weights, biases, outs);
  const std::int64_t taken = device_counters(device).dispatches - before;
  std::int64_t alone = 0;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    CAPTURE(i);
    const Tensor expected = empty_on(device, outs[i].shape(), c.dtype);
    const std::int64_t start = device_counters(device).dispatches;
    backend.matmul(x, transpose(weights[i], 0, 1), biases[i], 0, expected);
    alone += device_counters(device).dispatches - start;
    CHECK(outs[i].to_doubles() == expected.to_doubles());
  }
  CHECK(taken == (c.dispatches == one_by_one ? alone : c.dispatches));
}

}  // namespace

TEST_CASE("vulkan: maps of the same rows are one dispatch of the same bits") {
  const auto device = vulkan_test_device();
  if (!device) return;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const bool biased : {false, true}) {
      check_maps(*device, {29, 45, {37, 37, 37}, 1, dtype, biased});
      check_maps(*device, {70, 40, {64, 64}, 1, dtype, biased});
    }
  check_maps(*device, {20, 16, {32, 32, 32, 32, 32}, 2});
  // Of several widths, of a vector, with sums in parts, of nothing.
  check_maps(*device, {29, 45, {37, 12, 12}, one_by_one});
  check_maps(*device, {1, 45, {37, 37}, one_by_one});
  check_maps(*device, {20, 1100, {30, 30}, one_by_one});
  check_maps(*device, {0, 5, {3, 3}, 0});
  check_maps(*device, {4, 0, {3, 3}, 1});
}

TEST_CASE("vulkan: maps of the same rows within lowered limits") {
  const auto device = vulkan_test_device();
  if (!device) return;
  SUBCASE("bindings that hold each map, but not all") {
    const LoweredLimits lowered(*device, [](vulkan::Limits& limits) { limits.max_range = 8192; });
    check_maps(*device, {29, 45, {37, 37, 37}, one_by_one});
  }
  SUBCASE("bindings that hold none") {
    const LoweredLimits lowered(*device, [](vulkan::Limits& limits) { limits.max_range = 4096; });
    check_maps(*device, {29, 45, {37, 37}, one_by_one});
  }
  SUBCASE("workgroups") {
    const LoweredLimits lowered(*device, [](vulkan::Limits& limits) { limits.max_groups = 2; });
    check_maps(*device, {29, 45, {32, 32, 32}, one_by_one});
    check_maps(*device, {29, 45, {32, 32}, 1});
  }
}

TEST_CASE("vulkan: the kernel of matrix hardware takes maps of the same rows, emulated") {
  const auto device = vulkan_test_device();
  if (!device) return;
  using enum vulkan::TileKernel;
  const std::int64_t m = 70, n = 75, k = 45;
  std::vector<vulkan::MatrixProduct> maps;
  const Tensor a = values_on(*device, {1, 1, m, k}, DType::bf16, 1);
  for (const std::uint32_t i : {2u, 3u, 4u})
    maps.push_back({a, values_on(*device, {1, 1, k, n}, DType::bf16, i),
                    values_on(*device, {n}, DType::bf16, 10 + i),
                    Tensor::empty({1, 1, m, n}, DType::bf16, *device)});
  vulkan::Gpu& gpu = vulkan::gpu(device->index);
  const vulkan::MatmulPlan plan{vulkan::fragment_tiles(16).tiles.back(), 1, 1, 64};
  const vulkan::TiledProduct all = vulkan::tiled_maps(maps, emulated);
  REQUIRE(vulkan::fit_bindings(gpu, all));
  vulkan::multiply_tiles(gpu, emulated, all, plan);
  for (const vulkan::MatrixProduct& map : maps) {
    vulkan::MatrixProduct alone = map;
    alone.out = Tensor::empty({1, 1, m, n}, DType::bf16, *device);
    vulkan::multiply_tiles(gpu, emulated, vulkan::tiled(alone, emulated, {}), plan);
    CHECK(map.out.to_doubles() == alone.out.to_doubles());
  }
}
