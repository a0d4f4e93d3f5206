#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/core/attention.h"
#include "heed/core/elementwise.h"
#include "heed/core/random.h"
#include "heed/core/tensor.h"

// The op layer: every differentiable function of tensors. Ops validate their arguments (an Error carries
// the op's name, shapes and dtypes), run immediately on the device of their inputs, and are recorded when
// an input is tracked. Axes may be negative. Operands broadcast by NumPy's rules. Unless noted otherwise,
// floating inputs share one dtype, which is also that of the result.

namespace heed {

/// One axis or several: -1, {0, 2}, or {} for none.
class Axes {
 public:
  Axes(int axis) : list_{axis} {}
  Axes(std::initializer_list<int> axes) : list_(axes.begin(), axes.end()) {}
  Axes(std::vector<int> axes) : list_(std::move(axes)) {}
  const std::vector<int>& list() const { return list_; }

 private:
  std::vector<int> list_;
};

// --- element by element (made from core/elementwise.def) ---------------------------------------------------

/// neg(x), abs(x), square(x), sqrt(x), ...: one function per operation without parameters; throws for the
/// others. neg, abs, square, sign, floor, ceil, round, relu and clamp also work on i32. round() takes halves
/// to the even neighbour.
Tensor unary(UnaryOp op, const Tensor& x);
/// An operation with parameters, such as leaky_relu(x, slope). Throws when a parameter that `op` does not
/// take is not 0.
Tensor unary(UnaryOp op, const Tensor& x, UnaryParams params);
// Either operand of a binary operation or a comparison may be a number, which takes the dtype of the other
// operand. Throws when that is i32 and the number cannot be represented as i32.
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
Tensor binary(BinaryOp op, const Tensor& a, double b);
Tensor binary(BinaryOp op, double a, const Tensor& b);
/// i32 0 or 1; not differentiable.
Tensor compare(CompareOp op, const Tensor& a, const Tensor& b);
Tensor compare(CompareOp op, const Tensor& a, double b);
Tensor compare(CompareOp op, double a, const Tensor& b);
/// A rank-0 tensor with the dtype and device of `like`. Throws when `like` is i32 and `value` cannot be
/// represented as i32.
Tensor scalar_like(const Tensor& like, double value);
// `function` of two tensors, or of one and a number on either side, as `call` of the operation.
#define HEED_WITH_NUMBERS(function, call, operation)         \
  inline Tensor function(const Tensor& a, const Tensor& b) { \
    return call(operation, a, b);                            \
  }                                                          \
  inline Tensor function(const Tensor& a, double b) {        \
    return call(operation, a, b);                            \
  }                                                          \
  inline Tensor function(double a, const Tensor& b) {        \
    return call(operation, a, b);                            \
  }
#define HEED_UNARY(name, ...)           \
  inline Tensor name(const Tensor& x) { \
    return unary(UnaryOp::name, x);     \
  }
#define HEED_PARAMETRIC(...)
#define HEED_BINARY(name, ...) HEED_WITH_NUMBERS(name, binary, BinaryOp::name)
#define HEED_COMPARE(name, ...) HEED_WITH_NUMBERS(name, compare, CompareOp::name)
#include "heed/core/elementwise.def"
/// x where it is positive, else slope x.
inline Tensor leaky_relu(const Tensor& x, double slope = 0.01) {
  return unary(UnaryOp::leaky_relu, x, {slope});
}
/// x where it is positive, else alpha (e^x - 1).
inline Tensor elu(const Tensor& x, double alpha = 1) {
  return unary(UnaryOp::elu, x, {alpha});
}
/// min(max(x, low), high)
inline Tensor clamp(const Tensor& x, double low, double high) {
  return unary(UnaryOp::clamp, x, {low, high});
}
inline Tensor operator-(const Tensor& x) {
  return neg(x);
}

// a + b, a < b and so on, with a number on either side. `a += b` means `a = a + b`: it makes a new tensor,
// so other handles of the old one do not change, and tracked tensors are allowed. == and != are not
// overloaded; use equal() and not_equal().
#define HEED_ARITHMETIC(symbol, name)                             \
  HEED_WITH_NUMBERS(operator symbol, binary, BinaryOp::name)      \
  inline Tensor& operator symbol##=(Tensor& a, const Tensor& b) { \
    return a = name(a, b);                                        \
  }                                                               \
  inline Tensor& operator symbol##=(Tensor& a, double b) {        \
    return a = name(a, b);                                        \
  }
