#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "heed/core/block_pattern.h"
#include "heed/core/device.h"
#include "heed/core/elementwise.h"
#include "heed/core/random.h"
#include "heed/core/tensor.h"

// The kernel contract: what the op layer (autograd/) asks of a backend (backends/).
//
// A backend is a struct of function pointers, filled with designated initialisers. A null entry means "not
// provided". The op layer has validated shapes, dtypes and devices before it calls; it allocates every
// output. Unless an entry says otherwise: inputs may have any strides (0 where broadcast), outputs are
// contiguous and do not overlap inputs, floating tensors of one call share one dtype (f32, or f64 on the
// CPU), index and mask tensors are i32. Tensors passed to kernels are never tracked.

namespace heed {

enum class ReduceOp : std::uint8_t { sum, max, min };

/// The arguments of scaled dot-product attention, shared by its forward and backward kernels.
struct AttentionArgs {
  Tensor query;     ///< [B, H, N, dk], last stride 1
  Tensor key;       ///< [B, H, M, dk], last stride 1
  Tensor value;     ///< [B, H, M, dv], last stride 1
  Tensor key_mask;  ///< i32 [B, M], 1 = real, 0 = padding; undefined = all real
  Tensor mask;      ///< i32, broadcast (stride 0) to [B, H, N, M], 1 = allowed; undefined = all allowed
  /// [H], contiguous, of statistics_type(): scores get -slopes[h] |i + M - N - j|; undefined = none.
  Tensor slopes;
  Tensor bias;  ///< [1 or B, 1 or H, N, M], last stride 1, is added to the scaled scores; undefined = none
  double scale = 1;
  bool causal = false;                    ///< allow key j for query i only when j <= i + M - N
  const BlockPattern* pattern = nullptr;  ///< which blocks of the N x M matrix exist; null = all
  double dropout = 0;                     ///< probability of zeroing a weight after the softmax
  RandomKey dropout_key;  ///< element ((b H + h) N + i) M + j decides about weight [b, h, i, j]
};

/// A forward and a backward kernel that are usable only together, so that a fast path can
/// never lose a gradient.
template <class Forward, class Backward>
struct Fused {
  Forward* forward = nullptr;
  Backward* backward = nullptr;
};

/// One pass of an optimizer over all parameters. All spans have the same length.
struct OptimizerStep {
  std::span<const Tensor> parameters;     ///< contiguous, updated in place
  std::span<const Tensor> gradients;      ///< contiguous
  std::span<const Tensor> first_moment;   ///< Adam's m; SGD's momentum buffer (empty when momentum is 0)
  std::span<const Tensor> second_moment;  ///< Adam's v; empty for SGD
  Tensor gradient_scale;  ///< one element, multiplied into every gradient (clipping); undefined = 1
  Tensor skip;            ///< i32, one element: where it is not 0 the step changes nothing; undefined = 0
  double learning_rate = 0;
  double beta1 = 0.9;  ///< for SGD: the momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled_decay = false;  ///< true: AdamW (arXiv 1711.05101); false: decay is added to the gradient
  std::int64_t step = 1;         ///< counts from 1, for Adam's bias correction
};

/// How linear_cross_entropy holds logits [rows, classes], some rows at a time.
struct LogitChunks {
  std::int64_t rows = 1;   ///< at a time, at least one
  std::int64_t pitch = 0;  ///< elements from one row to the next, at least as many as there are classes
};

struct Backend {
  std::string_view name;

  // --- memory ----------------------------------------------------------------------------------------------
  std::shared_ptr<Storage> (*allocate)(Device device, std::size_t bytes) = nullptr;
  /// Host to device and back; the tensor is contiguous, the host buffer holds count() elements.
  void (*upload)(const void* host, const Tensor& to) = nullptr;
  void (*download)(const Tensor& from, void* host) = nullptr;
  MemoryStats (*memory_stats)(Device device) = nullptr;
  void (*reset_peak)(Device device) = nullptr;
  /// Returns cached memory to the system.
  void (*trim)(Device device) = nullptr;

