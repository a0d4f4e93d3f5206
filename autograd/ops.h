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
#include "heed/core/recurrence.h"
#include "heed/core/tensor.h"

// The op layer: every differentiable function of tensors. Ops validate their arguments (an Error carries
// the op's name, shapes and dtypes), run immediately on the device of their inputs, and are recorded when
// an input is tracked. Axes may be negative. Operands broadcast by NumPy's rules. Unless noted otherwise,
// floating inputs share one dtype, which is also that of the result.

namespace heed {

/// One axis or several: -1, {0, 2}, {} for none, or all.
class Axes {
 public:
  static Axes all() {
    Axes axes(std::vector<int>{});
    axes.are_all_ = true;
    return axes;
  }
  Axes(int axis) : list_{axis} {}
  Axes(std::initializer_list<int> axes) : list_(axes.begin(), axes.end()) {}
  Axes(std::vector<int> axes) : list_(std::move(axes)) {}
  const std::vector<int>& list() const { return list_; }
  bool are_all() const { return are_all_; }

 private:
  std::vector<int> list_;
  bool are_all_ = false;
};

// --- element by element (made from core/elementwise.def) ---------------------------------------------------

/// Applies an operation without parameters: neg(x), abs(x), square(x), sqrt(x), ...; throws for the
/// others. neg, abs, square, sign, floor, ceil, round, relu and clamp also work on i32. round()
/// rounds halves to the even neighbour.
Tensor unary(UnaryOp op, const Tensor& x);
/// Applies an operation with parameters, such as leaky_relu(x, slope). Throws when a parameter that
/// `op` does not take is not 0.
Tensor unary(UnaryOp op, const Tensor& x, UnaryParams params);
// Either operand of a binary operation or a comparison may be a number, which takes the dtype of the other
// operand. Throws when that is i32 and the number cannot be represented as i32.
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
Tensor binary(BinaryOp op, const Tensor& a, double b);
Tensor binary(BinaryOp op, double a, const Tensor& b);
/// Compares elements: i32 0 or 1; not differentiable.
Tensor compare(CompareOp op, const Tensor& a, const Tensor& b);
Tensor compare(CompareOp op, const Tensor& a, double b);
Tensor compare(CompareOp op, double a, const Tensor& b);
/// Returns a rank-0 tensor with the dtype and device of `like`. Throws when `like` is i32 and
/// `value` cannot be represented as i32.
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
/// Returns x where it is positive, slope x elsewhere.
inline Tensor leaky_relu(const Tensor& x, double slope = 0.01) {
  return unary(UnaryOp::leaky_relu, x, {slope});
}
/// Returns x where it is positive, alpha (e^x - 1) elsewhere.
inline Tensor elu(const Tensor& x, double alpha = 1) {
  return unary(UnaryOp::elu, x, {alpha});
}
/// Returns min(max(x, low), high).
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

/// Returns a where condition (i32) is not 0, b elsewhere; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);
Tensor where(const Tensor& condition, double a, double b, DType dtype = DType::f32);
/// Returns i32 1 where x is 0, 0 elsewhere. logical_and(a, b) and logical_or(a, b) are comparisons.
/// All take any dtype and treat every number but 0 as true.
Tensor logical_not(const Tensor& x);
/// Returns i32 1 where x, of any dtype, is NaN, 0 elsewhere.
Tensor isnan(const Tensor& x);
/// Returns i32 1 where x, of any dtype, is neither infinite nor NaN, 0 elsewhere.
Tensor isfinite(const Tensor& x);
/// Returns x with `value` where mask (i32, broadcast to x) is not 0.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
/// Converts the dtype; differentiable between floating types.
Tensor cast(const Tensor& x, DType dtype);

// --- shape: views where possible, gradients are views too --------------------------------------------------
/// Returns the elements in another shape. One extent may be -1 (inferred). Copies when x is not
/// contiguous.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Reorders the axes: axis i of the result is axis order[i] of x.
Tensor permute(const Tensor& x, const Shape& order);
Tensor transpose(const Tensor& x, int axis_a, int axis_b);
/// Returns the elements begin, begin + step, ... < end of an axis; negative begin and end count
/// from the end.
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
/// Returns the index-th element of an axis, without this axis.
Tensor select(const Tensor& x, int axis, std::int64_t index);
Tensor unsqueeze(const Tensor& x, int axis);
Tensor squeeze(const Tensor& x, int axis);
/// Repeats extents of 1 and missing leading axes to fill `shape`, as a view (stride 0).
Tensor expand(const Tensor& x, const Shape& shape);
Tensor concat(std::span<const Tensor> parts, int axis);
Tensor concat(std::initializer_list<Tensor> parts, int axis);
/// Joins the parts along a new axis.
Tensor stack(std::span<const Tensor> parts, int axis);
Tensor stack(std::initializer_list<Tensor> parts, int axis);
/// Cuts an axis into pieces of the given sizes, which must add up to its extent.
std::vector<Tensor> split(const Tensor& x, int axis, std::span<const std::int64_t> sizes);
/// Adds `before` and `after` elements of `value` to an axis.
Tensor pad(const Tensor& x, int axis, std::int64_t before, std::int64_t after, double value = 0);
/// Returns x itself when contiguous, otherwise a copy.
Tensor contiguous(const Tensor& x);
/// Moves the elements of an axis by `shift` places towards its end (towards its beginning when
/// negative). Elements moved past one end reappear at the other.
Tensor roll(const Tensor& x, std::int64_t shift, int axis);
/// Repeats every element of an axis `count` times in a row: a a b b (numpy.repeat,
/// torch.repeat_interleave).
Tensor repeat(const Tensor& x, std::int64_t count, int axis);
/// Repeats the whole of x counts[i] times along axis i: a b a b (numpy.tile, torch.Tensor.repeat).
/// More counts than axes add leading axes.
Tensor tile(const Tensor& x, const Shape& counts);
/// Reverses the elements along these axes.
Tensor flip(const Tensor& x, const Axes& axes);
/// Returns x [..., n, m] with zeros where column - row > diagonal (tril, keeps the lower triangle)
/// or column - row < diagonal (triu).
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

// --- made from nothing -------------------------------------------------------------------------------------
/// Returns the identity matrix [count, count].
Tensor eye(std::int64_t count, DType dtype = DType::f32, Device device = {});
/// Maps ids i32 [...] to [..., classes]: 1 at the id and 0 elsewhere; a row of zeros for -1. Throws
/// for any other id outside [0, classes).
Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype = DType::f32);