HEED_ARITHMETIC(+, add)
HEED_ARITHMETIC(-, sub)
HEED_ARITHMETIC(*, mul)
HEED_ARITHMETIC(/, div)
HEED_WITH_NUMBERS(operator<, compare, CompareOp::less)
HEED_WITH_NUMBERS(operator<=, compare, CompareOp::less_equal)
HEED_WITH_NUMBERS(operator>, compare, CompareOp::greater)
HEED_WITH_NUMBERS(operator>=, compare, CompareOp::greater_equal)
#undef HEED_ARITHMETIC
#undef HEED_WITH_NUMBERS

/// condition (i32) != 0 ? a : b; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);
Tensor where(const Tensor& condition, double a, double b, DType dtype = DType::f32);
/// i32 1 where x is 0, else 0. logical_and(a, b) and logical_or(a, b) are comparisons, too: of any dtype,
/// with every number but 0 as true.
Tensor logical_not(const Tensor& x);
/// i32 1 where x is NaN (is neither infinite nor NaN), else 0. Of any dtype.
Tensor isnan(const Tensor& x);
Tensor isfinite(const Tensor& x);
/// x with `value` where mask (i32, broadcast to x) is not 0.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
/// Converts the dtype; differentiable between floating types.
Tensor cast(const Tensor& x, DType dtype);

// --- shape: views where possible, gradients are views too --------------------------------------------------
/// One extent may be -1 (inferred). Copies when x is not contiguous.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Axis i of the result is axis order[i] of x.
Tensor permute(const Tensor& x, const Shape& order);
Tensor transpose(const Tensor& x, int axis_a, int axis_b);
/// Elements begin, begin + step, ... < end of an axis; negative begin and end count from the end.
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
/// The index-th element of an axis, without that axis.
Tensor select(const Tensor& x, int axis, std::int64_t index);
Tensor unsqueeze(const Tensor& x, int axis);
Tensor squeeze(const Tensor& x, int axis);
/// Broadcast view: an extent of 1, or a missing leading axis, is repeated (stride 0).
Tensor expand(const Tensor& x, const Shape& shape);
Tensor concat(std::span<const Tensor> parts, int axis);
Tensor concat(std::initializer_list<Tensor> parts, int axis);
/// Joins the parts along a new axis.
Tensor stack(std::span<const Tensor> parts, int axis);
Tensor stack(std::initializer_list<Tensor> parts, int axis);
/// Pieces of the given sizes, which must add up to the extent.
std::vector<Tensor> split(const Tensor& x, int axis, std::span<const std::int64_t> sizes);
/// Adds `before` and `after` elements of `value` to an axis.
Tensor pad(const Tensor& x, int axis, std::int64_t before, std::int64_t after, double value = 0);
/// x itself when contiguous, else a copy.
Tensor contiguous(const Tensor& x);
/// Moves the elements of an axis by `shift` places towards its end (towards its beginning where negative);
/// those that leave it come in again on the other side.
Tensor roll(const Tensor& x, std::int64_t shift, int axis);
/// Every element of an axis `count` times in a row: a a b b (numpy.repeat, torch.repeat_interleave).
Tensor repeat(const Tensor& x, std::int64_t count, int axis);
/// The whole of x repeated counts[i] times along axis i: a b a b (numpy.tile, torch.Tensor.repeat). More
/// counts than axes add leading axes.
Tensor tile(const Tensor& x, const Shape& counts);
/// Reverses the elements along these axes.
Tensor flip(const Tensor& x, const Axes& axes);
/// x [..., n, m] with zeros where column - row > diagonal (tril, keeps the lower triangle) or column - row
/// < diagonal (triu).
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