  // --- element by element ----------------------------------------------------------------------------------
  /// Any dtype. `out` may have any strides without overlap.
  void (*fill)(double value, const Tensor& out) = nullptr;
  /// out = x, converting the dtype when they differ (float to i32 truncates). Same shapes;
  /// both may be strided.
  void (*copy)(const Tensor& x, const Tensor& out) = nullptr;
  void (*unary)(UnaryOp, UnaryParams, const Tensor& x, const Tensor& out) = nullptr;
  /// out = grad * dy/dx; `saved` is x or y as the table says. `out` may be the same memory as grad or saved.
  void (*unary_backward)(UnaryOp, UnaryParams, const Tensor& saved, const Tensor& grad,
                         const Tensor& out) = nullptr;
  /// a and b have the shape of out (stride 0 where broadcast). `out` may be the same memory as a
  /// contiguous a or b.
  void (*binary)(BinaryOp, const Tensor& a, const Tensor& b, const Tensor& out) = nullptr;
  /// out = grad * dy/da (operand 0) or grad * dy/db (operand 1), in the broadcast shape.
  void (*binary_backward)(BinaryOp, int operand, const Tensor& a, const Tensor& b, const Tensor& grad,
                          const Tensor& out) = nullptr;
  /// Any dtype; out is i32.
  void (*compare)(CompareOp, const Tensor& a, const Tensor& b, const Tensor& out) = nullptr;
  /// out = condition != 0 ? a : b; all of one shape (strided inputs), condition i32, a and b of out's dtype.
  void (*where)(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) = nullptr;

  // --- reductions: x contiguous [outer, n, inner] ----------------------------------------------------------
  /// out [outer, inner].
  void (*reduce)(ReduceOp, const Tensor& x, const Tensor& out) = nullptr;
  /// out i32 [outer, inner]; the lowest index wins ties.
  void (*argmax)(const Tensor& x, const Tensor& out) = nullptr;
  /// out [outer, n, inner].
  void (*cumulative_sum)(const Tensor& x, bool reverse, const Tensor& out) = nullptr;

  // --- matrix products -------------------------------------------------------------------------------------
  /// out = a b + beta out + bias. a [..., m, k], b [..., k, n], out [..., m, n] with equal leading extents
  /// (stride 0 where broadcast); the last two strides of a and of b are (s, 1) or (1, s), those of out (s,
  /// 1); s is at least the extent of the other axis. bias [n] contiguous, or undefined. beta is 0 or 1; with
  /// 0 the old content of out is ignored. A backend with half types also writes f32 (bias too) where a and b
  /// are half.
  void (*matmul)(const Tensor& a, const Tensor& b, const Tensor& bias, double beta,
                 const Tensor& out) = nullptr;
  /// The gradients of a linear map in one pass over grad: dweight [out, in] = grad' x, dbias [out] = the sum
  /// of the rows of grad; grad [rows, out], x [rows, in], all contiguous. Null: a product and a reduction.
  void (*linear_gradients)(const Tensor& grad, const Tensor& x, const Tensor& dweight,
                           const Tensor& dbias) = nullptr;
  /// A linear map whose product applies an activation, one of activation_ops: out = activation(sums), sums =
  /// x weight' + bias, which is written too unless it is undefined; x [rows, in], weight [out, in], bias
  /// [out] or undefined, sums and out [rows, out]. backward, through the map after it: dsums = (grad weight)
  /// activation'(saved), grad [rows, out], weight [out, in], saved (sums or activation(sums), as the table
  /// says) and dsums [rows, in]. All contiguous.
  Fused<void(const Tensor& x, const Tensor& weight, const Tensor& bias, UnaryOp activation,
             const Tensor& sums, const Tensor& out),
        void(const Tensor& grad, const Tensor& weight, UnaryOp activation, const Tensor& saved,
             const Tensor& dsums)>
      activated_linear = {};
  /// Linear maps of the same rows at once, for threads that one alone would not keep busy: outs[i] [rows,
  /// out_i] = x weights[i]' + biases[i]. x [rows, in], weights[i] [out_i, in], biases[i] [out_i] or
  /// undefined, all contiguous; as many of each. Null: one product after the other.
  void (*linear_maps)(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                      std::span<const Tensor> outs) = nullptr;
  /// The products of their backward at once: dx [rows, in] = the sum over i of grads[i] weights[i], in the
  /// order of i; dweights[i] [out_i, in] = grads[i]' x + beta dweights[i]. grads[i] [rows, out_i], the others
  /// as above; beta as for matmul. Null: one product after the other.
  void (*linear_backward)(std::span<const Tensor> grads, const Tensor& x, std::span<const Tensor> weights,
                          double beta, const Tensor& dx, std::span<const Tensor> dweights) = nullptr;

