#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heed/backends/vulkan/gpu.h"
#include "heed/backends/vulkan/matmul_plan.h"
#include "heed/core/elementwise.h"
#include "heed/core/tensor.h"

namespace heed::vulkan {

/// What becomes of the sums of a product, shaders/activation.glsl: `op` of them, or with `saved` them times
/// its derivative.
struct Activated {
  std::optional<UnaryOp> op;  ///< none: they are the outputs
  Tensor sums = {};           ///< lies as out and gets the sums; undefined: not wanted
  Tensor saved = {};          ///< lies as out: what the derivative is of

  /// The bits for the specialisation constant FLAGS.
  std::uint32_t flags() const;
  /// How many tensors of out's size it reads or writes.
  int beside() const;
};

/// A batch of matrix products, out = a b + beta out + bias, whose operands all have two batch axes:
/// a [outer, inner, m, k], b [outer, inner, k, n], out [outer, inner, m, n] (stride 0 where broadcast).
struct MatrixProduct {
  Tensor a, b, bias, out;
  bool accumulate = false;  ///< beta is 1
  Tensor row_sums = {};     ///< [m], of out's type: gets the sums of the rows of a; undefined: not wanted
  Activated activated = {};

  std::int64_t items() const { return out.size(0) * out.size(1); }
  std::int64_t m() const { return out.size(2); }
  std::int64_t n() const { return out.size(3); }
  std::int64_t k() const { return a.size(3); }
  /// Multiplications and additions.
  double flops() const;
  /// The least traffic.
  double bytes() const;
};

/// How the last two axes of an operand lie in memory: as lines of neighbouring elements.
struct MatrixLayout {
  bool by_rows;          ///< the elements of a row are neighbours; else those of a column
  std::int64_t leading;  ///< elements from one line to the next
  explicit MatrixLayout(const Tensor& matrix);
};

/// Whether every line of every item begins at a multiple of `elements`, so that a shader can read
/// as many at once.
bool begins_at_multiples(const Tensor& matrix, const MatrixLayout& layout, std::int64_t elements);

/// Calls `visit` with products that make up the one given as core/backend.h has it. Batch axes that are
/// evenly spaced in all operands become one, and a batch of products with the same b becomes one product with
/// more rows; mostly a single product remains.
void for_each_product(const Tensor& a, const Tensor& b, const Tensor& bias, bool accumulate,
                      const Tensor& out, const std::function<void(const MatrixProduct&)>& visit);

enum class ProductAxis { outer, inner, m, n, k };

/// The two halves of a product along an axis. Along k the second one adds to what the first wrote.
struct Halves {
  MatrixProduct first, second;
};
Halves halve(const MatrixProduct& product, ProductAxis axis);

/// The axis along which to halve since an operand spans more than `most_bytes`; nothing when all fit.
std::optional<ProductAxis> axis_to_halve(const MatrixProduct& product, std::uint64_t most_bytes);

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
  /// b, bias (none, or all) and out of linear maps of the same a, which differ in nothing else; empty: one
  /// product.
  std::vector<Tensor> map_b, map_bias, map_out;
  Fragment emulated{16, 16, 16};  ///< by the emulated kernel; the cooperative one takes the device's
  double flops, bytes;
};

/// A product as the kernel takes it. `parts`, if defined, is f32 [parts, outer, inner, m, n] and takes the
/// sums over the parts of k instead of the product's output; bias, old content and activation are left out
/// then. `row_parts`, f32 [parts, m], does so for the row sums.
TiledProduct tiled(const MatrixProduct& product, TileKernel kernel, const Tensor& parts,
                   const Tensor& row_parts = {});

/// Maps of the same a that one dispatch takes.
inline constexpr std::size_t most_maps = 3;
/// Such maps, at most so many, as one product of the kernel. All have the same sizes and lie alike, apart
/// from where they begin.
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
