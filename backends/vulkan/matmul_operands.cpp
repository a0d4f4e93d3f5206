#include "heed/backends/vulkan/matmul_operands.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/shader_flags.h"
#include "heed/base/error.h"

namespace heed::vulkan {
namespace {

/// A batch axis with the operands' strides along it.
struct BatchAxis {
  std::int64_t extent;
  std::array<std::int64_t, 3> strides;  // of a, b and out
  std::int64_t a() const { return strides[0]; }
  std::int64_t b() const { return strides[1]; }
  std::int64_t out() const { return strides[2]; }
};

/// The batch axes from the innermost to the outermost, without those of extent 1.
std::vector<BatchAxis> batch_axes(const Tensor& a, const Tensor& b, const Tensor& out) {
  std::vector<BatchAxis> axes;
  for (int axis = out.rank() - 3; axis >= 0; --axis)
    if (out.size(axis) != 1)
      axes.push_back({out.size(axis), {a.stride(axis), b.stride(axis), out.stride(axis)}});
  return axes;
}

/// A product whose batch axes are still a list.
struct Batched {
  MatrixProduct product;  // of rank 2
  std::vector<BatchAxis> axes;
};

/// If the rows of `a` and `out` continue evenly into the next item and b is the same, the items become one
/// longer matrix.
void merge_into_rows(Batched& batched) {
  MatrixProduct& p = batched.product;
  std::int64_t rows = p.out.size(0), a_stride = p.a.stride(0), out_stride = p.out.stride(0);
  const std::int64_t k = p.a.size(1), n = p.out.size(1);
  if (k > 1 && p.a.stride(1) != 1) return;
  std::size_t merged = 0;
  for (const BatchAxis& axis : batched.axes) {
    if (axis.b() != 0) break;
    if (rows == 1) {
      if (axis.a() < k || axis.out() < n) break;
      a_stride = axis.a();
      out_stride = axis.out();
    } else if (axis.a() != rows * a_stride || axis.out() != rows * out_stride) {
      break;
    }
    rows *= axis.extent;
    ++merged;
  }
  if (merged == 0) return;
  p.a = p.a.view({rows, k}, {a_stride, 1}, p.a.offset());
  p.out = p.out.view({rows, n}, {out_stride, 1}, p.out.offset());
  batched.axes.erase(batched.axes.begin(), batched.axes.begin() + static_cast<std::ptrdiff_t>(merged));
}

void merge_axes(std::vector<BatchAxis>& axes) {
  std::vector<BatchAxis> merged;
  for (const BatchAxis& axis : axes)
    if (!merged.empty() && can_merge_axes(axis.strides, merged.back().strides, merged.back().extent))
      merged.back().extent *= axis.extent;
    else
      merged.push_back(axis);
  axes = merged;
}

/// The matrix of rank 2 with two batch axes in front.
Tensor with_batch(const Tensor& matrix, std::int64_t outer, std::int64_t outer_stride, std::int64_t inner,
                  std::int64_t inner_stride) {
  return matrix.view({outer, inner, matrix.size(0), matrix.size(1)},
                     {outer_stride, inner_stride, matrix.stride(0), matrix.stride(1)}, matrix.offset());
}

Tensor moved(const Tensor& matrix, std::int64_t elements) {
  return matrix.view(matrix.shape(), matrix.strides(), matrix.offset() + elements);
}

void visit_batch(const Batched& batched, const std::function<void(const MatrixProduct&)>& visit) {
  const MatrixProduct& p = batched.product;
  if (batched.axes.size() > 2) {
    Batched item = batched;
    const BatchAxis outermost = batched.axes.back();
    item.axes.pop_back();
    for (std::int64_t i = 0; i < outermost.extent; ++i) {
      item.product.a = moved(p.a, i * outermost.a());
      item.product.b = moved(p.b, i * outermost.b());
      item.product.out = moved(p.out, i * outermost.out());
      visit_batch(item, visit);
    }
    return;
  }
  const BatchAxis none{1, {}};
  const BatchAxis inner = batched.axes.empty() ? none : batched.axes[0];
  const BatchAxis outer = batched.axes.size() < 2 ? none : batched.axes[1];
  visit({with_batch(p.a, outer.extent, outer.a(), inner.extent, inner.a()),
         with_batch(p.b, outer.extent, outer.b(), inner.extent, inner.b()), p.bias,
         with_batch(p.out, outer.extent, outer.out(), inner.extent, inner.out()), p.accumulate});
}

Tensor last_two_axes(const Tensor& tensor) {
  return tensor.view({tensor.size(-2), tensor.size(-1)}, {tensor.stride(-2), tensor.stride(-1)},
                     tensor.offset());
}

/// The index of a product's axis in each operand; -1: the operand does not have it.
struct OperandAxes {
  int a, b, out;
};
OperandAxes operand_axes(ProductAxis axis) {
  constexpr OperandAxes all[] = {{0, 0, 0}, {1, 1, 1}, {2, -1, 2}, {-1, 3, 3}, {3, 2, -1}};
  return all[static_cast<std::size_t>(axis)];
}

/// The axis along which a view spans the most memory.
int longest_axis(const Tensor& tensor) {
  int longest = 0;
  const auto reach = [&](int axis) { return (tensor.size(axis) - 1) * tensor.stride(axis); };
  for (int axis = 1; axis < tensor.rank(); ++axis)
    if (reach(axis) > reach(longest)) longest = axis;
  return longest;
}

}  // namespace

std::uint32_t Activated::flags() const {
  if (!op) return 0;
  const auto line = std::ranges::find(activation_ops, *op) - std::begin(activation_ops);
  const std::uint32_t use = saved.defined() ? derivative_bit : bit_if(sums.defined(), keeps_sums_bit);
  return use | static_cast<std::uint32_t>(line + 1) << activation_shift;
}

double MatrixProduct::flops() const {
  return 2.0 * static_cast<double>(out.count()) * static_cast<double>(k());
}

double MatrixProduct::bytes() const {
  const auto inputs = static_cast<double>(a.count() + b.count()) * static_cast<double>(size_of(a.dtype()));
  const auto outputs = static_cast<double>(out.count()) * static_cast<double>(size_of(out.dtype()));
  const int times = 1 + (accumulate ? 1 : 0) + activated.beside();
  return inputs + outputs * times;
}

MatrixLayout::MatrixLayout(const Tensor& matrix) {
  const std::int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  by_rows = is_stored_by_rows(matrix);
  const std::int64_t lines = by_rows ? rows : columns;
  leading = lines <= 1 ? 0 : by_rows ? matrix.stride(-2) : matrix.stride(-1);
}

void for_each_product(const Tensor& a, const Tensor& b, const Tensor& bias, bool accumulate,
                      const Tensor& out, const std::function<void(const MatrixProduct&)>& visit) {
  Batched batched{{last_two_axes(a), last_two_axes(b), bias, last_two_axes(out), accumulate},
                  batch_axes(a, b, out)};
  merge_into_rows(batched);
  merge_axes(batched.axes);
  visit_batch(batched, visit);
}

Halves halve(const MatrixProduct& product, ProductAxis axis) {
  const OperandAxes at = operand_axes(axis);
  const std::int64_t extent = at.a >= 0 ? product.a.size(at.a) : product.b.size(at.b);
  std::int64_t middle = (extent + 1) / 2;
  // Cuts at a multiple of 128, so that tiles stay whole, or of eight, so that lines still begin at one.
  for (const std::int64_t step : {128, 8})
    if (extent >= 2 * step) {
      middle = (middle + step - 1) / step * step;
      break;
    }
  const auto half = [&](Part part) {
    MatrixProduct p = product;
    const auto narrow = [&](Tensor& x, int axis_of_x) {
      if (axis_of_x >= 0 && x.defined()) x = narrowed(x, axis_of_x, part);
    };
    narrow(p.a, at.a);
    narrow(p.b, at.b);
    for (Tensor* x : {&p.out, &p.activated.sums, &p.activated.saved}) narrow(*x, at.out);
    narrow(p.bias, axis == ProductAxis::n ? 0 : -1);
    return p;
  };
  Halves halves{half({0, middle}), half({middle, extent - middle})};
  if (axis == ProductAxis::k) {
    halves.first.activated = {};
    halves.second.bias = Tensor();
    halves.second.accumulate = true;
  }
  return halves;
}

std::optional<ProductAxis> axis_to_halve(const Gpu& gpu, const MatrixProduct& product) {
  const auto too_large = [&](const Tensor& tensor) {
    return tensor.count() > 0 && !range_holds(gpu, spanned_elements(tensor), tensor.dtype());
  };
  using enum ProductAxis;
  constexpr std::array of_a{outer, inner, m, k}, of_b{outer, inner, k, n}, of_out{outer, inner, m, n};
  const auto longest = [&](const Tensor& tensor, const std::array<ProductAxis, 4>& axes) {
    const int axis = longest_axis(tensor);
    check(tensor.size(axis) > 1, "matmul: one element needs more than ", most_bytes(gpu), " bytes");
    return axes[static_cast<std::size_t>(axis)];
  };
  if (too_large(product.out)) return longest(product.out, of_out);
  if (too_large(product.a)) return longest(product.a, of_a);
  if (too_large(product.b)) return longest(product.b, of_b);
  return std::nullopt;
}

/// `vector`: how many elements a kernel reads or writes at once where every line of every item begins at a
/// multiple of them.
static OperandPlace place_of(const Tensor& matrix, std::int64_t vector) {
  const MatrixLayout layout(matrix);
  const auto multiple = [&](std::int64_t x) { return x % vector == 0; };
  const auto items_begin_at_multiples = [&](int axis) {
    return matrix.size(axis) == 1 || multiple(matrix.stride(axis));
  };
  return {layout.by_rows, layout.leading, matrix.stride(0), matrix.stride(1),
          multiple(matrix.offset()) && multiple(layout.leading) && items_begin_at_multiples(0) &&
              items_begin_at_multiples(1)};
}

static std::string_view shader_module_name(TileKernel kernel, const TiledProduct& t) {
  std::string name = kernel == TileKernel::scalar        ? "matmul"
                     : kernel == TileKernel::cooperative ? "matmul_cooperative"
                                                         : "matmul_emulated";
  if (t.is_wide()) name += "_wide";
  return shader_name(name, t.product.a.dtype());
}

TiledProduct tiled(const MatrixProduct& product, TileKernel kernel, const Tensor& parts,
                   const Tensor& row_parts) {
  TiledProduct t;
  const std::int64_t vector = kernel == TileKernel::scalar ? 4 : 8;
  t.product = product;
  t.items = product.items();
  t.a_place = place_of(product.a, vector);
  t.b_place = place_of(product.b, vector);
  t.flops = product.flops();
  t.bytes = product.bytes();
  if (parts.defined()) {
    const Shape& strides = parts.strides();
    const Tensor first =
        parts.view(product.out.shape(), {strides[1], strides[2], strides[3], strides[4]}, parts.offset());
    t.product.bias = Tensor();
    t.product.accumulate = false;
    t.product.activated = {};
    t.product.row_sums = row_parts;
    t.out = parts;
    t.out_place = place_of(first, 4);
    t.out_part = strides[0];
    return t;
  }
  t.out = product.out;
  t.out_place = place_of(product.out, 4);
  for (const Tensor* beside : {&product.activated.sums, &product.activated.saved})
    if (beside->defined()) t.out_place.in_vectors = t.out_place.in_vectors && place_of(*beside, 4).in_vectors;
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

TiledProduct select_map(const TiledProduct& maps, std::size_t i) {
  TiledProduct one = maps;
  const auto share = 1 / static_cast<double>(maps.items);
  one.items = 1;
  one.flops *= share;
  one.bytes *= share;
  one.product.b = maps.map_b[i];
  if (!maps.map_bias.empty()) one.product.bias = maps.map_bias[i];
  one.out = maps.map_out[i];
  one.map_b = one.map_bias = one.map_out = {};
  return one;
}

void multiply_tiles(Gpu& gpu, TileKernel kernel, const TiledProduct& t, const MatmulPlan& plan) {
  const MatrixProduct& p = t.product;
  const TileShape& tile = plan.tile;
  const std::uint32_t flags =
      bit_if(t.a_place.by_rows, a_along_k_bit) | bit_if(!t.b_place.by_rows, b_along_k_bit) |
      bit_if(t.a_place.in_vectors, a_vectors_bit) | bit_if(t.b_place.in_vectors, b_vectors_bit) |
      bit_if(p.row_sums.defined(), row_sums_bit) | bit_if(!t.map_b.empty(), maps_bit) | p.activated.flags();
  const std::uint32_t finish = bit_if(p.bias.defined(), bias_bit) | bit_if(p.accumulate, accumulate_bit) |
                               bit_if(t.out_place.in_vectors, out_fours_bit);
  const Fragment fragment =
      kernel == TileKernel::emulated ? t.emulated : gpu.capabilities().matrices.of(p.a.dtype());
  Launch launch(gpu, shader_module_name(kernel, t),
                {tile.invocations, tile.rows, tile.columns, tile.depth, tile.own_rows, tile.own_columns,
                 plan.stages, flags, fragment.rows, fragment.columns, fragment.depth});
  std::array<std::uint64_t, 3 * most_maps> begins{};
  launch.read(p.a);
  if (t.map_b.empty()) {
    launch.read(p.b, p.bias);
    p.accumulate ? launch.update(t.out) : launch.write(t.out);
  } else {
    auto place = begins.begin();
    for (const std::vector<Tensor>* tensors : {&t.map_b, &t.map_bias, &t.map_out}) {
      if (tensors->empty()) {
        launch.read(Tensor());
      } else {
        const Window window = launch.index_window(*tensors);
        launch.bind(window, tensors == &t.map_out);
        std::ranges::copy(window.begins, place);
      }
      place += most_maps;
    }
  }
  launch.write(p.row_sums.defined() ? p.row_sums : t.out);
  p.activated.bind(launch, t.out);
  launch.push(p.m(), p.n(), p.k(), plan.part_depth);
  launch.push(t.a_place.leading, t.b_place.leading, t.out_place.leading, p.out.size(1));
  for (const OperandPlace* place : {&t.a_place, &t.b_place, &t.out_place})
    launch.push(place->outer, place->inner);
  launch.push(t.out_part, finish);
  for (const std::uint64_t begin : begins) launch.push(static_cast<std::int64_t>(begin));
  launch.work(t.flops, t.bytes);
  launch.groups(plan.tiles(p.m(), p.n()), plan.parts, t.items);
}

}  // namespace heed::vulkan
