// Linear maps in fewer dispatches: products that apply an activation or its derivative, maps of the same rows
// at once, and weight and bias gradients in one pass. Against the bits, or the numbers, of one after another.

#include "heed/autograd/graph.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/tests/vulkan_compare.h"

using vulkan::TileKernel::emulated;

namespace {

/// A map of `rows` rows from `inputs` to `outputs` columns.
struct LinearCase {
  std::int64_t rows, inputs, outputs;
  DType dtype = DType::f32;
};

std::ostream& operator<<(std::ostream& out, const LinearCase& c) {
  return out << c.rows << " x " << c.inputs << " -> " << c.outputs << ' ' << name_of(c.dtype);
}

constexpr double two_roundings_of_f16 = 0x1p-9;

/// The same bits; in f16 as near as they are where a driver spares itself the rounding of the sums.
void check_equal(const Tensor& found, const Tensor& expected) {
  const double allowed = found.dtype() == DType::f16 ? two_roundings_of_f16 : 0;
  CHECK(worst_error(found.to_doubles(), expected.to_doubles()) <= allowed);
}

/// The plan of the smallest tile of fragments, which holds a k of up to 64.
vulkan::MatmulPlan fragment_plan() {
  return {vulkan::fragment_tiles(16).tiles.back(), 1, 1, 64};
}

// --- activations

void check_activated(Device device, const LinearCase& c, UnaryOp activation) {
  CAPTURE_ALL(c, std::string(name_of(activation)));
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

VULKAN_TEST("vulkan: products apply activations and derivatives, ragged sizes, vectors, parts, half types") {
  for (const UnaryOp activation : activation_ops) check_activated(device, {29, 37, 45}, activation);
  for (const LinearCase& c : {LinearCase{64, 32, 32}, LinearCase{20, 1100, 1100}, LinearCase{1, 33, 70},
                              LinearCase{70, 1, 1}, LinearCase{0, 4, 3}, LinearCase{3, 0, 4}})
    check_activated(device, c, UnaryOp::gelu);
  for (const DType half : {DType::f16, DType::bf16})
    for (const LinearCase& c : {LinearCase{29, 37, 45, half}, LinearCase{40, 48, 64, half},
                                LinearCase{20, 1100, 1100, half}, LinearCase{1, 33, 70, half}})
      check_activated(device, c, UnaryOp::gelu_tanh);
}

VULKAN_TEST("vulkan: products apply activations within lowered limits") {
  SUBCASE("bindings") {
    const LoweredLimits lowered(device, [](vulkan::Limits& limits) { limits.max_range = 2048; });
    check_activated(device, {40, 37, 50}, UnaryOp::silu);
    check_activated(device, {3, 700, 4}, UnaryOp::relu);
  }
  SUBCASE("workgroups") {
    const LoweredLimits lowered(device, [](vulkan::Limits& limits) { limits.max_groups = 2; });
    check_activated(device, {100, 20, 40}, UnaryOp::gelu);
    check_activated(device, {20, 1100, 30}, UnaryOp::gelu);
  }
}

VULKAN_TEST("vulkan: the kernel of matrix hardware applies activations, emulated") {
  const std::int64_t m = 70, k = 45;
  for (const std::int64_t n : {72, 75})
    for (const bool derivative : {false, true}) {
      CAPTURE_ALL(n, derivative);
      const Tensor a = drawn_on(device, {1, 1, m, k}, DType::f16, 1),
                   b = drawn_on(device, {1, 1, k, n}, DType::f16, 2);
      const auto result = [&](bool activates) {
        const Tensor out = Tensor::empty({1, 1, m, n}, DType::f16, device);
        vulkan::MatrixProduct p{a, b, {}, out};
        const Tensor kept = drawn_on(device, {1, 1, m, n}, DType::f16, 3);
        if (activates && derivative) p.activated = {UnaryOp::gelu, {}, kept};
        if (activates && !derivative) p.activated = {UnaryOp::gelu, kept};
        vulkan::multiply_tiles(vulkan::gpu(device.index), emulated, vulkan::tiled(p, emulated, {}),
                               fragment_plan());
        return std::pair(out, kept);
      };
      const auto [sums, drawn] = result(false);
      const auto [found, kept] = result(true);
      const Tensor expected = Tensor::empty(sums.shape(), DType::f16, device);
      const Backend& backend = backend_of(device);
      derivative ? backend.unary_backward(UnaryOp::gelu, {}, drawn, sums, expected)
                 : backend.unary(UnaryOp::gelu, {}, sums, expected);
      check_equal(found, expected);
      CHECK(kept.to_doubles() == (derivative ? drawn : sums).to_doubles());
    }
}

// --- several maps of the same rows

namespace {

constexpr int one_by_one = -1;

struct MapsCase {
  std::int64_t rows, inputs;
  std::vector<std::int64_t> outputs;
  int dispatches;
  DType dtype = DType::f32;
  bool biased = true;
};

void check_maps(Device device, const MapsCase& c) {
  CAPTURE_ALL(c.rows, c.inputs, c.outputs.size(), c.outputs[0], c.dtype, c.biased);
  const Backend& backend = backend_of(device);
  const Tensor x = drawn_on(device, {c.rows, c.inputs}, c.dtype, 1);
  std::vector<Tensor> weights, biases, outs;
  std::uint32_t stream = 2;
  for (const std::int64_t width : c.outputs) {
    weights.push_back(drawn_on(device, {width, c.inputs}, c.dtype, stream++));
    biases.push_back(c.biased ? drawn_on(device, {width}, c.dtype, stream++) : Tensor());
    outs.push_back(empty_on(device, {c.rows, width}, c.dtype));
  }
  const auto all_maps = [&] { backend.linear_maps(x, weights, biases, outs); };
  all_maps();  // kernels of matrix hardware are tested before their first use
  const std::int64_t taken = dispatches_of(device, all_maps);
  std::int64_t alone = 0;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    CAPTURE(i);
    const Tensor expected = empty_on(device, outs[i].shape(), c.dtype);
    alone += dispatches_of(device,
                           [&] { backend.matmul(x, transpose(weights[i], 0, 1), biases[i], 0, expected); });
    CHECK(outs[i].to_doubles() == expected.to_doubles());
  }
  CHECK(taken == (c.dispatches == one_by_one ? alone : c.dispatches));
}

}  // namespace

VULKAN_TEST("vulkan: maps of the same rows are one dispatch of the same bits") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const bool biased : {false, true}) {
      check_maps(device, {29, 45, {37, 37, 37}, 1, dtype, biased});
      check_maps(device, {70, 40, {64, 64}, 1, dtype, biased});
    }
  check_maps(device, {20, 16, {32, 32, 32, 32, 32}, 2});
  // Of several widths, of a vector, with sums in parts, of nothing.
  check_maps(device, {29, 45, {37, 12, 12}, one_by_one});
  check_maps(device, {1, 45, {37, 37}, one_by_one});
  check_maps(device, {20, 1100, {30, 30}, one_by_one});
  check_maps(device, {0, 5, {3, 3}, 0});
  check_maps(device, {4, 0, {3, 3}, 1});
}

