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

// The kernel contract: what the op layer (autograd/) expects of a backend (backends/).
//
// A backend is a struct of function pointers, filled with designated initialisers. A null entry means "not
// provided". The op layer validates shapes, dtypes and devices before every call and allocates every
// output. Unless an entry says otherwise, inputs may have any strides (0 where broadcast); outputs are
// contiguous and do not overlap inputs; the floating tensors of one call share one dtype (f32, or f64 on
// the CPU); index and mask tensors are i32. Tensors passed to kernels are never tracked.

namespace heed {

enum class ReduceOp : std::uint8_t { sum, max, min };

/// The arguments of scaled dot-product attention, shared by its forward and backward kernels.
struct AttentionArgs {
  Tensor query;     ///< [B, H, N, dk], last stride 1
  Tensor key;       ///< [B, H, M, dk], last stride 1
  Tensor value;     ///< [B, H, M, dv], last stride 1
  Tensor key_mask;  ///< i32 [B, M], 1 = real, 0 = padding; undefined = all real
  Tensor mask;      ///< i32, broadcast (stride 0) to [B, H, N, M], 1 = allowed; undefined = all allowed
  /// [H], contiguous, dtype statistics_type(): scores get -slopes[h] |i + M - N - j|; undefined = none.
  Tensor slopes;
  Tensor bias;  ///< [1 or B, 1 or H, N, M], last stride 1, added to the scaled scores; undefined = none
  double scale = 1;
  bool causal = false;                    ///< allow key j for query i only when j <= i + M - N
  const BlockPattern* pattern = nullptr;  ///< which blocks of the N x M matrix exist; null = all
  double dropout = 0;                     ///< probability of zeroing a weight after the softmax
  RandomKey dropout_key;  ///< word ((b H + h) N + i) M + j of the stream decides about weight [b, h, i, j]
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
  Tensor skip;            ///< i32, one element: the step changes nothing unless it is 0; undefined = 0
  double learning_rate = 0;
  double beta1 = 0.9;  ///< for SGD: the momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled_decay = false;  ///< true: AdamW (arXiv 1711.05101); false: decay is added to the gradient
  std::int64_t step = 1;         ///< counts from 1, for Adam's bias correction
};

/// How linear_cross_entropy splits the logits [rows, classes] into chunks of rows.
struct LogitChunks {
  std::int64_t rows = 1;   ///< rows per chunk, at least 1
  std::int64_t pitch = 0;  ///< elements from one row to the next, at least the number of classes
};

struct Backend {
  std::string_view name;

  // --- memory ----------------------------------------------------------------------------------------------
  std::shared_ptr<Storage> (*allocate)(Device device, std::size_t bytes) = nullptr;
  /// Copies between host and device. The tensor is contiguous, the host buffer holds count() elements.
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
  /// out = grad * dy/dx; `saved` is x or y, as core/elementwise.def says. `out` may alias grad or saved.
  void (*unary_backward)(UnaryOp, UnaryParams, const Tensor& saved, const Tensor& grad,
                         const Tensor& out) = nullptr;
  /// a and b have the shape of out (stride 0 where broadcast). `out` may alias a contiguous a or b.
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
  /// (stride 0 where broadcast). The last two strides of a and b are (s, 1) or (1, s), those of out (s, 1),
  /// where s is at least the extent of the other axis. bias [n] is contiguous or undefined. beta is 0 or 1;
  /// with 0 the old content of out is ignored. Backends with half types also accept half a and b with an
  /// f32 out and bias.
  void (*matmul)(const Tensor& a, const Tensor& b, const Tensor& bias, double beta,
                 const Tensor& out) = nullptr;
  /// The gradients of a linear map in one pass over grad: dweight [out, in] = grad' x, dbias [out] = the
  /// sum of the rows of grad; grad [rows, out], x [rows, in], all contiguous. Null: the op layer runs a
  /// product and a reduction instead.
  void (*linear_gradients)(const Tensor& grad, const Tensor& x, const Tensor& dweight,
                           const Tensor& dbias) = nullptr;
  /// A linear map whose product applies an activation, one of activation_ops: out = activation(sums), sums
  /// = x weight' + bias. x [rows, in], weight [out, in], bias [out] or undefined, sums and out [rows, out];
  /// sums is not written when undefined. backward goes through the next linear map and the activation:
  /// dsums = (grad weight) activation'(saved), with grad [rows, out], weight [out, in], saved and dsums
  /// [rows, in]. saved is sums or activation(sums), as core/elementwise.def says. All contiguous.
  Fused<void(const Tensor& x, const Tensor& weight, const Tensor& bias, UnaryOp activation,
             const Tensor& sums, const Tensor& out),
        void(const Tensor& grad, const Tensor& weight, UnaryOp activation, const Tensor& saved,
             const Tensor& dsums)>
      activated_linear = {};
  /// Several linear maps of the same x in one call, for shapes where a single product would not keep all
  /// threads busy: outs[i] [rows, out_i] = x weights[i]' + biases[i]. x [rows, in], weights[i] [out_i, in],
  /// biases[i] [out_i] or undefined, all contiguous; the three lists have equal lengths. Null: one product
  /// after the other.
  void (*linear_maps)(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                      std::span<const Tensor> outs) = nullptr;
  /// The products of their backward pass in one call: dx [rows, in] = the sum over i of grads[i]
  /// weights[i], in the order of i; dweights[i] [out_i, in] = grads[i]' x + beta dweights[i]. grads[i]
  /// [rows, out_i]; the other arguments are as above, beta as for matmul. Null: one product after the
  /// other.
  void (*linear_backward)(std::span<const Tensor> grads, const Tensor& x, std::span<const Tensor> weights,
                          double beta, const Tensor& dx, std::span<const Tensor> dweights) = nullptr;

