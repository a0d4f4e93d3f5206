#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "heed/core/elementwise.h"
#include "heed/core/tensor.h"

namespace heed::vulkan {

/// What becomes of the sums of a product, shaders/activation.glsl: `op` of them, or with `saved` them times its derivative.
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

}  // namespace heed::vulkan
