#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/context.h"
#include "heed/models/initialise.h"
#include "heed/models/module.h"

namespace heed {

/// y = x W^T + b, with "weight" [out, in] (Xavier uniform) and, if asked for, "bias" [out] (0).
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool bias, Initialiser& initialiser, double gain = 1);
  /// [..., in] -> [..., out]; any other width throws an Error that names this layer.
  Tensor operator()(const Tensor& x) const;
  /// What each of some maps makes of the same x: one op (linear_maps).
  static std::vector<Tensor> each(std::initializer_list<const Linear*> maps, const Tensor& x);
  /// second(activation(first(x))): one op (feed_forward).
  static Tensor through(const Linear& first, UnaryOp activation, const Linear& second, const Tensor& x);

  /// LoRA (Hu et al., arXiv 2106.09685, eq. 3): y = x W^T + b + (alpha / rank) x A^T B^T, with "lora_a" A [rank, in]
  /// (N(0, 1 / rank)) and "lora_b" B [out, rank] (0), which alone are trained: W and b become buffers.
  void add_low_rank(std::int64_t rank, double alpha, Initialiser& initialiser);
  /// W, or W + (alpha / rank) B A: for those who compute with the matrix itself.
  Tensor matrix() const;

  Tensor weight, bias;

 private:
  /// y, or y + (alpha / rank) x A^T B^T.
  Tensor with_low_rank(const Tensor& x, const Tensor& y) const;

  Tensor lora_a_, lora_b_;  // undefined: none
  double lora_scale_ = 0;
};

/// A table of vectors, "weight" [count, width], normal with the given deviation.
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t width, double deviation, Initialiser& initialiser);
  /// i32 ids of any shape -> [..., width]; -1 gives zeros, any other id outside [0, count) throws an Error that names this
  /// layer.
  Tensor operator()(const Tensor& ids) const;

  Tensor weight;
};

/// How vectors are normalised, in the order of the setting's choices.
enum class NormKind { layer, rms };
/// By name; throws with the nearest name when there is none.
NormKind norm_kind_of(std::string_view name);

/// Normalisation over the last axis: layer normalisation (arXiv 1607.06450) with "weight" (1) and "bias" (0) of [width],
/// or RMS normalisation (Zhang and Sennrich 2019, arXiv 1910.07467), which has no mean and no bias.
class Norm : public Module {
 public:
  Norm(NormKind kind, std::int64_t width, double epsilon);
  Tensor operator()(const Tensor& x) const;
  /// residual + dropout(x) with probability p (it may be 0), and that normalised.
  NormedSum operator()(const Tensor& x, const Tensor& residual, double p, const RandomKey& key) const;

  Tensor weight, bias;  ///< bias: undefined for RMS normalisation

 private:
  NormKind kind_;
  double epsilon_;
};

/// Norm(NormKind::layer, ...).
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(std::int64_t width, double epsilon = 1e-5) : Norm(NormKind::layer, width, epsilon) {}
};

/// The nonlinearity of a feed-forward layer, in the order of the setting's choices.
enum class Activation { relu, gelu, gelu_tanh, silu, swiglu, geglu };
/// By name; throws with the nearest name when there is none.
Activation activation_of(std::string_view name);
/// True for those that multiply what they activate, the gate, with a second map of the input.
bool is_gated(Activation activation);
/// The activation of single elements: of a gated one that of its gate, silu or gelu.
UnaryOp op_of(Activation activation);
/// unary(op_of(activation), x).
Tensor apply(Activation activation, const Tensor& x);

/// y = dropout(activation(x W1^T + b1)) W2^T + b2 (Vaswani et al. 2017, eq. 2), or with a gated activation y =
/// dropout(activation(x Wg^T + bg) * (x W1^T + b1)) W2^T + b2 (Shazeer 2020, arXiv 2002.05202, eq. 6); parts "input",
/// "output" and, if gated, "gate", which is as wide as "input".
class FeedForward : public Module {
 public:
  FeedForward(std::int64_t width, std::int64_t hidden, Activation activation, double dropout,
              Initialiser& initialiser);
  Tensor operator()(const Tensor& x, Context& context) const;

 private:
  Tensor hidden(const Tensor& x) const;

  Linear input_, output_;
  std::unique_ptr<Linear> gate_;  // null: not gated
  Activation activation_;
  double dropout_;
};

/// dropout(x) while training, x otherwise.
Tensor maybe_dropout(const Tensor& x, double p, Context& context);

}  // namespace heed
