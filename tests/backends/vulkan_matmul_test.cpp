#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/backends/vulkan/shader_code.h"
#include "heed/tests/vulkan_compare.h"

// Matrix products of the Vulkan backend against those of the CPU: all layouts, ragged sizes, batches, sums in
// parts, and lowered limits.

namespace heed {
namespace {

using test::LoweredLimits;
using test::numbers;
using test::tensor_of;

/// One product: the extents, and how the operands lie in memory.
struct Product {
  std::int64_t m, n, k;
  bool a_transposed = false, b_transposed = false, bias = false, accumulate = false;
  Shape batch{};
  std::int64_t gap = 0;                           ///< unused elements at the end of every line
  std::int64_t skip = 0;                          ///< elements before the first
  bool a_broadcast = false, b_broadcast = false;  ///< stride 0 along the batch
};

std::ostream& operator<<(std::ostream& out, const Product& p) {
  return out << p.m << 'x' << p.n << 'x' << p.k << (p.a_transposed ? " a'" : " a")
             << (p.b_transposed ? " b'" : " b") << (p.bias ? " bias" : "")
             << (p.accumulate ? " accumulate" : "") << " batch " << p.batch << " gap " << p.gap << " skip "
             << p.skip << (p.a_broadcast ? " a broadcast" : "") << (p.b_broadcast ? " b broadcast" : "");
}

/// A matrix view over `storage`, which grows to what the view needs.
struct View {
  Shape shape, strides;
  std::int64_t elements = 0;

  View(const Product& p, std::int64_t rows, std::int64_t columns, bool transposed, bool broadcast) {
    const std::int64_t line = (transposed ? rows : columns) + p.gap;
    const std::int64_t matrix = line * (transposed ? columns : rows);
    std::int64_t items = 1;
    std::vector<std::int64_t> batch_strides;
    for (int axis = p.batch.rank() - 1; axis >= 0; --axis) {
      batch_strides.insert(batch_strides.begin(), broadcast ? 0 : items * matrix);
      items *= p.batch[axis];
    }
    for (int axis = 0; axis < p.batch.rank(); ++axis) {
      shape.push_back(p.batch[axis]);
      strides.push_back(batch_strides[static_cast<std::size_t>(axis)]);
    }
    for (const std::int64_t extent : {rows, columns}) shape.push_back(extent);
    for (const std::int64_t stride : {transposed ? 1 : line, transposed ? line : 1})
      strides.push_back(stride);
    elements = p.skip + (broadcast ? 1 : items) * matrix;
  }
  Tensor of(const Tensor& flat, std::int64_t skip) const { return flat.view(shape, strides, skip); }
};

/// The whole memory behind `out` after the product, gaps included, on a device.
Doubles result_of(const Product& p, Device device) {
  const View a(p, p.m, p.k, p.a_transposed, p.a_broadcast), b(p, p.k, p.n, p.b_transposed, p.b_broadcast),
      out(p, p.m, p.n, false, false);
  const auto random = [&](std::int64_t count, std::uint32_t stream) {
    return tensor_of<float>(numbers(count, -1, 1, stream), {count}).to(device);
  };
  const Tensor a_flat = random(a.elements, 1), b_flat = random(b.elements, 2),
               out_flat = random(out.elements, 3);
  const Tensor bias = p.bias ? random(p.n, 4) : Tensor();
  backend_of(device).matmul(a.of(a_flat, p.skip), b.of(b_flat, p.skip), bias, p.accumulate ? 1 : 0,
                            out.of(out_flat, p.skip));
  return out_flat.to_doubles();
}

void check_product(const Product& p, Device device) {
  // Errors of f32 sums grow with the root of their length.
  const double allowed = 2e-6 * std::sqrt(static_cast<double>(std::max<std::int64_t>(p.k, 16)));
  const double error = test::worst_error(result_of(p, device), result_of(p, {}));
  CHECK_MESSAGE(error <= allowed, p, ": error ", error);
}

}  // namespace

VULKAN_TEST("vulkan matmul: every layout, ragged sizes") {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const auto& [m, n, k] :
           {std::array{32, 32, 16}, {37, 45, 29}, {3, 5, 2}, {64, 70, 1}, {2, 33, 66}}) {
        Product p{m, n, k, a_transposed, b_transposed};
        check_product(p, device);
        p.bias = p.accumulate = true;
        p.gap = 4;  // reads in fours stay possible where the extents allow
        check_product(p, device);
        p.gap = 3;
        p.skip = 5;
        check_product(p, device);
      }
    }
  }
}

