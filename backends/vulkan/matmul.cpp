#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/backends/vulkan/shader_flags.h"
#include "heed/backends/vulkan/tuning.h"

// Matrix products: shaders/matmul.comp computes them in tiles, shaders/matmul_vector.comp if an operand is a
// vector, and shaders/matmul_sum.comp adds up sums over k that were computed in parts. Products that exceed a
// limit of the device are halved.

namespace heed::vulkan {
namespace {

Launch& bind_out(Launch& launch, const MatrixProduct& p) {
  return p.accumulate ? launch.update(p.out) : launch.write(p.out);
}

/// Returns the flags of the terms that a shader adds to the sums.
std::uint32_t finish_bits(const MatrixProduct& p) {
  return bit_if(p.bias.defined(), bias_bit) | bit_if(p.accumulate, accumulate_bit);
}

/// Computes out = the sum of parts [parts, outer, inner, m, n] + bias + beta out, and the row sums
/// from [parts, m].
void add_parts(Gpu& gpu, const MatrixProduct& p, const Tensor& parts, const Tensor& row_parts) {
  constexpr std::uint32_t invocations = 128;
  Launch launch(gpu, shader_name("matmul_sum", p.out.dtype()), {invocations, p.activated.flags()});
  launch.read(parts, p.bias);
  bind_out(launch, p);
  launch.read(row_parts).write(row_parts.defined() ? p.row_sums : p.out);
  p.activated.bind(launch, p.out);
  launch.push(parts.size(0), p.out.count(), p.m(), p.n(), p.out.size(1));
  launch.push(MatrixLayout(p.out).leading, p.out.stride(0), p.out.stride(1), finish_bits(p));
  launch.push(row_parts.defined() ? p.m() : 0);
  const std::int64_t written = p.out.count() * (1 + p.activated.beside());
  const std::int64_t bytes = parts.count() * 4 + written * static_cast<std::int64_t>(size_of(p.out.dtype()));
  launch.work(0, static_cast<double>(bytes));
  launch.groups(std::min<std::int64_t>(ceil_div(p.out.count(), invocations), gpu.limits().max_groups));
}

/// Products of a vector (m or n is 1) and a matrix.
struct VectorProduct {
  const MatrixProduct& p;
  bool by_row = p.m() == 1;  // out is a row and x is a; else out is a column and x is b
  const Tensor& x = by_row ? p.a : p.b;
  const Tensor& matrix = by_row ? p.b : p.a;
  MatrixLayout layout{matrix};
  bool along_k = by_row != layout.by_rows;
  std::int64_t outputs = by_row ? p.n() : p.m();
  std::uint32_t invocations = 256;
  std::uint32_t columns = along_k ? 8 : outputs * p.items() < 8192 ? 16 : 64;

