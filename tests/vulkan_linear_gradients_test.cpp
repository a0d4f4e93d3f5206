// The gradients of a linear map in one pass: against a product and a reduction.

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/core/device.h"
#include "vulkan_compare.h"

using namespace heed;
using namespace heed::test;

namespace {

struct LinearCase {
  std::int64_t rows, outputs, inputs;
  DType dtype = DType::f32;
};

Tensor numbers_on(Device device, const Shape& shape, DType dtype, std::uint32_t stream) {
  const Tensor full = copy_on(device, tensor_of<float>(numbers(shape.count(), -1, 1, stream), shape));
  if (dtype == DType::f32) return full;
  const Tensor x = empty_on(device, shape, dtype);
  backend_of(device).copy(full, x);
  return x;
}

void check_linear_gradients(Device device, const LinearCase& c) {
  CAPTURE(c.rows);
  CAPTURE(c.outputs);
  CAPTURE(c.inputs);
  CAPTURE(c.dtype);
  const Tensor grad = numbers_on(device, {c.rows, c.outputs}, c.dtype, 1),
               x = numbers_on(device, {c.rows, c.inputs}, c.dtype, 2);
  const auto result = [&] {
    const Tensor dweight = empty_on(device, {c.outputs, c.inputs}, c.dtype),
                 dbias = empty_on(device, {c.outputs}, c.dtype);
    backend_of(device).linear_gradients(grad, x, dweight, dbias);
    return std::vector{dweight.to_doubles(), dbias.to_doubles()};
  };
  const auto found = result();
  // On the CPU, from the same rounded numbers.
  const Tensor g = tensor_of<float>(grad.to_doubles(), grad.shape()),
               a = tensor_of<float>(x.to_doubles(), x.shape());
  const double allowed = c.dtype == DType::f32
                             ? 2e-6 * std::sqrt(std::max<double>(static_cast<double>(c.rows), 16))
                         : c.dtype == DType::f16 ? 1e-3
                                                 : 8e-3;
  CHECK(worst_error(found[0], matmul(transpose(g, 0, 1), a).to_doubles()) < allowed);
  CHECK(worst_error(found[1], sum(g, 0).to_doubles()) < allowed);
  CHECK(result() == found);
}

}  // namespace

TEST_CASE("vulkan: weight and bias gradients in one pass, ragged sizes, parts, half types") {
  const auto device = vulkan_test_device();
  if (!device) return;
  for (const LinearCase& c :
       {LinearCase{29, 37, 45}, LinearCase{64, 32, 32}, LinearCase{1100, 20, 30}, LinearCase{5, 1, 9},
        LinearCase{5, 9, 1}, LinearCase{70, 140, 3}, LinearCase{0, 4, 3}, LinearCase{3, 4, 0}})
    check_linear_gradients(*device, c);
  for (const DType half : {DType::f16, DType::bf16}) {
    check_linear_gradients(*device, {29, 37, 45, half});
    check_linear_gradients(*device, {1100, 24, 40, half});
  }
  const LoweredLimits limits(*device, [](vulkan::Limits& lower) { lower.max_range = 2048; });
  check_linear_gradients(*device, {60, 37, 45});
}

TEST_CASE("vulkan: a linear map with a bias goes back in two dispatches") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Tensor weight = parameter(numbers_on(*device, {24, 16}, DType::f32, 1)),
               bias = parameter(numbers_on(*device, {24}, DType::f32, 2)),
               x = parameter(numbers_on(*device, {40, 16}, DType::f32, 3)),
               start = numbers_on(*device, {40, 24}, DType::f32, 4);
  const Tensor y = linear(x, weight, bias);
  const std::int64_t before = device_counters(*device).dispatches;
  backward(y, start);
  // The gradient that the test gives is copied, since it does not belong to the graph alone.
  CHECK(device_counters(*device).dispatches - before <= 3);
  const auto found =
      std::vector{gradient(weight).to_doubles(), gradient(bias).to_doubles(), gradient(x).to_doubles()};
  for (const Tensor& leaf : {weight, bias, x}) zero_gradient(leaf);
  {
    const ComposeOnly compose_only;
    backward(linear(x, weight, bias), start);
  }
  std::size_t i = 0;
  for (const Tensor& leaf : {weight, bias, x})
    CHECK(worst_error(found[i++], gradient(leaf).to_doubles()) < 1e-5);
}

TEST_CASE("vulkan: row sums of the kernel of matrix hardware, emulated") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const vulkan::TileSet tiles = vulkan::fragment_tiles(16);
  for (const bool along_k : {false, true}) {
    const std::int64_t m = 70, n = 72, k = 45;
    const Tensor a = numbers_on(*device, along_k ? Shape{m, k} : Shape{k, m}, DType::f16, 1),
                 b = numbers_on(*device, {k, n}, DType::f16, 2);
    const Tensor out = Tensor::empty({1, 1, m, n}, DType::f16, *device),
                 sums = Tensor::empty({m}, DType::f16, *device);
    const vulkan::MatrixProduct p{a.view({1, 1, m, k}, {0, 0, along_k ? k : 1, along_k ? 1 : m}, a.offset()),
                                  b.view({1, 1, k, n}, {0, 0, n, 1}, b.offset()),
                                  {},
                                  out,
                                  false,
                                  sums};
    const vulkan::TileShape& tile = tiles.tiles.back();
    vulkan::multiply_tiles(vulkan::gpu(device->index), vulkan::TileKernel::emulated,
                           vulkan::tiled(p, vulkan::TileKernel::emulated, {}), {tile, 1, 1, 64});
    const Tensor rounded = tensor_of<float>(a.to_doubles(), a.shape());
    CHECK(worst_error(sums.to_doubles(), sum(rounded, along_k ? 1 : 0).to_doubles()) < 2e-3);
  }
}