VULKAN_TEST("vulkan matmul: large tiles") {
  for (const bool transposed : {false, true}) {
    check_product({140, 260, 70, transposed, !transposed, true, false, {3}}, device);
    check_product({64, 64, 40, transposed, transposed, false, true, {40}}, device);
  }
}

VULKAN_TEST("vulkan matmul: products with vectors") {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const auto& [m, n] : {std::array{1, 75}, {75, 1}, {1, 1}}) {
        Product p{m, n, 300, a_transposed, b_transposed, true, true};
        check_product(p, device);
        p.batch = {3, 2};
        p.gap = 1;
        p.skip = 2;
        check_product(p, device);
      }
    }
  }
}

VULKAN_TEST("vulkan matmul: batches, broadcast and not") {
  for (const Shape& batch : {Shape{5}, Shape{2, 3}, Shape{2, 1, 3, 2}}) {
    Product p{9, 10, 11, false, true, true};
    p.batch = batch;
    check_product(p, device);
    p.b_broadcast = true;
    check_product(p, device);
    p.a_transposed = true;
    check_product(p, device);
    p.b_broadcast = false;
    p.a_broadcast = true;
    check_product(p, device);
  }
  // Rows that go on evenly into the next item of the batch: [batch, 1, k] and [batch, m, k].
  for (const std::int64_t m : {1, 4})
    check_product({m, 20, 16, false, false, true, true, {6}, 0, 0, false, true}, device);
}

VULKAN_TEST("vulkan matmul: batch axes that no single stride spans") {
  // [batch, length, heads, width] seen as [batch, heads, length, width], the way attention does.
  const auto scores = [](Device where) {
    const Shape shape{2, 7, 3, 8};
    const Tensor x = tensor_of<float>(numbers(shape.count(), -1, 1, 1), shape).to(where);
    const Tensor heads = x.view({2, 3, 7, 8}, {7 * 24, 8, 24, 1}, 0),
                 keys = x.view({2, 3, 8, 7}, {7 * 24, 8, 1, 24}, 0);
    const Tensor out = Tensor::empty({2, 3, 7, 7}, DType::f32, where);
    backend_of(where).matmul(heads, keys, {}, 0, out);
    // Back into [batch, length, heads, width], through an output with gaps.
    const Tensor mixed = Tensor::zeros(shape).to(where);
    backend_of(where).matmul(out, heads, {}, 0, mixed.view({2, 3, 7, 8}, {7 * 24, 8, 24, 1}, 0));
    return mixed.to_doubles();
  };
  CHECK(test::worst_error(scores(device), scores({})) < 1e-5);
}

VULKAN_TEST("vulkan matmul: sums over k in parts") {
  REQUIRE(vulkan::plan_matmul(vulkan::scalar_tiles(), vulkan::gpu(device.index).limits(), 1, 20, 30, 1100,
                              1 << 20)
              .parts > 1);
  for (const bool accumulate : {false, true}) {
    check_product({20, 30, 1100, true, false, !accumulate, accumulate}, device);
    check_product({20, 30, 1101, true, false, !accumulate, accumulate, {2, 2}, 3}, device);
  }
}

VULKAN_TEST("vulkan matmul: nothing to sum, nothing to write") {
  for (const std::int64_t m : {1, 4}) {
    check_product({m, 5, 0, false, false, true, true}, device);
    check_product({m, 5, 0}, device);
  }
  check_product({0, 5, 3}, device);
  check_product({4, 5, 3, false, false, false, false, {0}}, device);
}