  // --- indices ---------------------------------------------------------------------------------------------
  /// out[b, i, :] = x[b, index[b, i], :]; x [batch, n, width], index [batch, m], out [batch, m, width], all
  /// contiguous. Index -1 gives a row of zeros; any other index outside [0, n) throws. Any dtype.
  void (*gather_rows)(const Tensor& x, const Tensor& index, const Tensor& out) = nullptr;
  /// out[b, index[b, i], :] += x[b, i, :]; x [batch, m, width], out [batch, n, width], all contiguous. Index
  /// -1 is skipped, any other outside [0, n) throws. Rows with one target are added in the order of i.
  void (*scatter_add_rows)(const Tensor& x, const Tensor& index, const Tensor& out) = nullptr;
  /// Stable: equal values keep their order, NaN sorts last. x contiguous [rows, n] of any dtype,
  /// out i32 [rows, n].
  void (*argsort)(const Tensor& x, bool descending, const Tensor& out) = nullptr;
  /// The k largest of each row in descending order; on ties the lower position first. x [rows, n],
  /// out i32 [rows, k].
  void (*top_k)(const Tensor& x, const Tensor& out) = nullptr;

  // --- random numbers --------------------------------------------------------------------------------------
  void (*uniform)(const RandomKey& key, double low, double high, const Tensor& out) = nullptr;
  /// Box-Muller on consecutive pairs of elements of the stream.
  void (*normal)(const RandomKey& key, double mean, double deviation, const Tensor& out) = nullptr;
  /// out = residual + x keep / (1 - p), keep = unit_interval(word i) >= p, i the row-major index. Contiguous
  /// tensors; residual may be undefined (0). `out` may be the same memory as x or residual.
  void (*dropout)(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                  const Tensor& out) = nullptr;

  // --- fused operations: each also has a composed body in the op layer -------------------------------------
  /// Softmax or log-softmax over the last axis; contiguous [rows, n]. A row whose entries are all -infinity
  /// gives zeros (log: -infinity). `mask` i32 [rows, n] (stride 0 where broadcast, last stride 1 or 0) or
  /// undefined: where it is 0 the weight is 0 and a row with nothing allowed gives zeros.
  Fused<void(const Tensor& x, const Tensor& mask, bool log, const Tensor& out),
        void(const Tensor& y, const Tensor& grad, bool log, const Tensor& dx)>
      softmax;
  /// Over the last axis; x [rows, n], weight and bias [n] (undefined: 1 and 0), mean and inverse deviation
  /// [rows]. backward writes dx, and dweight and dbias when defined. `mean` undefined: the rows are taken as
  /// they are, not their differences from the mean (RMS normalisation, arXiv 1910.07467).
  Fused<void(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& out,
             const Tensor& mean, const Tensor& inverse_deviation),
        void(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& inverse_deviation,
             const Tensor& grad, const Tensor& dx, const Tensor& dweight, const Tensor& dbias)>
      layer_norm;
  /// The same of sum = residual + x keep / (1 - p), which is written, too; x, residual and sum [rows, n],
  /// keep as for dropout (p may be 0: nothing is drawn). backward: dsum = the gradient of sum through the
  /// normalisation, whose is grad, plus sum_grad (undefined: 0), and dx = dsum keep / (1 - p); dx is
  /// undefined where p is 0.
  Fused<void(const Tensor& x, const Tensor& residual, double p, const RandomKey& key, const Tensor& weight,
             const Tensor& bias, double epsilon, const Tensor& sum, const Tensor& out, const Tensor& mean,
             const Tensor& inverse_deviation),
        void(const Tensor& sum, const Tensor& weight, const Tensor& mean, const Tensor& inverse_deviation,
             const Tensor& grad, const Tensor& sum_grad, double p, const RandomKey& key, const Tensor& dsum,
             const Tensor& dx, const Tensor& dweight, const Tensor& dbias)>
      add_norm;
  /// Rotary positions: x, out [B, N, H, dh], contiguous, of which the pair of elements i and i + dh / 2 at
  /// position n is turned by the angle with the entries [n, i] of cosines and sines [N, dh / 2] (contiguous,
  /// f32, of an f64 x f64). backward turns back. out may be the same memory as x.
  Fused<void(const Tensor& x, const Tensor& cosines, const Tensor& sines, const Tensor& out),
        void(const Tensor& grad, const Tensor& cosines, const Tensor& sines, const Tensor& dx)>
      rotary;
  /// Label-smoothed cross entropy of each row: (1 - e) (-log p_target) + e mean_c(-log p_c); 0 where the
  /// target is `ignored`. logits [rows, classes], targets i32 [rows], loss [rows], log_sum_exp [rows, 2]: the
  /// largest logit, and how much the logarithm of the sum of exponentials is above it. A target outside [0,
  /// classes) that is not `ignored` throws. backward: grad [rows]; dlogits may be the same memory as logits.
  /// A backend with logit_chunks takes logits and dlogits whose rows are further apart.
  Fused<void(const Tensor& logits, const Tensor& targets, double smoothing, std::int32_t ignored,
             const Tensor& loss, const Tensor& log_sum_exp),
        void(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp, const Tensor& grad,
             double smoothing, std::int32_t ignored, const Tensor& dlogits)>
      cross_entropy;
  /// How to hold logits of so many rows and classes. Null: contiguous, about 4 Mi of them at a time, as a
  /// CPU's cache wants it.
  LogitChunks (*logit_chunks)(Device device, DType dtype, std::int64_t rows, std::int64_t classes) = nullptr;
  /// Never holds the N x M matrix. out and its gradient [B, H, N, dv] (last stride 1, otherwise any strides),
  /// sums [B, H, N, 2], contiguous, of statistics_type(): the largest score of a row, and the sum of
  /// exp(score - largest); -infinity and 0 for rows with no allowed key, whose output is 0. backward sees the
  /// very scores that forward saw, to the last bit, or large scores would give it other weights. dquery,
  /// dkey, dvalue have the shapes of query, key, value, last stride 1, otherwise any strides; dquery and dkey
  /// are both undefined where neither is wanted. log_sum_exp_grad [B, H, N], contiguous, is the gradient of
  /// largest + log(sum); undefined = 0. dbias, contiguous, has the shape of bias: a sum over what shares an
  /// entry of it, in a fixed order; undefined = not wanted. An entry of bias that is -infinity does not
  /// exist.
  Fused<void(const AttentionArgs&, const Tensor& out, const Tensor& sums),
        void(const AttentionArgs&, const Tensor& out, const Tensor& sums, const Tensor& grad,
             const Tensor& log_sum_exp_grad, const Tensor& dquery, const Tensor& dkey, const Tensor& dvalue,
             const Tensor& dbias)>
      attention;

