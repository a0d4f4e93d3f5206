// Products that apply an activation or its derivative: the bits of a product followed by the kernel of the
// activation.

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/core/device.h"
#include "vulkan_compare.h"

using namespace heed;
using namespace heed::test;

namespace {

struct MapCase {
  std::int64_t rows, inputs, outputs;
  DType dtype = DType::f32;
};

Tensor drawn_on(Device device, const Shape& shape, DType dtype, std::uint32_t stream) {
  const Tensor full = copy_on(device, tensor_of<float>(numbers(shape.count(), -2, 2, stream), shape));
  const Tensor x = empty_on(device, shape, dtype);
  backend_of(device).copy(full, x);
  return x;
}

/// The same bits; in f16 as near as they are where a driver spares itself the rounding of the sums.
void check_equal(const Tensor& found, const Tensor& expected) {
  const std::vector<double> a = found.to_doubles(), e = expected.to_doubles();
  REQUIRE(a.size() == e.size());
  const double allowed = found.dtype() == DType::f16 ? 0x1p-9 : 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool near = std::abs(a[i] - e[i]) <= allowed * std::max(std::abs(e[i]), 1.0);
    if (a[i] != e[i] && !near) FAIL_CHECK("element ", i, ": ", a[i], " instead of ", e[i]);
  }
}

void check_activated(Device device, const MapCase& c, UnaryOp activation) {
  CAPTURE(c.rows);
  CAPTURE(c.inputs);
  CAPTURE(c.outputs);
  CAPTURE(c.dtype);
  CAPTURE(std::string(name_of(activation)));
  const Backend& backend = backend_of(device);
  const auto empty = [&](std::int64_t columns) { return empty_on(device, {c.rows, columns}, c.dtype); };
  const Tensor x = drawn_on(device, {c.rows, c.inputs}, c.dtype, 1),
               weight = drawn_on(device, {c.outputs, c.inputs}, c.dtype, 2),
               bias = drawn_on(device, {c.outputs}, c.dtype, 3);
  for (const Tensor& b : {bias, Tensor()}) {
    const Tensor sums = empty(c.outputs), out = empty(c.outputs);
    backend.matmul(x, transpose(weight, 0, 1), b, 0, sums);
    backend.unary(activation, {}, sums, out);
    const Tensor fused_sums = empty(c.outputs), fused = empty(c.outputs), alone = empty(c.outputs);
    backend.activated_linear.forward(x, weight, b, activation, fused_sums, fused);
    backend.activated_linear.forward(x, weight, b, activation, {}, alone);
    CHECK(fused_sums.to_doubles() == sums.to_doubles());
    check_equal(fused, out);
    check_equal(alone, out);
  }
  // Back through a map from `inputs` to `outputs`: what its inputs were made of.
  const Tensor grad = drawn_on(device, {c.rows, c.outputs}, c.dtype, 4), saved = x;
  const Tensor product = empty(c.inputs), expected = empty(c.inputs), found = empty(c.inputs);
  backend.matmul(grad, weight, {}, 0, product);
  backend.unary_backward(activation, {}, saved, product, expected);
  backend.activated_linear.backward(grad, weight, activation, saved, found);
  check_equal(found, expected);
}

}  // namespace

TEST_CASE("vulkan: products apply activations and derivatives, ragged sizes, vectors, parts, half types") {
  const auto device = vulkan_test_device();
  if (!device) return;
  for (const UnaryOp activation : activation_ops) check_activated(*device, {29, 37, 45}, activation);
  for (const MapCase& c : {MapCase{64, 32, 32}, MapCase{20, 1100, 1100}, MapCase{1, 33, 70},
                           MapCase{70, 1, 1}, MapCase{0, 4, 3}, MapCase{3, 0, 4}})
    check_activated(*device, c, UnaryOp::gelu);
  for (const DType half : {DType::f16, DType::bf16})
    for (const MapCase& c : {MapCase{29, 37, 45, half}, MapCase{40, 48, 64, half},
                             MapCase{20, 1100, 1100, half}, MapCase{1, 33, 70, half}})
      check_activated(*device, c, UnaryOp::gelu_tanh);
}