  std::int64_t groups() const { return ceil_div(outputs, columns); }
};

bool has_vector(const MatrixProduct& p) {
  return p.m() == 1 || p.n() == 1;
}

void multiply_vector(Gpu& gpu, const MatrixProduct& p) {
  const VectorProduct v{p};
  const std::uint32_t invocations = std::min(v.invocations, std::bit_floor(gpu.limits().max_invocations));
  // The wide module has factors of half precision and f32 outputs.
  const std::string_view base = p.a.dtype() == p.out.dtype() ? "matmul_vector" : "matmul_vector_wide";
  Launch launch(gpu, shader_name(base, p.a.dtype()),
                {invocations, std::min(v.columns, invocations), v.along_k ? 1u : 0u, p.activated.flags()});
  launch.read(v.x, v.matrix, p.bias);
  bind_out(launch, p);
  p.activated.bind(launch, p.out);
  launch.push(v.outputs, p.k());
  launch.push(v.by_row ? p.a.stride(3) : p.b.stride(2), v.layout.leading);
  launch.push(v.by_row ? std::int64_t{1} : p.out.stride(2), v.by_row ? 1u : 0u, p.out.size(1));
  for (const Tensor* operand : {&v.x, &v.matrix, &p.out}) launch.push(operand->stride(0), operand->stride(1));
  launch.push(finish_bits(p));
  launch.work(p.flops(), p.bytes());
  launch.groups(v.groups(), 1, p.items());
}

/// The scratch memory for sums in parts is bounded, whatever the device allows.
constexpr std::uint64_t longest_scratch = 256u << 20;

void multiply_halves(Gpu& gpu, const MatrixProduct& p, ProductAxis axis);

struct TilePlan {
  TileKernel kernel;
  MatmulPlan plan;
};

/// The kernel for `items` products like this one, and how it cuts them.
TilePlan tile_plan(Gpu& gpu, const MatrixProduct& p, std::int64_t items) {
  const Limits& limits = gpu.limits();
  const std::uint64_t scratch = std::min({longest_scratch, limits.max_range, limits.max_allocation});
  const auto plan_by = [&](const TileSet& tiles) {
    return plan_matmul(tiles, limits, items, p.m(), p.n(), p.k(), scratch);
  };
  // f32 is never computed in lower precision: matrix hardware multiplies only tensors of half precision.
  const MatrixHardware* hardware = is_half(p.a.dtype()) ? &matrix_hardware(p.out.device()) : nullptr;
  if (hardware && hardware->multiplies(p.a.dtype()))
    return {TileKernel::cooperative, plan_by(hardware->tiles)};
  return {TileKernel::scalar, plan_by(gpu.tuning().scalar)};
}

/// A product whose operands each fit a binding.
void multiply(Gpu& gpu, const MatrixProduct& p) {
  const Limits& limits = gpu.limits();
  const auto most_groups = static_cast<std::int64_t>(limits.max_groups);
  const ProductAxis longer = p.m() > p.n() ? ProductAxis::m : ProductAxis::n;
  if (p.items() > most_groups)
    return multiply_halves(gpu, p, p.out.size(0) > 1 ? ProductAxis::outer : ProductAxis::inner);
  if (has_vector(p)) {
    if (VectorProduct{p}.groups() > most_groups) return multiply_halves(gpu, p, longer);
    return multiply_vector(gpu, p);
  }
  const auto [kernel, plan] = tile_plan(gpu, p, p.items());
  if (plan.tiles(p.m(), p.n()) > most_groups) return multiply_halves(gpu, p, longer);
  const Tensor parts = plan.parts == 1
                           ? Tensor()
                           : Tensor::empty({plan.parts, p.out.size(0), p.out.size(1), p.m(), p.n()},
                                           DType::f32, p.out.device());
  const Tensor row_parts = parts.defined() && p.row_sums.defined()
                               ? Tensor::empty({plan.parts, p.m()}, DType::f32, p.out.device())
                               : Tensor();
  multiply_tiles(gpu, kernel, tiled(p, kernel, parts, row_parts), plan);
  if (parts.defined()) add_parts(gpu, p, parts, row_parts);
}

void multiply_within_limits(Gpu& gpu, const MatrixProduct& p) {
  const auto axis = axis_to_halve(gpu, p);
  axis ? multiply_halves(gpu, p, *axis) : multiply(gpu, p);
}

void multiply_halves(Gpu& gpu, const MatrixProduct& p, ProductAxis axis) {
  const Halves halves = halve(p, axis);
  multiply_within_limits(gpu, halves.first);
  multiply_within_limits(gpu, halves.second);
}

/// Computes linear maps of the same rows and widths in one dispatch or, if one binding cannot hold them
/// together, in several that add up in the same order. Returns false and does nothing if the maps differ
/// otherwise, or if sums would be computed in parts.
bool multiply_maps(Gpu& gpu, std::span<const MatrixProduct> maps) {
  const MatrixProduct& first = maps[0];
  const auto begins_alike = [](const Tensor& one, const Tensor& other) {  // both or neither read in vectors
    return one.offset() % 8 == other.offset() % 8;
  };
  const auto alike = [&](const MatrixProduct& map) {
    return map.n() == first.n() && map.bias.defined() == first.bias.defined() &&
           begins_alike(map.b, first.b) && begins_alike(map.out, first.out) && !axis_to_halve(gpu, map);
  };
  const auto count = static_cast<std::int64_t>(maps.size());
  const std::int64_t most_groups = gpu.limits().max_groups;
  if (count == 1 || count > most_groups || first.out.count() == 0 || has_vector(first) ||
      !std::ranges::all_of(maps, alike))
    return false;
  const auto [kernel, plan] = tile_plan(gpu, first, count);
  if (plan.parts > 1 || plan.tiles(first.m(), first.n()) > most_groups) return false;
  const TiledProduct all = tiled_maps(maps, kernel);
  if (fit_bindings(gpu, all))
    multiply_tiles(gpu, kernel, all, plan);
  else
    for (std::size_t i = 0; i < maps.size(); ++i) multiply_tiles(gpu, kernel, select_map(all, i), plan);
  return true;
}

/// A contiguous matrix with two batch axes of one item in front.
Tensor whole(const Tensor& m) {
  return m.view({1, 1, m.size(0), m.size(1)}, {0, 0, m.size(1), 1}, m.offset());
}
Tensor whole_transposed(const Tensor& m) {
  return m.view({1, 1, m.size(1), m.size(0)}, {0, 0, 1, m.size(1)}, m.offset());
}

}  // namespace

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, const Tensor& out) {
  if (out.count() == 0) return;
  Gpu& gpu = gpu_of(out);
  for_each_product(a, b, bias, beta != 0, out,
                   [&](const MatrixProduct& product) { multiply_within_limits(gpu, product); });
}