// --- reductions --------------------------------------------------------------------------------------------
// Reduce one axis, several, as in sum(x, {0, 1}), or all elements, to rank 0. A kept axis has extent 1.
/// Adds the elements; i32 wraps modulo 2^32.
Tensor sum(const Tensor& x, const Axes& axes = Axes::all(), bool keep_axes = false);
Tensor mean(const Tensor& x, const Axes& axes = Axes::all(), bool keep_axes = false);
/// Returns the largest (smallest) element, also of i32. The gradient goes to the first one that
/// attains it.
Tensor max(const Tensor& x, const Axes& axes = Axes::all(), bool keep_axes = false);
Tensor min(const Tensor& x, const Axes& axes = Axes::all(), bool keep_axes = false);
/// Multiplies the elements; i32 wraps modulo 2^32. The gradient is correct even where elements are
/// 0.
Tensor prod(const Tensor& x, const Axes& axes = Axes::all(), bool keep_axes = false);
/// Computes sum((x - mean)^2) / (n - correction). correction 0 gives the mean squared deviation
/// (NumPy's default), 1 the unbiased estimate (PyTorch's default).
Tensor variance(const Tensor& x, const Axes& axes = Axes::all(), bool keep_axes = false,
                std::int64_t correction = 0);
/// Computes sqrt(variance); its gradient is 0 where all elements are equal.
Tensor standard_deviation(const Tensor& x, const Axes& axes = Axes::all(), bool keep_axes = false,
                          std::int64_t correction = 0);
/// Computes sqrt(sum(x^2)); its gradient at 0 is 0.
Tensor norm(const Tensor& x, const Axes& axes = Axes::all(), bool keep_axes = false);
/// Sums over the axes that broadcasting added or repeated, so that the result has `shape`.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// Returns the index (i32) of the first largest element; not differentiable. Without an axis, it is
/// the row-major index.
Tensor argmax(const Tensor& x, int axis);
Tensor argmax(const Tensor& x);
/// Computes running sums along an axis, inclusive; from the end when `reverse`.
Tensor cumulative_sum(const Tensor& x, int axis, bool reverse = false);
/// Returns the largest element so far along an axis, untracked.
Tensor running_max(const Tensor& x, int axis);
/// Computes the real part of a discrete Fourier transform over the positions and the features of x
/// [B, N, d]: out[b, k, l] = Re sum over j, m of x[b, j, m] e^(-2 pi i (j k / n + m l / d)). n is
/// N, or lengths[b] (i32 [B], at most N): positions from n on are not read and become 0. N and d
/// are at most 46,340. Takes O(N d log(N d)) time on the CPU, for lengths without large prime
/// factors; elsewhere it is a matrix product with sines and cosines.
Tensor fourier(const Tensor& x, const Tensor& lengths = {});
Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);
/// Computes log(sum(exp(x))) without overflow.
Tensor log_sum_exp(const Tensor& x, int axis, bool keep_axis = false);
/// Computes the softmax over the last axis, restricted to entries where `allowed` (i32, broadcast
/// to x) is not 0. All other weights are 0; a row with no allowed entry is all 0.
Tensor masked_softmax(const Tensor& x, const Tensor& allowed);