VULKAN_TEST("vulkan: maps of the same rows within lowered limits") {
  SUBCASE("bindings that hold each map, but not all") {
    const LoweredLimits lowered(device, [](vulkan::Limits& limits) { limits.max_range = 8192; });
    check_maps(device, {29, 45, {37, 37, 37}, one_by_one});
  }
  SUBCASE("bindings that hold none") {
    const LoweredLimits lowered(device, [](vulkan::Limits& limits) { limits.max_range = 4096; });
    check_maps(device, {29, 45, {37, 37}, one_by_one});
  }
  SUBCASE("workgroups") {
    const LoweredLimits lowered(device, [](vulkan::Limits& limits) { limits.max_groups = 2; });
    check_maps(device, {29, 45, {32, 32, 32}, one_by_one});
    check_maps(device, {29, 45, {32, 32}, 1});
  }
}

VULKAN_TEST("vulkan: the kernel of matrix hardware takes maps of the same rows, emulated") {
  const std::int64_t m = 70, n = 75, k = 45;
  std::vector<vulkan::MatrixProduct> maps;
  const Tensor a = drawn_on(device, {1, 1, m, k}, DType::bf16, 1);
  for (const std::uint32_t i : {2u, 3u, 4u})
    maps.push_back({a, drawn_on(device, {1, 1, k, n}, DType::bf16, i),
                    drawn_on(device, {n}, DType::bf16, 10 + i),
                    Tensor::empty({1, 1, m, n}, DType::bf16, device)});
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const vulkan::TiledProduct all = vulkan::tiled_maps(maps, emulated);
  REQUIRE(vulkan::fit_bindings(gpu, all));
  vulkan::multiply_tiles(gpu, emulated, all, fragment_plan());
  for (const vulkan::MatrixProduct& map : maps) {
    vulkan::MatrixProduct alone = map;
    alone.out = Tensor::empty({1, 1, m, n}, DType::bf16, device);
    vulkan::multiply_tiles(gpu, emulated, vulkan::tiled(alone, emulated, {}), fragment_plan());
    CHECK(map.out.to_doubles() == alone.out.to_doubles());
  }
}

// --- weight and bias gradients