/// Computes a product whose kernel also adds up the rows of grad'. If it has to be split or has a
/// vector operand, runs a product and a reduction instead.
void linear_gradients(const Tensor& grad, const Tensor& x, const Tensor& dweight, const Tensor& dbias) {
  if (dbias.count() == 0) return;
  Gpu& gpu = gpu_of(dweight);
  const std::int64_t rows = grad.size(0), outputs = grad.size(1), inputs = x.size(1);
  const MatrixProduct p{whole_transposed(grad), whole(x), {}, whole(dweight), false, dbias};
  const auto most_groups = static_cast<std::int64_t>(gpu.limits().max_groups);
  const bool fits = !axis_to_halve(gpu, p) && ceil_div(outputs, 32) * ceil_div(inputs, 32) <= most_groups;
  if (inputs > 0 && rows > 0 && !has_vector(p) && fits) return multiply(gpu, p);
  matmul(grad.view({outputs, rows}, {1, outputs}, grad.offset()), x, {}, 0, dweight);
  reduce(ReduceOp::sum, grad.view({1, rows, outputs}), dbias.view({1, outputs}));
}

void linear_maps(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                 std::span<const Tensor> outs) {
  Gpu& gpu = gpu_of(x);
  std::vector<MatrixProduct> products;
  for (std::size_t i = 0; i < outs.size(); ++i)
    products.push_back({whole(x), whole_transposed(weights[i]), biases[i], whole(outs[i])});
  for (std::span<const MatrixProduct> rest = products; !rest.empty();) {
    const auto some = rest.first(std::min(rest.size(), most_maps));
    rest = rest.subspan(some.size());
    if (multiply_maps(gpu, some)) continue;
    for (const MatrixProduct& each : some)
      if (each.out.count() > 0) multiply_within_limits(gpu, each);
  }
}

void activated_linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, UnaryOp activation,
                              const Tensor& sums, const Tensor& out) {
  if (out.count() == 0) return;
  MatrixProduct p{whole(x), whole_transposed(weight), bias, whole(out)};
  p.activated = {activation, sums.defined() ? whole(sums) : sums};
  multiply_within_limits(gpu_of(out), p);
}

void activated_linear_backward(const Tensor& grad, const Tensor& weight, UnaryOp activation,
                               const Tensor& saved, const Tensor& dsums) {
  if (dsums.count() == 0) return;
  MatrixProduct p{whole(grad), whole(weight), {}, whole(dsums)};
  p.activated = {activation, {}, whole(saved)};
  multiply_within_limits(gpu_of(dsums), p);
}

}  // namespace heed::vulkan
