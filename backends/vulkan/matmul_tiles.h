#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "heed/backends/vulkan/gpu.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/backends/vulkan/matmul_plan.h"

namespace heed::vulkan {

class Launch;

/// The kernels for products in tiles: ordinary arithmetic in f32; matrix hardware, for factors of half
/// precision; and the latter's emulation by ordinary arithmetic.
enum class TileKernel { scalar, cooperative, emulated };

/// Where an operand's elements lie, in elements.
struct OperandPlace {
  bool by_rows;
  std::int64_t leading, outer, inner;
  bool in_vectors;  ///< lines begin at multiples of what the kernel reads or writes at once
};

/// A batch of products in numbers, as shaders/matmul_push.glsl has it, and what to bind.
struct TiledProduct {
  std::string_view type;  ///< of the factors: "f32", "f16" or "bf16"
  bool wide = false;      ///< the output is f32, whatever the factors are
  std::int64_t m, n, k, items, inner;
  OperandPlace a_place, b_place, out_place;
  std::int64_t out_part = 0;  ///< elements from the sums of one part of k to those of the next
  bool accumulate = false;
  Tensor a, b, bias, out;
  Tensor row_sums;  ///< [parts, m], of the type that is written; undefined: not wanted
  Activated activated;
  /// b, bias (none, or all) and out of linear maps of the same a, which differ in nothing else; empty: one product.
  std::vector<Tensor> map_b, map_bias, map_out;
  Fragment emulated{16, 16, 16};  ///< by the emulated kernel; the cooperative one takes the device's
  double flops, bytes;
};

/// A product as the kernel takes it. `parts`, if defined, is f32 [parts, outer, inner, m, n] and takes the
/// sums over the parts of k instead of the product's output; bias, old content and activation are left out then.
/// `row_parts`, f32 [parts, m], does so for the row sums.
TiledProduct tiled(const MatrixProduct& product, TileKernel kernel, const Tensor& parts,
                   const Tensor& row_parts = {});

/// Maps of the same a that one dispatch takes.
inline constexpr std::size_t most_maps = 3;
/// Such maps, at most so many, as one product of the kernel. All have the same sizes and lie alike, apart from where
/// they begin.
TiledProduct tiled_maps(std::span<const MatrixProduct> maps, TileKernel kernel);
/// Whether what they read and write can be bound at once: it has to lie near each other.
bool fit_bindings(const Gpu& gpu, const TiledProduct& maps);
/// One of them alone, cut and read as all of them are.
TiledProduct one_of(const TiledProduct& maps, std::size_t i);

/// Binds the tensors of `activated`, in place of an unwanted output that of the product.
void bind_activated(Launch& launch, const Activated& activated, const Tensor& out);

/// Records a product in tiles.
void multiply_tiles(Gpu& gpu, TileKernel kernel, const TiledProduct& product, const MatmulPlan& plan);

}  // namespace heed::vulkan