namespace {

void check_linear_gradients(Device device, const LinearCase& c) {
  CAPTURE(c);
  const Tensor grad = drawn_on(device, {c.rows, c.outputs}, c.dtype, 1, 1),
               x = drawn_on(device, {c.rows, c.inputs}, c.dtype, 2, 1);
  const auto result = [&] {
    const Tensor dweight = empty_on(device, {c.outputs, c.inputs}, c.dtype),
                 dbias = empty_on(device, {c.outputs}, c.dtype);
    backend_of(device).linear_gradients(grad, x, dweight, dbias);
    return numbers_of({dweight, dbias});
  };
  const Numbers found = result();
  // On the CPU, from the same rounded numbers.
  const Tensor g = tensor_of<float>(grad.to_doubles(), grad.shape()),
               a = tensor_of<float>(x.to_doubles(), x.shape());
  const double allowed = c.dtype == DType::f32
                             ? 2e-6 * std::sqrt(std::max<double>(static_cast<double>(c.rows), 16))
                         : c.dtype == DType::f16 ? 1e-3
                                                 : 8e-3;
  check_near(found, numbers_of({matmul(transpose(g, 0, 1), a), sum(g, 0)}), allowed);
  CHECK(result() == found);
}

}  // namespace

VULKAN_TEST("vulkan: weight and bias gradients in one pass, ragged sizes, parts, half types") {
  for (const LinearCase& c :
       {LinearCase{29, 45, 37}, LinearCase{64, 32, 32}, LinearCase{1100, 30, 20}, LinearCase{5, 9, 1},
        LinearCase{5, 1, 9}, LinearCase{70, 3, 140}, LinearCase{0, 3, 4}, LinearCase{3, 0, 4}})
    check_linear_gradients(device, c);
  for (const DType half : {DType::f16, DType::bf16}) {
    check_linear_gradients(device, {29, 45, 37, half});
    check_linear_gradients(device, {1100, 40, 24, half});
  }
  const LoweredLimits limits(device, [](vulkan::Limits& lower) { lower.max_range = 2048; });
  check_linear_gradients(device, {60, 45, 37});
}

VULKAN_TEST("vulkan: row sums of the kernel of matrix hardware, emulated") {
  for (const bool along_k : {false, true}) {
    const std::int64_t m = 70, n = 72, k = 45;
    const Tensor a = drawn_on(device, along_k ? Shape{m, k} : Shape{k, m}, DType::f16, 1, 1),
                 b = drawn_on(device, {1, 1, k, n}, DType::f16, 2, 1);
    const Tensor out = Tensor::empty({1, 1, m, n}, DType::f16, device),
                 sums = Tensor::empty({m}, DType::f16, device);
    const Tensor a_view = a.view({1, 1, m, k}, {0, 0, along_k ? k : 1, along_k ? 1 : m}, a.offset());
    vulkan::multiply_tiles(vulkan::gpu(device.index), emulated,
                           vulkan::tiled({a_view, b, {}, out, false, sums}, emulated, {}), fragment_plan());
    const Tensor rounded = tensor_of<float>(a.to_doubles(), a.shape());
    CHECK(worst_error(sums.to_doubles(), sum(rounded, along_k ? 1 : 0).to_doubles()) < 2e-3);
  }
}

// --- how many dispatches they take

namespace {

/// Runs forward and back on leaves drawn in these shapes, and checks the dispatches and, against composed
/// ops, the numbers.
void check_dispatches(Device device, const std::vector<Shape>& shapes, const Shape& of_result,
                      const std::function<Tensor(const std::vector<Tensor>&)>& forward, int there,
                      int at_most_back) {
  std::vector<Tensor> leaves;
  for (const Shape& shape : shapes)
    leaves.push_back(
        parameter(drawn_on(device, shape, DType::f32, static_cast<std::uint32_t>(leaves.size() + 1))));
  const Tensor start = drawn_on(device, of_result, DType::f32, 9);
  const auto results = [&](const Tensor& y) {
    std::vector<Tensor> all{y};
    for (const Tensor& each : leaves) all.push_back(gradient(each));
    return numbers_of(all);
  };
  Tensor y;
  CHECK(dispatches_of(device, [&] { y = forward(leaves); }) == there);
  // The gradient that the test gives is copied, since it does not belong to the graph alone.
  CHECK(dispatches_of(device, [&] { backward(y, start); }) <= at_most_back);
  const Numbers found = results(y);
  for (const Tensor& each : leaves) zero_gradient(each);
  const ComposeOnly compose_only;
  const Tensor composed = forward(leaves);
  backward(composed, start);
  check_near(found, results(composed), 1e-5);
}

}  // namespace

VULKAN_TEST("vulkan: a linear map takes one dispatch, and two back") {
  check_dispatches(
      device, {{24, 16}, {24}, {40, 16}}, {40, 24},
      [](const std::vector<Tensor>& of) { return linear(of[2], of[0], of[1]); }, 1, 3);
}

VULKAN_TEST("vulkan: a feed-forward layer takes two dispatches, and five back") {
  for (const UnaryOp activation : {UnaryOp::relu, UnaryOp::gelu})
    check_dispatches(
        device, {{40, 16}, {48, 16}, {48}, {16, 48}, {16}}, {40, 16},
        [&](const std::vector<Tensor>& of) {
          return feed_forward(of[0], {of[1], of[2]}, activation, {of[3], of[4]});
        },
        2, 5);
}