// --- matrix products ---------------------------------------------------------------------------------------
/// Multiplies a [..., m, k] by b [..., k, n]; leading axes broadcast. An operand of rank 1 is a row
/// on the left and a column on the right, and the result lacks its axis. Transposed views are not
/// copied.
Tensor matmul(const Tensor& a, const Tensor& b);
/// Computes x [..., in] W^T + b with W [out, in] and b [out] (b may be undefined).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// The parameters of a linear map: weight [out, in], bias [out] or undefined.
struct LinearMap {
  Tensor weight, bias;
};
/// Computes linear(x, map.weight, map.bias) for each map (at least one), in one op. The products
/// accumulate the gradient of x without extra additions. All results share one backward pass: a
/// second backward() from another of them throws, like any second walk of a graph.
std::vector<Tensor> linear_maps(const Tensor& x, std::span<const LinearMap> maps);
/// Computes linear(unary(activation, linear(x, first)), second): the position-wise feed-forward
/// layer (Vaswani et al. 2017, eq. 2). Backends that can do so apply the activation and its
/// derivative within the products.
Tensor feed_forward(const Tensor& x, const LinearMap& first, UnaryOp activation, const LinearMap& second);
/// Computes an Einstein sum in NumPy's notation: einsum("bhid,bhjd->bhij", {q, k}). Each axis has a
/// letter. Letters shared by two operands are multiplied, letters missing from the result are
/// summed, and a letter repeated within one operand takes its diagonal. Without "->" the result has
/// the letters that occur once, in alphabetical order. "..." means any number of axes, which
/// broadcast: "...ij,...jk->...ik". A result written after "->" must contain "..." if an operand
/// does. Operands are contracted from left to right, each pair by one matrix product.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands);

// --- indices: i32; -1 stands for "nothing" (a zero row, no gradient) ---------------------------------------
/// Picks rows of table [n, width] by ids of any shape: [..., width].
Tensor embedding(const Tensor& table, const Tensor& ids);
/// Picks slices of `axis` by ids [m], the same for all other axes.
Tensor index_select(const Tensor& x, int axis, const Tensor& ids);
/// Picks rows ids[b, i] of sample b: x [batch, n, ...], ids [batch, m] -> [batch, m, ...]. Sorted
/// attention permutes words with it.
Tensor gather_rows(const Tensor& x, const Tensor& ids);
/// Computes the adjoint of gather_rows: out [batch, rows, ...], out[b, ids[b, i]] += x[b, i].
Tensor scatter_add_rows(const Tensor& x, const Tensor& ids, std::int64_t rows);
/// Picks elements along `axis`: out[..., i, ...] = x[..., ids[..., i, ...], ...]. ids has the rank
/// of x and the same extents on all other axes.
Tensor gather(const Tensor& x, int axis, const Tensor& ids);
/// Adds x at ids to zeros with x's shape, but `extent` along `axis`. It is the adjoint of gather.
Tensor scatter_add(const Tensor& x, int axis, const Tensor& ids, std::int64_t extent);
/// Returns the indices (i32) of a stable sort along the last axis, NaN as the largest; not
/// differentiable.
Tensor argsort(const Tensor& x, bool descending = false);
/// Returns the sorted values (differentiable) and their indices, along the last axis.
std::pair<Tensor, Tensor> sort(const Tensor& x, bool descending = false);
/// Returns the k largest elements along the last axis, in descending order, and their indices. Ties
/// go to the lower index, and NaN counts as the largest, as in max and argmax.
std::pair<Tensor, Tensor> top_k(const Tensor& x, std::int64_t k);

