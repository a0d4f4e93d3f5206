#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "heed/backends/vulkan/launch.h"
#include "heed/backends/vulkan/tuning.h"
#include "heed/core/elementwise.h"
#include "heed/core/tensor.h"

namespace heed::vulkan {

/// The last step of a product (shaders/activation.glsl): out = op(sums) or, with `saved`, the sums
/// times the derivative of op.
struct Activated {
  std::optional<UnaryOp> op;  ///< none: the sums are the outputs
  Tensor sums = {};           ///< laid out as out, receives the sums; undefined: not wanted
  Tensor saved = {};          ///< laid out as out: x or y of op, for the derivative

  /// Returns the bits for the specialisation constant FLAGS.
  std::uint32_t flags() const;
  /// Returns how many further tensors of out's size are read or written.
  int beside() const { return (sums.defined() ? 1 : 0) + (saved.defined() ? 1 : 0); }
  /// Binds its tensors, and `out` in place of sums that are not wanted.
  void bind(Launch& launch, const Tensor& out) const {
    launch.write(sums.defined() ? sums : out).read(saved);
  }
};

/// A batch of matrix products, out = a b + beta out + bias, whose operands all have two batch axes:
/// a [outer, inner, m, k], b [outer, inner, k, n], out [outer, inner, m, n] (stride 0 where
/// broadcast).
struct MatrixProduct {
  Tensor a, b, bias, out;
  bool accumulate = false;  ///< beta is 1
  /// [m], of out's type: receives the sums of the rows of a; undefined: not wanted.
  Tensor row_sums = {};
  Activated activated = {};

  std::int64_t items() const { return out.size(0) * out.size(1); }
  std::int64_t m() const { return out.size(2); }
  std::int64_t n() const { return out.size(3); }
  std::int64_t k() const { return a.size(3); }
  /// Returns the number of multiplications and additions.
  double flops() const;
  /// Returns the minimum traffic.
  double bytes() const;
};

/// The memory layout of an operand's last two axes: lines of neighbouring elements.
struct MatrixLayout {
  bool by_rows;          ///< the elements of a row are neighbours; else those of a column
  std::int64_t leading;  ///< elements from one line to the next
  explicit MatrixLayout(const Tensor& matrix);
};

/// Calls `visit` with the products that make up the given one (matmul in core/kernels.def). Batch
/// axes that are evenly spaced in all operands become one, and a batch of products with the same b
/// becomes one product with more rows; usually a single product remains.
void for_each_product(const Tensor& a, const Tensor& b, const Tensor& bias, bool accumulate,
                      const Tensor& out, const std::function<void(const MatrixProduct&)>& visit);

enum class ProductAxis { outer, inner, m, n, k };

/// The two halves of a product along an axis. Along k the second one adds to what the first wrote.
struct Halves {
  MatrixProduct first, second;
};
Halves halve(const MatrixProduct& product, ProductAxis axis);

/// Returns the axis along which to halve a product because an operand does not fit a binding;
/// nullopt if all fit.
std::optional<ProductAxis> axis_to_halve(const Gpu& gpu, const MatrixProduct& product);

/// The kernels for products in tiles: ordinary arithmetic in f32; matrix hardware, for factors of
/// half precision; and the latter's emulation by ordinary arithmetic.
enum class TileKernel { scalar, cooperative, emulated };

/// The place of an operand in memory, in elements.
struct OperandPlace {
  bool by_rows;
  std::int64_t leading, outer, inner;
  bool in_vectors;  ///< lines begin at multiples of the kernel's vectors
};

/// A batch of products with the numbers that shaders/matmul_tiles.glsl declares and the tensors to
/// bind.
struct TiledProduct {
  /// The product that is computed; with sums in parts only the sums.
  MatrixProduct product;
  Tensor out;  ///< product.out, or all parts of the sums
  OperandPlace a_place, b_place, out_place;
  std::int64_t out_part = 0;  ///< elements from the sums of one part of k to those of the next
  std::int64_t items;
  /// The b, bias (of all maps or of none) and out of linear maps that share a and differ in nothing
  /// else; empty: a single product.
  std::vector<Tensor> map_b, map_bias, map_out;
  Fragment emulated{16, 16, 16};  ///< of the emulated kernel; the cooperative one uses the device's
  double flops, bytes;

  /// Returns whether the output is f32 though the factors are not.
  bool is_wide() const { return out.dtype() != product.a.dtype(); }
};

/// Returns a product as the kernel takes it. `parts`, if defined, is f32 [parts, outer, inner, m,
/// n] and receives the sums over the parts of k in place of the product's output; bias, old content
/// and activation are then omitted. `row_parts`, f32 [parts, m], receives the row sums over these
/// parts.
TiledProduct tiled(const MatrixProduct& product, TileKernel kernel, const Tensor& parts,
                   const Tensor& row_parts = {});

/// The most linear maps of the same a that one dispatch computes.
inline constexpr std::size_t most_maps = 3;
/// Returns at most most_maps such maps as one product of the kernel. All have the same sizes and
/// layout and differ only in where they begin.
TiledProduct tiled_maps(std::span<const MatrixProduct> maps, TileKernel kernel);
/// Returns whether the tensors of all maps can be bound at once. Those of each kind must be close
/// together in memory.
bool fit_bindings(const Gpu& gpu, const TiledProduct& maps);
/// Returns map i alone, cut and read in the same way as all of them together.
TiledProduct select_map(const TiledProduct& maps, std::size_t i);

/// Records a product in tiles.
void multiply_tiles(Gpu& gpu, TileKernel kernel, const TiledProduct& product, const MatmulPlan& plan);

}  // namespace heed::vulkan