VULKAN_TEST("vulkan matmul: the same bits every time") {
  const Product p{70, 66, 600, true, false, true, true};
  CHECK(result_of(p, device) == result_of(p, device));
}

VULKAN_TEST("vulkan matmul: within lowered limits") {
  SUBCASE("bindings") {
    const LoweredLimits lowered(device, [](vulkan::Limits& limits) { limits.max_range = 2048; });
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true})
        check_product({40, 37, 50, a_transposed, b_transposed, true, false, {2, 2}}, device);
    check_product({1, 50, 60, false, false, true, true}, device);
    check_product({3, 4, 700, false, true, true, true}, device);
  }
  SUBCASE("workgroups") {
    const LoweredLimits lowered(device, [](vulkan::Limits& limits) { limits.max_groups = 2; });
    check_product({100, 40, 20, false, false, true, false, {5}}, device);
    check_product({1, 100, 20, false, true, true, true}, device);
    check_product({20, 30, 1100, true, false, true, true}, device);
  }
  SUBCASE("invocations and shared memory") {
    const LoweredLimits lowered(device, [](vulkan::Limits& limits) {
      limits.max_invocations = 64;
      limits.shared_bytes = 8192;
    });
    check_product({140, 140, 40, false, false, true}, device);
    check_product({1, 100, 70, false, false, true}, device);
  }
}

TEST_CASE("vulkan matmul plan: what the shapes of training get") {
  const vulkan::Limits gpu{4294967295, 4294967295, 65535, 1024, 49152, 16};
  const auto plan = [&](std::int64_t items, std::int64_t m, std::int64_t n, std::int64_t k) {
    return vulkan::plan_matmul(vulkan::scalar_tiles(), gpu, items, m, n, k, 256 << 20);
  };
  // Large products: the largest tile, one part, two stages.
  for (const std::int64_t size : {2048, 8192}) {
    const auto p = plan(1, size, size, size);
    CHECK(p.tile.rows == 128);
    CHECK(p.tile.columns == 128);
    CHECK(p.parts == 1);
    CHECK(p.stages == 2);
  }
  // A weight gradient with few outputs and long sums: parts, and enough workgroups to fill the device.
  const auto gradient = plan(1, 768, 768, 8192);
  CHECK(gradient.parts > 1);
  CHECK(gradient.parts * gradient.tiles(768, 768) >= 100);
  CHECK(gradient.parts * gradient.part_depth >= 8192);
  CHECK((gradient.parts - 1) * gradient.part_depth < 8192);
  // Small ones: the smallest tile.
  CHECK(plan(1, 30, 30, 30).tile.rows == 32);
  // On matrix hardware the fastest tile of the GPU whose figures are assumed; others once they were measured,
  // where they fit.
  vulkan::TileSet fragments = vulkan::fragment_tiles(32);
  const auto fragment_plan = [&](std::uint32_t shared_bytes) {
    vulkan::Limits limits = gpu;
    limits.shared_bytes = shared_bytes;
    return vulkan::plan_matmul(fragments, limits, 1, 8192, 8192, 8192, 256 << 20);
  };
  CHECK(name_of(fragment_plan(65536).tile) == "128 x 256 x 32, 64 x 64 each");
  for (vulkan::TileShape& tile : fragments.tiles)
    if (tile.columns == 256) tile.efficiency = tile.depth == 64 ? 3 : 2;
  CHECK(name_of(fragment_plan(65536).tile) == "128 x 256 x 64, 64 x 64 each");
  CHECK(name_of(fragment_plan(49152).tile) == "128 x 256 x 32, 64 x 64 each");
  CHECK(name_of(fragment_plan(32768).tile) == "128 x 128 x 32, 64 x 32 each");
  // The scratch memory bounds the parts.
  CHECK(vulkan::plan_matmul(vulkan::scalar_tiles(), gpu, 1, 768, 768, 8192, 768 * 768 * 4).parts == 1);
  vulkan::Limits none = gpu;
  none.shared_bytes = 1024;
  CHECK_THROWS_AS(vulkan::plan_matmul(vulkan::scalar_tiles(), none, 1, 64, 64, 64, 1 << 20), Error);
}