// --- made from nothing -------------------------------------------------------------------------------------
/// The identity matrix [count, count].
Tensor eye(std::int64_t count, DType dtype = DType::f32, Device device = {});
/// ids i32 [...] -> [..., classes]: 1 at the id and 0 elsewhere; a row of zeros for -1. Any other id outside
/// [0, classes) is an error.
Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype = DType::f32);

// --- reductions --------------------------------------------------------------------------------------------
// Reduce one axis, several, as in sum(x, {0, 1}), or all elements, to rank 0. A kept axis has extent 1.
/// Also of i32, modulo 2^32.
Tensor sum(const Tensor& x, const Axes& axes, bool keep_axes = false);
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x, const Axes& axes, bool keep_axes = false);
Tensor mean(const Tensor& x);
/// The largest (smallest) element; the gradient goes to the first one that attains it. Also of i32.
Tensor max(const Tensor& x, const Axes& axes, bool keep_axes = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x, const Axes& axes, bool keep_axes = false);
Tensor min(const Tensor& x);
/// The product; its gradient is correct even where elements are 0. Also of i32, modulo 2^32.
Tensor prod(const Tensor& x, const Axes& axes, bool keep_axes = false);
Tensor prod(const Tensor& x);
/// sum((x - mean)^2) / (n - correction). correction 0 gives the mean squared deviation (NumPy's default), 1
/// the unbiased estimate (PyTorch's default).
Tensor variance(const Tensor& x, const Axes& axes, bool keep_axes = false, std::int64_t correction = 0);
Tensor variance(const Tensor& x);
/// sqrt(variance); its gradient is 0 where all elements are equal.
Tensor standard_deviation(const Tensor& x, const Axes& axes, bool keep_axes = false,
                          std::int64_t correction = 0);
Tensor standard_deviation(const Tensor& x);
/// sqrt(sum(x^2)); its gradient at 0 is 0.
Tensor norm(const Tensor& x, const Axes& axes, bool keep_axes = false);
Tensor norm(const Tensor& x);
/// Sums over the axes that broadcasting added or repeated, so that the result has `shape`.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// Index (i32) of the first largest element; not differentiable. Without an axis: its row-major index.
Tensor argmax(const Tensor& x, int axis);
Tensor argmax(const Tensor& x);
/// Running sum along an axis, inclusive; runs from the end when `reverse`.
Tensor cumulative_sum(const Tensor& x, int axis, bool reverse = false);
/// The real part of a discrete Fourier transform over the positions and the features of x [B, N, d]:
/// out[b, k, l] = Re sum over j, m of x[b, j, m] e^(-2 pi i (j k / n + m l / d)). n is N, or lengths[b]
/// (i32 [B], at most N): then positions from n on are not read and give 0. N and d are at most 46,340. Time
/// N d log(N d) on the CPU, for lengths without large prime factors; a product with waves elsewhere.
Tensor fourier(const Tensor& x, const Tensor& lengths = {});
Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);
/// log(sum(exp(x))), without overflow.
Tensor log_sum_exp(const Tensor& x, int axis, bool keep_axis = false);
/// Softmax over the last axis, restricted to entries where `allowed` (i32, broadcast to x) is not 0. All
/// other weights are 0; a row with no allowed entry is all 0.
Tensor masked_softmax(const Tensor& x, const Tensor& allowed);