  // --- indices ---------------------------------------------------------------------------------------------
  /// out[b, i, :] = x[b, index[b, i], :]; x [batch, n, width], index [batch, m], out [batch, m, width], all
  /// contiguous. Index -1 gives a row of zeros; any other index outside [0, n) throws. Any dtype.
  void (*gather_rows)(const Tensor& x, const Tensor& index, const Tensor& out) = nullptr;
  /// out[b, index[b, i], :] += x[b, i, :]; x [batch, m, width], out [batch, n, width], all contiguous. Index
  /// -1 is skipped, any other outside [0, n) throws. Rows with the same target are added in the order of i.
  void (*scatter_add_rows)(const Tensor& x, const Tensor& index, const Tensor& out) = nullptr;
  /// Stable: equal values keep their order, NaN sorts last. x contiguous [rows, n] of any dtype,
  /// out i32 [rows, n].
  void (*argsort)(const Tensor& x, bool descending, const Tensor& out) = nullptr;
  /// The k largest of each row in descending order; ties go to the lower position. x [rows, n], out i32
  /// [rows, k].
  void (*top_k)(const Tensor& x, const Tensor& out) = nullptr;

  // --- random numbers --------------------------------------------------------------------------------------
  void (*uniform)(const RandomKey& key, double low, double high, const Tensor& out) = nullptr;
  /// Box-Muller on consecutive pairs of elements of the stream.
  void (*normal)(const RandomKey& key, double mean, double deviation, const Tensor& out) = nullptr;
  /// out = residual + x keep / (1 - p) with keep = unit_interval(word i) >= p, where i is the row-major
  /// index. Tensors are contiguous; residual may be undefined (0). `out` may alias x or residual.
  void (*dropout)(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                  const Tensor& out) = nullptr;