namespace {

/// Halves are tested with numbers of which f32 holds every sum exactly.
Tensor exact_tensor(std::int64_t count, DType dtype, Device device) {
  const Device any = vulkan_test_device().value();
  const Tensor halves = vulkan::exact_halves({count}, is_half(dtype) ? dtype : DType::bf16, any);
  if (is_half(dtype)) return halves;
  return Tensor::from(test::converted(halves, DType::f32).to_vector<float>(), {count}, device);
}

/// The product of exact numbers with factors of one type and an output of another, through the backend's
/// matmul, or through one kernel and one tile.
Doubles exact_product(const Product& p, DType in, DType out_type, Device device,
                      const std::optional<vulkan::TileKernel>& kernel = {},
                      const vulkan::TileShape& tile = {}, std::int64_t parts = 1) {
  const View a(p, p.m, p.k, p.a_transposed, p.a_broadcast), b(p, p.k, p.n, p.b_transposed, p.b_broadcast),
      out(p, p.m, p.n, false, false);
  const Tensor a_flat = exact_tensor(a.elements, in, device), b_flat = exact_tensor(b.elements, in, device),
               out_flat = exact_tensor(out.elements, out_type, device);
  const Tensor bias = p.bias ? exact_tensor(p.n, out_type, device) : Tensor();
  const Tensor a_view = a.of(a_flat, p.skip), b_view = b.of(b_flat, p.skip),
               out_view = out.of(out_flat, p.skip);
  const std::uint32_t stages = 2 * tile.stage_bytes + tile.other_bytes <= 32768 ? 2 : 1;
  if (!kernel) {
    backend_of(device).matmul(a_view, b_view, bias, p.accumulate ? 1 : 0, out_view);
    return out_flat.to_doubles();
  }
  Doubles total;
  vulkan::for_each_product(
      a_view, b_view, bias, p.accumulate, out_view, [&](const vulkan::MatrixProduct& each) {
        const std::int64_t depth = (each.k() + parts * tile.depth - 1) / (parts * tile.depth) * tile.depth;
        const Shape of_parts{parts, each.out.size(0), each.out.size(1), p.m, p.n};
        const Tensor sums = parts == 1 ? Tensor() : Tensor::empty(of_parts, DType::f32, device);
        vulkan::multiply_tiles(vulkan::gpu(device.index), *kernel, vulkan::tiled(each, *kernel, sums),
                               {tile, stages, parts, depth});
        if (!sums.defined()) return;
        const Doubles values = sums.to_doubles();
        total.resize(values.size() / static_cast<std::size_t>(parts));
        for (std::size_t i = 0; i < values.size(); ++i) total[i % total.size()] += values[i];
      });
  return parts == 1 ? out_flat.to_doubles() : total;
}

}  // namespace

VULKAN_TEST("vulkan matmul: factors of half precision") {
  for (const DType half : {DType::f16, DType::bf16}) {
    CAPTURE(half);
    for (const Product& p :
         {Product{37, 45, 29, true, false, true, true}, Product{24, 40, 32, false, true},
          Product{1, 75, 64, false, true, true}, Product{20, 24, 520, true, false, false, true}}) {
      CAPTURE(p);
      // In f32 everything here is exact, on any device and in any order.
      const auto expected = exact_product(p, DType::f32, DType::f32, {});
      CHECK(exact_product(p, half, DType::f32, device) == expected);
      // Half outputs: the exact result rounded once. Compared where it needs no rounding: 8 bits suffice for
      // a sum of two products.
      Product small = p;
      small.k = 2;
      small.accumulate = small.bias = false;
      CHECK(exact_product(small, half, half, device) == exact_product(small, DType::f32, DType::f32, {}));
    }
  }
}