// --- normalisation, dropout, losses ------------------------------------------------------------------------
/// Computes (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis (arXiv
/// 1607.06450); weight and bias are [n] or undefined. A row whose variance is beyond the range of
/// its type gives NaN; so does rms_norm.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
/// Computes x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang and Sennrich 2019,
/// arXiv 1910.07467, eq. 4); weight is [n] or undefined.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-5);
/// Rotates x by its positions (Su et al. 2021, arXiv 2104.09864, section 3.4). In every head of x
/// [B, N, H, dh], the elements i and i + dh / 2 at position n are rotated by the angle whose cosine
/// and sine are cosines[n, i] and sines[n, i], both [N, dh / 2] (f32; f64 for an f64 x). The tables
/// get no gradient.
Tensor rotary(const Tensor& x, const Tensor& cosines, const Tensor& sines);
/// Zeroes elements with probability p and divides the others by 1 - p.
Tensor dropout(const Tensor& x, double p, const RandomKey& key);
/// Computes residual + dropout(x) in one pass.
Tensor dropout_add(const Tensor& x, const Tensor& residual, double p, const RandomKey& key);
/// A sum and its normalisation.
struct NormedSum {
  Tensor sum, normalised;
};
/// Computes sum = dropout_add(x, residual, p, key), where p may be 0, and normalised =
/// layer_norm(sum, weight, bias, epsilon), in one pass each way. As with linear_maps, both results
/// share one backward pass.
NormedSum add_layer_norm(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                         const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
/// Computes the same sum and its rms_norm(sum, weight, epsilon).
NormedSum add_rms_norm(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                       const Tensor& weight, double epsilon = 1e-5);
/// Computes label-smoothed cross entropy per row: logits [..., classes], targets i32 [...] ->
/// [...]: (1 - e) (-log p_target) + e mean_c(-log p_c), or 0 where the target is `ignored`. The
/// result is f32 when the logits are f16 or bf16.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing = 0,
                     std::int32_t ignored = -1);

/// Computes mean((x - target)^2) as rank 0. Throws unless the shapes are equal, since [n, 1] and
/// [n] would broadcast to [n, n].
Tensor mean_squared_error(const Tensor& x, const Tensor& target);
/// Computes KL(p || q) per row: log probabilities [..., classes] -> [...]: sum_c p_c (log p_c - log
/// q_c), where classes with p_c = 0 add nothing.
Tensor kl_divergence(const Tensor& log_p, const Tensor& log_q);

/// Computes sum(cross_entropy(linear(x, weight, bias), targets)) as rank 0 (f32 for half inputs),
/// without ever storing all logits: x [..., in], weight [classes, in], bias [classes] or undefined,
/// targets i32 [...]. The gradients are computed along with the loss, `rows_at_once` rows at a time
/// (0: chosen by the backend; on the CPU, 16 MB of f32 logits).
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            double smoothing = 0, std::int32_t ignored = -1, std::int64_t rows_at_once = 0);

// --- random tensors: not differentiable --------------------------------------------------------------------
Tensor uniform(const Shape& shape, double low, double high, const RandomKey& key, DType dtype = DType::f32,
               Device device = {});
Tensor normal(const Shape& shape, double mean, double deviation, const RandomKey& key,
              DType dtype = DType::f32, Device device = {});
/// Returns 0, ..., count - 1 in random order (i32); the same on every device.
Tensor permutation(std::int64_t count, const RandomKey& key, Device device = {});

// --- attention ---------------------------------------------------------------------------------------------
/// Computes softmax(q k^T scale + bias) v over the allowed keys (Vaswani et al. 2017, eq. 1): query
/// [B, H, N, dk], key [B, H, M, dk], value [B, H, M, dv] -> [B, H, N, dv]. The fused kernel stores
/// no N x M matrix other than a given bias and its gradient. A query without an allowed key gives
/// 0. slopes are ALiBi's (Press, Smith and Lewis 2022, arXiv 2108.12409, section 3). With fewer
/// queries than keys, the last query is aligned with the last key.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options = {});
/// Attention over a subset of the keys, with the log-sum-exp of its logits: enough to combine it
/// with attention over other keys.
struct AttentionPart {
  Tensor output;  ///< [B, H, N, dv]
  /// [B, H, N], -infinity for a query without keys; f32 where the output is f16 or bf16.
  Tensor log_sum_exp;
};
/// Computes attention() and its log_sum_exp; both are differentiable.
AttentionPart attention_part(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options = {});
/// Computes attention with one softmax over the keys of all parts: sum_p softmax_p(log_sum_exp_p)
/// output_p. A query-key pair that occurs in several parts counts several times. output [..., dv]
/// and log_sum_exp [...] may have any shape, the same for all parts.
Tensor join_attention(std::span<const AttentionPart> parts);
/// Computes the weights [B, H, N, M] alone from single ops, for inspection.
Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options = {});

// --- recurrence --------------------------------------------------------------------------------------------
/// The results of recurrence().
struct RecurrenceResult {
  Tensor output;  ///< o [B, H, N, dv]
  Tensor state;   ///< S after the last token [B, H, dk, dv]
};
/// Runs a state that maps keys to values and changes token by token, by the equations of Recurrence
/// (core/recurrence.h). Any g up to 0 is valid, -infinity included. Both results are
/// differentiable. On the CPU, a sequence processed in pieces, each starting from the state after
/// the piece before, gives bit-identical results. In f16 and bf16 the state is f32 within a call.
/// Takes O(N dk dv) time; the backward pass keeps a state for every 32 tokens. Throws an Error for
/// shapes that do not fit, for v without k, for w or x without r, and when both k and r are
/// undefined.
RecurrenceResult recurrence(const Recurrence& of);

}  // namespace heed