TEST_CASE("vulkan: products apply activations within lowered limits") {
  const auto device = vulkan_test_device();
  if (!device) return;
  SUBCASE("bindings") {
    const LoweredLimits lowered(*device, [](vulkan::Limits& limits) { limits.max_range = 2048; });
    check_activated(*device, {40, 37, 50}, UnaryOp::silu);
    check_activated(*device, {3, 700, 4}, UnaryOp::relu);
  }
  SUBCASE("workgroups") {
    const LoweredLimits lowered(*device, [](vulkan::Limits& limits) { limits.max_groups = 2; });
    check_activated(*device, {100, 20, 40}, UnaryOp::gelu);
    check_activated(*device, {20, 1100, 30}, UnaryOp::gelu);
  }
}

TEST_CASE("vulkan: the kernel of matrix hardware applies activations, emulated") {
  const auto device = vulkan_test_device();
  if (!device) return;
  using enum vulkan::TileKernel;
  const std::int64_t k = 45;
  for (const std::int64_t n : {72, 75})
    for (const bool derivative : {false, true}) {
      CAPTURE(n);
      CAPTURE(derivative);
      const std::int64_t m = 70;
      const Tensor a = drawn_on(*device, {1, 1, m, k}, DType::f16, 1),
                   b = drawn_on(*device, {1, 1, k, n}, DType::f16, 2);
      const auto result = [&](vulkan::TileKernel kernel, const vulkan::TileShape& tile, bool activates) {
        const Tensor out = Tensor::empty({1, 1, m, n}, DType::f16, *device);
        vulkan::MatrixProduct p{a, b, {}, out};
        const Tensor kept = drawn_on(*device, {1, 1, m, n}, DType::f16, 3);
        if (activates && derivative) p.activated = {UnaryOp::gelu, {}, kept};
        if (activates && !derivative) p.activated = {UnaryOp::gelu, kept};
        vulkan::multiply_tiles(vulkan::gpu(device->index), kernel, vulkan::tiled(p, kernel, {}),
                               {tile, 1, 1, 64});
        return std::pair(out, kept);
      };
      const vulkan::TileShape fragments = vulkan::fragment_tiles(16).tiles.back();
      const auto [sums, drawn] = result(emulated, fragments, false);
      const auto [found, kept] = result(emulated, fragments, true);
      const Tensor expected = Tensor::empty(sums.shape(), DType::f16, *device);
      const Backend& backend = backend_of(*device);
      derivative ? backend.unary_backward(UnaryOp::gelu, {}, drawn, sums, expected)
                 : backend.unary(UnaryOp::gelu, {}, sums, expected);
      check_equal(found, expected);
      CHECK(kept.to_doubles() == (derivative ? drawn : sums).to_doubles());
    }
}

TEST_CASE("vulkan: a feed-forward layer takes two dispatches, and five back") {
  const auto device = vulkan_test_device();
  if (!device) return;
  for (const UnaryOp activation : {UnaryOp::relu, UnaryOp::gelu}) {
    const auto leaf = [&](const Shape& shape, std::uint32_t stream) {
      return parameter(drawn_on(*device, shape, DType::f32, stream));
    };
    const std::vector<Tensor> leaves{leaf({40, 16}, 1), leaf({48, 16}, 2), leaf({48}, 3), leaf({16, 48}, 4),
                                     leaf({16}, 5)};
    const Tensor start = drawn_on(*device, {40, 16}, DType::f32, 6);
    const auto forward = [&] {
      return feed_forward(leaves[0], {leaves[1], leaves[2]}, activation, {leaves[3], leaves[4]});
    };
    std::int64_t before = device_counters(*device).dispatches;
    const Tensor y = forward();
    CHECK(device_counters(*device).dispatches - before == 2);
    before = device_counters(*device).dispatches;
    backward(y, start);
    // The gradient that the test gives is copied, since it does not belong to the graph alone.
    CHECK(device_counters(*device).dispatches - before <= 5);
    std::vector<std::vector<double>> found{y.to_doubles()};
    for (const Tensor& each : leaves) found.push_back(gradient(each).to_doubles());
    for (const Tensor& each : leaves) zero_gradient(each);
    const ComposeOnly compose_only;
    const Tensor composed = forward();
    backward(composed, start);
    CHECK(worst_error(found[0], composed.to_doubles()) < 1e-5);
    for (std::size_t i = 0; i < leaves.size(); ++i)
      CHECK(worst_error(found[i + 1], gradient(leaves[i]).to_doubles()) < 1e-5);
  }
}