  // --- fused operations: each also has a composed body in the op layer -------------------------------------
  /// Softmax or log-softmax over the last axis of contiguous [rows, n]. A row whose entries are all
  /// -infinity gives zeros (log: -infinity). `mask` is i32 [rows, n] (stride 0 where broadcast, last stride
  /// 1 or 0) or undefined: masked entries (0) get weight 0, and a fully masked row gives zeros.
  Fused<void(const Tensor& x, const Tensor& mask, bool log, const Tensor& out),
        void(const Tensor& y, const Tensor& grad, bool log, const Tensor& dx)>
      softmax;
  /// Over the last axis; x [rows, n], weight and bias [n] (undefined: 1 and 0), mean and inverse deviation
  /// [rows]. backward writes dx, and also dweight and dbias when they are defined. With `mean` undefined no
  /// mean is subtracted (RMS normalisation, arXiv 1910.07467).
  Fused<void(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& out,
             const Tensor& mean, const Tensor& inverse_deviation),
        void(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& inverse_deviation,
             const Tensor& grad, const Tensor& dx, const Tensor& dweight, const Tensor& dbias)>
      layer_norm;
  /// layer_norm of sum = residual + x keep / (1 - p), which is also written; x, residual and sum [rows, n],
  /// keep as for dropout (nothing is drawn when p is 0). In backward, grad is the gradient of the
  /// normalised output and sum_grad (undefined: 0) that of sum. dsum is their joint gradient: sum_grad plus
  /// what grad passes back through the normalisation. dx = dsum keep / (1 - p), undefined when p is 0.
  Fused<void(const Tensor& x, const Tensor& residual, double p, const RandomKey& key, const Tensor& weight,
             const Tensor& bias, double epsilon, const Tensor& sum, const Tensor& out, const Tensor& mean,
             const Tensor& inverse_deviation),
        void(const Tensor& sum, const Tensor& weight, const Tensor& mean, const Tensor& inverse_deviation,
             const Tensor& grad, const Tensor& sum_grad, double p, const RandomKey& key, const Tensor& dsum,
             const Tensor& dx, const Tensor& dweight, const Tensor& dbias)>
      add_norm;
  /// Rotary positions: in x and out [B, N, H, dh], contiguous, the elements i and i + dh / 2 of every head
  /// at position n are rotated by the angle whose cosine and sine are cosines[n, i] and sines[n, i], both
  /// [N, dh / 2] (contiguous, f32; f64 for an f64 x). backward rotates the other way. out may alias x.
  Fused<void(const Tensor& x, const Tensor& cosines, const Tensor& sines, const Tensor& out),
        void(const Tensor& grad, const Tensor& cosines, const Tensor& sines, const Tensor& dx)>
      rotary;
  /// Label-smoothed cross entropy per row: (1 - e) (-log p_target) + e mean_c(-log p_c); 0 where the target
  /// is `ignored`. logits [rows, classes], targets i32 [rows], loss [rows]. log_sum_exp [rows, 2] holds the
  /// largest logit and the log-sum-exp minus it. A target outside [0, classes) that is not `ignored`
  /// throws. backward: grad [rows]; dlogits may alias logits. A backend that provides logit_chunks must
  /// accept a row pitch larger than `classes` in logits and dlogits.
  Fused<void(const Tensor& logits, const Tensor& targets, double smoothing, std::int32_t ignored,
             const Tensor& loss, const Tensor& log_sum_exp),
        void(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp, const Tensor& grad,
             double smoothing, std::int32_t ignored, const Tensor& dlogits)>
      cross_entropy;
  /// How to chunk this many logits. Null: contiguous chunks of about 4 Mi logits, which fit a CPU's cache.
  LogitChunks (*logit_chunks)(Device device, DType dtype, std::int64_t rows, std::int64_t classes) = nullptr;
  /// Never holds the N x M matrix. out and its gradient [B, H, N, dv] have last stride 1 and otherwise any
  /// strides. sums [B, H, N, 2], contiguous, dtype statistics_type(), holds for each row its largest score
  /// and the sum of exp(score - largest): -infinity and 0 for rows without an allowed key, whose output is
  /// 0.
  ///
  /// backward recomputes exactly the scores of forward, to the last bit; otherwise large scores would give
  /// other weights. dquery, dkey and dvalue have the shapes of query, key and value, with last stride 1 and
  /// otherwise any strides; dquery and dkey are both undefined when neither is wanted. log_sum_exp_grad [B,
  /// H, N], contiguous, is the gradient of largest + log(sum); undefined = 0. dbias, contiguous, has the
  /// shape of bias and sums, in a fixed order, over everything that shares an entry; undefined = not
  /// wanted. A bias of -infinity excludes the pair.
  Fused<void(const AttentionArgs&, const Tensor& out, const Tensor& sums),
        void(const AttentionArgs&, const Tensor& out, const Tensor& sums, const Tensor& grad,
             const Tensor& log_sum_exp_grad, const Tensor& dquery, const Tensor& dkey, const Tensor& dvalue,
             const Tensor& dbias)>
      attention;

  // --- lists of tensors ------------------------------------------------------------------------------------
  /// out[i] = x[i] factor, or out[i] + x[i] factor with `add`, for two lists of contiguous tensors of
  /// pairwise equal sizes; the floating dtypes of x[i] and out[i] may differ. factor: f32, one element;
  /// undefined = 1. out[i] may alias x[i]. Null: the op layer handles them one by one.
  void (*scale_all)(std::span<const Tensor> x, const Tensor& factor, bool add,
                    std::span<const Tensor> out) = nullptr;

  // --- optimizers ------------------------------------------------------------------------------------------
  void (*adam)(const OptimizerStep&) = nullptr;
  void (*sgd)(const OptimizerStep&) = nullptr;
  /// out [tensors.size()]: the sum of squares of each tensor (contiguous). On the CPU out and the sums are
  /// f64; elsewhere they are f32, summed pairwise in a fixed order to keep rounding errors small.
  void (*sums_of_squares)(std::span<const Tensor> tensors, const Tensor& out) = nullptr;
};

/// The backend of a device. Throws an Error when the library was built without it or the device is absent.
const Backend& backend_of(Device device);
inline const Backend& backend_of(const Tensor& tensor) {
  return backend_of(tensor.device());
}

/// Defined by backends/cpu.
const Backend& cpu_backend();
/// Defined by backends/vulkan, or in a build without it by backends/no_vulkan.cpp, which throws.
const Backend& vulkan_backend();

/// While it lives on this thread, ops with a fused kernel run their composed body instead: the reference
/// that tests compare fused kernels with.
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
