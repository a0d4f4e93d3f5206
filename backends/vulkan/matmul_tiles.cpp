#include "heed/backends/vulkan/matmul_tiles.h"

#include <algorithm>
#include <array>
#include <string>

#include "heed/backends/vulkan/launch.h"
#include "heed/backends/vulkan/shader_code.h"
#include "heed/core/error.h"

namespace heed::vulkan {
namespace {

OperandPlace place_of(const Tensor& matrix, std::int64_t vector) {
  const MatrixLayout layout(matrix);
  return {layout.by_rows, layout.leading, matrix.stride(0), matrix.stride(1),
          begins_at_multiples(matrix, layout, vector)};
}

std::string_view module_of(TileKernel kernel, const TiledProduct& product) {
  std::string name = kernel == TileKernel::scalar        ? "matmul"
                     : kernel == TileKernel::cooperative ? "matmul_cooperative"
                                                         : "matmul_emulated";
  if (product.wide) name += "_wide";
  name += '_';
  name += product.type;
  const ShaderCode* code = find_shader(name);
  check(code != nullptr, "vulkan: this build has no shader \"", name, "\"");
  return code->name;
}

std::uint32_t bit(bool set, std::uint32_t place) {
  return set ? 1u << place : 0u;
}

}  // namespace

TiledProduct tiled(const MatrixProduct& product, TileKernel kernel, const Tensor& parts,
                   const Tensor& row_parts) {
  TiledProduct t;
  const std::int64_t vector = kernel == TileKernel::scalar ? 4 : 8;
  t.m = product.m();
  t.n = product.n();
  t.k = product.k();
  t.items = product.items();
  t.inner = product.out.size(1);
  t.type = name_of(product.a.dtype());
  t.a = product.a;
  t.b = product.b;
  t.a_place = place_of(product.a, vector);
  t.b_place = place_of(product.b, vector);
  t.flops = product.flops();
  t.bytes = product.bytes();
  if (parts.defined()) {
    const Shape& strides = parts.strides();
    const Tensor first =
        parts.view(product.out.shape(), {strides[1], strides[2], strides[3], strides[4]}, parts.offset());
    t.out = parts;
    t.row_sums = row_parts;
    t.out_place = place_of(first, 4);
    t.out_part = strides[0];
    t.wide = product.a.dtype() != DType::f32;
  } else {
    t.bias = product.bias;
    t.out = product.out;
    t.row_sums = product.row_sums;
    t.out_place = place_of(product.out, 4);
    t.accumulate = product.accumulate;
    t.activated = product.activated;
    for (const Tensor* beside : {&t.activated.sums, &t.activated.saved})
      if (beside->defined())
        t.out_place.in_vectors = t.out_place.in_vectors && place_of(*beside, 4).in_vectors;
    t.wide = product.out.dtype() != product.a.dtype();
  }
  return t;
}

TiledProduct tiled_maps(std::span<const MatrixProduct> maps, TileKernel kernel) {
  TiledProduct all = tiled(maps[0], kernel, {});
  const Tensor& a = maps[0].a;
  const auto count = static_cast<double>(maps.size());
  all.items = static_cast<std::int64_t>(maps.size());
  all.flops *= count;
  all.bytes = count * all.bytes -
              (count - 1) * static_cast<double>(a.count()) * static_cast<double>(size_of(a.dtype()));
  for (const MatrixProduct& map : maps) {
    all.map_b.push_back(map.b);
    if (map.bias.defined()) all.map_bias.push_back(map.bias);
    all.map_out.push_back(map.out);
  }
  return all;
}

bool fit_bindings(const Gpu& gpu, const TiledProduct& maps) {
  return std::ranges::all_of(std::array{&maps.map_b, &maps.map_bias, &maps.map_out},
                             [&](const std::vector<Tensor>* tensors) { return fits_window(gpu, *tensors); });
}

TiledProduct one_of(const TiledProduct& maps, std::size_t i) {
  TiledProduct one = maps;
  const auto share = 1 / static_cast<double>(maps.items);
  one.items = 1;
  one.flops *= share;
  one.bytes *= share;
  one.b = maps.map_b[i];
  if (!maps.map_bias.empty()) one.bias = maps.map_bias[i];
  one.out = maps.map_out[i];
  one.map_b = one.map_bias = one.map_out = {};
  return one;
}

void bind_activated(Launch& launch, const Activated& activated, const Tensor& out) {
  launch.write(activated.sums.defined() ? activated.sums : out).read(activated.saved);
}

void multiply_tiles(Gpu& gpu, TileKernel kernel, const TiledProduct& p, const MatmulPlan& plan) {
  const TileShape& tile = plan.tile;
  // The flags that shaders/matmul_push.glsl, activation.glsl and matmul_elements.glsl name.
  const std::uint32_t flags = bit(p.a_place.by_rows, 0) | bit(!p.b_place.by_rows, 1) |
                              bit(p.a_place.in_vectors, 2) | bit(p.b_place.in_vectors, 3) |
                              bit(p.row_sums.defined(), 4) | p.activated.flags() | bit(!p.map_b.empty(), 7);
  const std::uint32_t finish =
      bit(p.bias.defined(), 0) | bit(p.accumulate, 1) | bit(p.out_place.in_vectors, 2);
  const Capabilities& can = gpu.capabilities();
  const Fragment fragment = kernel == TileKernel::emulated ? p.emulated
                            : p.type == "f16"              ? can.fragment
                                                           : can.bfloat16_fragment;
  Launch launch(gpu, module_of(kernel, p),
                {tile.invocations, tile.rows, tile.columns, tile.depth, tile.own_rows, tile.own_columns,
                 plan.stages, flags, fragment.rows, fragment.columns, fragment.depth});
  std::array<std::uint64_t, 3 * most_maps> begins{};
  if (p.map_b.empty()) {
    launch.read(p.a).read(p.b).read(p.bias);
    p.accumulate ? launch.update(p.out) : launch.write(p.out);
  } else {
    launch.read(p.a);
    std::size_t place = 0;
    for (const std::vector<Tensor>* tensors : {&p.map_b, &p.map_bias, &p.map_out}) {
      if (tensors->empty()) {
        launch.read(Tensor());
      } else {
        const Window window = launch.window_of(*tensors);
        launch.bind(window, tensors == &p.map_out);
        std::ranges::copy(window.begins, begins.begin() + static_cast<std::ptrdiff_t>(place));
      }
      place += most_maps;
    }
  }
  launch.write(p.row_sums.defined() ? p.row_sums : p.out);
  bind_activated(launch, p.activated, p.out);
  launch.push(p.m).push(p.n).push(p.k).push(plan.part_depth);
  launch.push(p.a_place.leading).push(p.b_place.leading).push(p.out_place.leading).push(p.inner);
  for (const OperandPlace* place : {&p.a_place, &p.b_place, &p.out_place})
    launch.push(place->outer).push(place->inner);
  launch.push(p.out_part).push(finish);
  for (const std::uint64_t begin : begins) launch.push(static_cast<std::int64_t>(begin));
  launch.work(p.flops, p.bytes);
  launch.groups(plan.tiles(p.m, p.n), plan.parts, p.items);
}

}  // namespace heed::vulkan