// --- matrix products ---------------------------------------------------------------------------------------
/// a [..., m, k] times b [..., k, n]; leading axes broadcast. An operand of rank 1 is a row on the left and a
/// column on the right, and the result lacks its axis. Transposed views are not copied.
Tensor matmul(const Tensor& a, const Tensor& b);
/// x [..., in] W^T + b with W [out, in] and b [out] (b may be undefined).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// The parameters of a linear map: weight [out, in], bias [out] or undefined.
struct LinearMap {
  Tensor weight, bias;
};
/// linear(x, map.weight, map.bias) for each of at least one map, in one op. The products accumulate the
/// gradient of x without extra additions. One backward() runs through all results; a second one from
/// another of the results throws, as walking any graph twice does.
std::vector<Tensor> linear_maps(const Tensor& x, std::span<const LinearMap> maps);
/// linear(unary(activation, linear(x, first)), second): the position-wise feed-forward layer (Vaswani et
/// al. 2017, eq. 2). Backends that can do so apply the activation and its derivative within the products.
Tensor feed_forward(const Tensor& x, const LinearMap& first, UnaryOp activation, const LinearMap& second);
/// Einstein summation in NumPy's notation: einsum("bhid,bhjd->bhij", {q, k}). Each axis has a letter.
/// Letters shared by two operands are multiplied, letters missing from the result are summed, and a letter
/// repeated within one operand takes its diagonal. Without "->" the result has the letters that occur once,
/// in alphabetical order. "..." stands for any number of axes, which broadcast: "...ij,...jk->...ik". A
/// result written after "->" must have it where an operand does. Operands are contracted from left to right,
/// each pair by one matrix product.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands);

// --- indices: i32; -1 stands for "nothing" (a zero row, no gradient) ---------------------------------------
/// Rows of table [n, width] picked by ids of any shape: [..., width].
Tensor embedding(const Tensor& table, const Tensor& ids);
/// The slices of `axis` picked by ids [m], the same for all other axes.
Tensor index_select(const Tensor& x, int axis, const Tensor& ids);
/// x [batch, n, ...], ids [batch, m] -> [batch, m, ...]: rows ids[b, i] of sample b. Sorted attention
/// permutes words with it.
Tensor gather_rows(const Tensor& x, const Tensor& ids);
/// The adjoint of gather_rows: out [batch, rows, ...], out[b, ids[b, i]] += x[b, i].
Tensor scatter_add_rows(const Tensor& x, const Tensor& ids, std::int64_t rows);
/// out[..., i, ...] = x[..., ids[..., i, ...], ...] along `axis`; ids has the rank of x and the same
/// extents on all other axes.
Tensor gather(const Tensor& x, int axis, const Tensor& ids);
/// Adds x at ids to zeros with x's shape, but `extent` along `axis`; the adjoint of gather.
Tensor scatter_add(const Tensor& x, int axis, const Tensor& ids, std::int64_t extent);
/// The indices (i32) of a stable sort along the last axis, NaN as the largest; not differentiable.
Tensor argsort(const Tensor& x, bool descending = false);
/// The sorted values (differentiable) and their indices, along the last axis.
std::pair<Tensor, Tensor> sort(const Tensor& x, bool descending = false);
/// The k largest elements along the last axis, in descending order, with their indices; ties go to the
/// lower index, and NaN counts as the largest, as in max and argmax.
std::pair<Tensor, Tensor> top_k(const Tensor& x, std::int64_t k);