VULKAN_TEST("vulkan matmul: the kernel for matrix hardware, emulated") {
  using enum vulkan::TileKernel;
  const vulkan::TileSet tiles = vulkan::fragment_tiles(16);
  const vulkan::TileShape small = tiles.tiles.back(), large = tiles.tiles.front();
  const auto check = [&](const Product& p, DType half, const vulkan::TileShape& tile,
                         std::int64_t parts = 1) {
    CHECK_MESSAGE(exact_product(p, half, DType::f32, device, emulated, tile, parts) ==
                      exact_product(p, DType::f32, DType::f32, {}),
                  half, ' ', p);
  };
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true})
      check({37, 45, 29, a_transposed, b_transposed, true, true, {2}, 3, 5}, DType::f16, small);
  check({70, 72, 40}, DType::f16, small);
  check({70, 72, 40, true, true, true}, DType::bf16, small);
  check({130, 136, 48, false, true, true}, DType::f16, large);
  check({20, 24, 150, true, true}, DType::bf16, small, 3);
  // One has a depth of 64, which this device's limits may not hold.
  for (const vulkan::TileShape& tile : tiles.tiles)
    if (vulkan::fits(tile, vulkan::gpu(device.index).limits()))
      check({131, 140, 77, true, false, true}, DType::f16, tile);
  const Product narrow{20, 24, 18, true, true, true, true};
  CHECK(exact_product(narrow, DType::bf16, DType::bf16, device, emulated, small) ==
        exact_product(narrow, DType::bf16, DType::bf16, device, scalar, vulkan::scalar_tiles().tiles.back()));
}

VULKAN_TEST("vulkan: the kernel of matrix hardware is tested before it is used") {
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const vulkan::TileSet tiles = vulkan::fragment_tiles(16);
  const auto problem = [&](DType dtype, const vulkan::TileShape& tile, vulkan::Fragment fragment) {
    return vulkan::problem_of_products(gpu, vulkan::TileKernel::emulated, dtype, tile, fragment);
  };
  const vulkan::TileShape &large = tiles.tiles.front(), &small = tiles.tiles.back();
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CHECK(problem(dtype, large, {16, 16, 16}) == "");
    for (const vulkan::Fragment fragment : {vulkan::Fragment{8, 16, 16}, {16, 8, 16}, {8, 8, 8}})
      CHECK(problem(dtype, small, fragment) == "");
  }
  // The kernel under test comes after its outputs were cleared.
  const test::LeftOut third(gpu, 3);
  const std::string said = problem(DType::f16, small, {16, 16, 16});
  CHECK(said.find(gpu.name()) != said.npos);
  CHECK(said.find("in f16 differ") != said.npos);
}