  // --- lists of tensors ------------------------------------------------------------------------------------
  /// out[i] = x[i] factor, or out[i] + x[i] factor with `add`, for all tensors of two lists, contiguous, of
  /// equal sizes pair by pair; the floating dtypes of x[i] and out[i] may differ. factor: f32, one element;
  /// undefined = 1. out[i] may be the same memory as x[i]. Null: one by one.
  void (*scale_all)(std::span<const Tensor> x, const Tensor& factor, bool add,
                    std::span<const Tensor> out) = nullptr;

  // --- optimizers ------------------------------------------------------------------------------------------
  void (*adam)(const OptimizerStep&) = nullptr;
  void (*sgd)(const OptimizerStep&) = nullptr;
  /// out [tensors.size()]: the sum of squares of each tensor (contiguous). On the CPU out is f64 and so are
  /// the sums; elsewhere it is f32, added up in a fixed order in which errors stay small (pairwise).
  void (*sums_of_squares)(std::span<const Tensor> tensors, const Tensor& out) = nullptr;
};

/// The backend of a device. Throws an Error when the library was built without it or the device is absent.
const Backend& backend_of(Device device);
inline const Backend& backend_of(const Tensor& tensor) {
  return backend_of(tensor.device());
}

/// Defined by backends/cpu.
const Backend& cpu_backend();
/// Defined by backends/vulkan; by backends/no_vulkan.cpp, which throws, in a build without it.
const Backend& vulkan_backend();

/// While it lives on this thread, ops with a fused kernel run their composed body instead: the
/// oracle of the tests.
class ComposeOnly {
 public:
  ComposeOnly();
  ~ComposeOnly();
  ComposeOnly(const ComposeOnly&) = delete;
  ComposeOnly& operator=(const ComposeOnly&) = delete;
  static bool active();
};

/// True when both halves of a fused pair exist and no ComposeOnly scope is active.
template <class Forward, class Backward>
bool usable(const Fused<Forward, Backward>& fused) {
  return fused.forward && fused.backward && !ComposeOnly::active();
}

/// Throws an Error that names the op and the device when a required kernel is missing.
void require_kernel(bool present, const char* op, Device device);

}  // namespace heed