// --- normalisation, dropout, losses ------------------------------------------------------------------------
/// (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis (arXiv 1607.06450); weight and
/// bias are [n] or undefined. A row whose variance is beyond the range of its type gives NaN; so does
/// rms_norm.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
/// x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang and Sennrich 2019, arXiv 1910.07467,
/// eq. 4); weight is [n] or undefined.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-5);
/// Rotary positions (Su et al. 2021, arXiv 2104.09864, section 3.4): in every head of x [B, N, H, dh], the
/// elements i and i + dh / 2 at position n are rotated by the angle whose cosine and sine are cosines[n, i]
/// and sines[n, i], both [N, dh / 2] (f32; f64 for an f64 x). The tables get no gradient.
Tensor rotary(const Tensor& x, const Tensor& cosines, const Tensor& sines);
/// Zeroes elements with probability p and divides the others by 1 - p.
Tensor dropout(const Tensor& x, double p, const RandomKey& key);
/// residual + dropout(x), in one pass.
Tensor dropout_add(const Tensor& x, const Tensor& residual, double p, const RandomKey& key);
/// A sum and its normalisation.
struct NormedSum {
  Tensor sum, normalised;
};
/// sum = dropout_add(x, residual, p, key), where p may be 0, and normalised = layer_norm(sum, weight, bias,
/// epsilon), in one pass each way. As with linear_maps, both results share one backward pass.
NormedSum add_layer_norm(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                         const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
/// The same with rms_norm(sum, weight, epsilon).
NormedSum add_rms_norm(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                       const Tensor& weight, double epsilon = 1e-5);
/// Label-smoothed cross entropy per row: logits [..., classes], targets i32 [...] -> [...]: (1 - e) (-log
/// p_target) + e mean_c(-log p_c), or 0 where the target is `ignored`. The result is f32 when the logits
/// are f16 or bf16.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing = 0,
                     std::int32_t ignored = -1);

/// mean((x - target)^2) as rank 0. Throws unless the shapes are equal: [n, 1] beside [n] would compare all
/// with all.
Tensor mean_squared_error(const Tensor& x, const Tensor& target);
/// KL(p || q) per row: log probabilities [..., classes] -> [...]: sum_c p_c (log p_c - log q_c), where
/// classes with p_c = 0 add nothing.
Tensor kl_divergence(const Tensor& log_p, const Tensor& log_q);

/// sum(cross_entropy(linear(x, weight, bias), targets)) as rank 0 (f32 for half inputs), without ever
/// holding all logits: x [..., in], weight [classes, in], bias [classes] or undefined, targets i32 [...].
/// The gradients are computed along with the loss, `rows_at_once` rows at a time (0: chosen by the backend;
/// on the CPU, 16 MB of f32 logits).
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            double smoothing = 0, std::int32_t ignored = -1, std::int64_t rows_at_once = 0);

// --- random tensors: not differentiable --------------------------------------------------------------------
Tensor uniform(const Shape& shape, double low, double high, const RandomKey& key, DType dtype = DType::f32,
               Device device = {});
Tensor normal(const Shape& shape, double mean, double deviation, const RandomKey& key,
              DType dtype = DType::f32, Device device = {});
/// 0, ..., count - 1 in random order (i32); the same on every device.
Tensor permutation(std::int64_t count, const RandomKey& key, Device device = {});

// --- attention ---------------------------------------------------------------------------------------------
/// softmax(q k^T scale + bias) v over the allowed keys (Vaswani et al. 2017, eq. 1): query [B, H, N, dk],
/// key [B, H, M, dk], value [B, H, M, dv] -> [B, H, N, dv]. The fused kernel holds no N x M matrix other
/// than a given bias and its gradient. A query without an allowed key gives 0. slopes are ALiBi's (Press,
/// Smith and Lewis 2022, arXiv 2108.12409, section 3); with fewer queries than keys, the last query is
/// aligned with the last key.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options = {});
/// Attention over a subset of the keys, with the log-sum-exp of its logits: enough to combine it with
/// attention over other keys.
struct AttentionPart {
  Tensor output;       ///< [B, H, N, dv]
  Tensor log_sum_exp;  ///< [B, H, N], -infinity for a query without keys; f32 where the output is f16 or bf16
};
/// attention() together with its log_sum_exp; both are differentiable.
AttentionPart attention_part(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options = {});
/// Attention with one softmax over the keys of all parts together: sum_p softmax_p(log_sum_exp_p) output_p.
/// A query-key pair that occurs in several parts counts several times. output [..., dv] and log_sum_exp
/// [...] may have any shape, the same for all parts.
Tensor join_attention(std::span<const AttentionPart> parts);
/// The weights [B, H, N, M] alone, computed from single ops; for inspection.
Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options = {});

}  // namespace heed