TEST_CASE("vulkan: the shape of fragments comes from the device's list") {
  // A driver that lists one shape of f16, and perhaps a second one.
  struct Shape {  // VkCooperativeMatrixPropertiesKHR
    VkStructureType type;
    void* next;
    std::uint32_t m, n, k;
    std::int32_t a, b, c, result;
    VkBool32 saturating;
    std::int32_t scope;
  };
  static std::vector<std::array<std::uint32_t, 3>> listed;
  static constexpr auto list = [](VkPhysicalDevice, std::uint32_t* count, Shape* shapes) {
    if (!shapes) *count = static_cast<std::uint32_t>(listed.size());
    for (std::uint32_t i = 0; shapes && i < *count; ++i) {
      shapes[i].m = listed[i][0];
      shapes[i].n = listed[i][1];
      shapes[i].k = listed[i][2];
      shapes[i].a = shapes[i].b = 0;
      shapes[i].c = shapes[i].result = 1;
      shapes[i].scope = 3;
    }
    return VK_SUCCESS;
  };
  vulkan::InstanceApi api;
  api.GetInstanceProcAddr = [](VkInstance, const char*) {
    return reinterpret_cast<PFN_vkVoidFunction>(+list);
  };
  api.GetPhysicalDeviceFeatures2 = [](VkPhysicalDevice, VkPhysicalDeviceFeatures2* features) {
    auto* cooperative = static_cast<vulkan::CooperativeMatrixFeatures*>(features->pNext);
    cooperative->cooperativeMatrix = VK_TRUE;
    auto* v12 = static_cast<VkPhysicalDeviceVulkan12Features*>(cooperative->pNext);
    v12->vulkanMemoryModel = v12->vulkanMemoryModelDeviceScope = v12->shaderFloat16 = VK_TRUE;
  };
  VkExtensionProperties extension{};
  std::strcpy(extension.extensionName, vulkan::cooperative_matrix_extension);
  const auto found = [&](std::vector<std::array<std::uint32_t, 3>> shapes) {
    listed = std::move(shapes);
    return vulkan::cooperative_matrices(api, VK_NULL_HANDLE, {extension});
  };
  using vulkan::Fragment;
  CHECK(found({{16, 8, 16}, {8, 16, 16}, {16, 16, 16}}).f16 == Fragment{16, 16, 16});
  CHECK(found({{16, 8, 16}, {8, 16, 16}, {16, 8, 8}}).f16 == Fragment{8, 16, 16});
  CHECK(found({{8, 8, 8}, {64, 64, 16}}).f16 == Fragment{8, 8, 8});
  CHECK(found({{8, 16, 16}}).bf16 == Fragment());
  const vulkan::CooperativeMatrices none = found({{8, 8, 4}});
  CHECK(none.f16 == Fragment());
  CHECK(none.missing.find("8 or 16") != none.missing.npos);
}

VULKAN_TEST("vulkan: kernels of matrix hardware ask for full subgroups of the device's size, and no others") {
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  static std::optional<std::uint32_t> asked;  // subgroup size
  const auto asked_by = [&](const char* shader) {
    vulkan::DeviceApi& api = gpu.replaceable_api();
    const vulkan::DeviceApi real = api;
    // The software device knows no such module: nothing reaches it.
    api.CreateShaderModule = [](auto, auto, auto, VkShaderModule*) { return VK_SUCCESS; };
    api.DestroyShaderModule = [](auto...) {};
    api.CreateComputePipelines = [](VkDevice, VkPipelineCache, std::uint32_t,
                                    const VkComputePipelineCreateInfo* info, const VkAllocationCallbacks*,
                                    VkPipeline*) {
      using Size = VkPipelineShaderStageRequiredSubgroupSizeCreateInfo;
      asked.reset();
      if (info->stage.pNext &&
          info->stage.flags == VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT)
        asked = static_cast<const Size*>(info->stage.pNext)->requiredSubgroupSize;
      return VK_ERROR_INITIALIZATION_FAILED;
    };
    const std::uint32_t unused_elsewhere[] = {1, 2, 3};
    CHECK_THROWS_AS(gpu.pipelines().get(shader, unused_elsewhere, 3), Error);
    api = real;
    return asked;
  };
  const bool can = gpu.capabilities().subgroup_size_control;
  const auto expected = can ? std::optional(gpu.capabilities().subgroup_size) : std::nullopt;
  for (const char* shader :
       {"matmul_cooperative_f16", "attention_dkey_cooperative_bf16", "softmax_subgroups_f32"}) {
    CAPTURE(shader);
    if (vulkan::find_shader(shader)) CHECK(asked_by(shader) == expected);
  }
  CHECK(!asked_by("matmul_emulated_f16"));
  CHECK(!asked_by("softmax_f32"));
}

VULKAN_TEST("vulkan: matrix hardware is used after a test, or a reason is given") {
  const vulkan::MatrixHardware& hardware = vulkan::matrix_hardware(device);
  CHECK(hardware.f16 == hardware.f16_problem.empty());
  CHECK(hardware.bf16 == hardware.bf16_problem.empty());
  CHECK(!hardware.multiplies(DType::f32));
  CHECK(matrix_hardware_use(device).find("f16: ") == 0);
}

}  // namespace heed
