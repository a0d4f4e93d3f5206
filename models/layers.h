#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/module.h"

namespace heed {

struct TransformerConfig;  // models/config.h

/// y = x W^T + b, with "weight" [out, in] and, when requested, "bias" [out]; their first values are
/// initialiser.linear_weight() and linear_bias().
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool bias, Initialiser& initialiser, double gain = 1);
  /// Maps [..., in] to [..., out]. Throws an Error that names this layer for any other width.
  Tensor operator()(const Tensor& x) const;
  /// Applies several maps to the same x, in one op (linear_maps).
  static std::vector<Tensor> each(std::initializer_list<const Linear*> maps, const Tensor& x);
  /// Computes second(activation(first(x))) in one op (feed_forward).
  static Tensor through(const Linear& first, UnaryOp activation, const Linear& second, const Tensor& x);

  /// Adds LoRA (Hu et al., arXiv 2106.09685, eq. 3): y = x W^T + b + (alpha / rank) x A^T B^T, with
  /// "lora_a" A [rank, in] (N(0, 1 / rank)) and "lora_b" B [out, rank] (0). Only A and B are
  /// trained: W and b become buffers.
  void add_low_rank(std::int64_t rank, double alpha, Initialiser& initialiser);
  /// Returns W, or W + (alpha / rank) B A, for code that needs the matrix itself.
  Tensor matrix() const;

  Tensor weight, bias;

 private:
  /// Returns y, or y + (alpha / rank) x A^T B^T.
  Tensor with_low_rank(const Tensor& x, const Tensor& y) const;

  Tensor lora_a_, lora_b_;  // undefined: no low-rank part
  double lora_scale_ = 0;
};

/// A table of vectors, "weight" [count, width], initialised N(0, deviation^2).
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t width, double deviation, Initialiser& initialiser);
  /// Maps i32 ids of any shape to [..., width]; -1 gives zeros. Throws an Error that names this
  /// layer for any other id outside [0, count).
  Tensor operator()(const Tensor& ids) const;

  Tensor weight;
};

/// The kinds of normalisation, in the order of the setting's choices; `none` changes nothing.
enum class NormKind { layer, rms, none };
/// The kind with this name; throws with the nearest name when there is none.
NormKind find_norm_kind(std::string_view name);

/// Normalisation over the last axis: layer normalisation (arXiv 1607.06450) with "weight" (1) and
/// "bias" (0) of [width], or RMS normalisation (Zhang and Sennrich 2019, arXiv 1910.07467), without
/// mean and bias.
class Norm : public Module {
 public:
  Norm(NormKind kind, std::int64_t width, double epsilon);
  /// Takes kind, width and epsilon from the configuration.
  explicit Norm(const TransformerConfig& config);
  Tensor operator()(const Tensor& x) const;
  /// Returns residual + dropout(x) with probability p (may be 0), and the normalised sum.
  NormedSum operator()(const Tensor& x, const Tensor& residual, double p, const RandomKey& key) const;

  Tensor weight, bias;  ///< bias: undefined for RMS normalisation

 private:
  NormKind kind_;
  double epsilon_;
};

/// Layer normalisation: Norm(NormKind::layer, ...).
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(std::int64_t width, double epsilon = 1e-5) : Norm(NormKind::layer, width, epsilon) {}
};

/// The nonlinearities of a feed-forward layer, in the order of the setting's choices.
enum class Activation { relu, gelu, gelu_tanh, silu, swiglu, geglu, geglu_tanh };
/// The activation with this name; throws with the nearest name when there is none.
Activation find_activation(std::string_view name);
/// True for activations that multiply the activated gate with a second map of the input.
bool is_gated(Activation activation);
/// Returns the op that is applied to single elements; for a gated activation that of its gate.
UnaryOp activation_op(Activation activation);
/// Applies the activation: unary(activation_op(activation), x).
Tensor apply(Activation activation, const Tensor& x);

/// y = dropout(activation(x W1^T + b1)) W2^T + b2 (Vaswani et al. 2017, eq. 2), or with a gated
/// activation y = dropout(activation(x Wg^T + bg) * (x W1^T + b1)) W2^T + b2 (Shazeer 2020, arXiv
/// 2002.05202, eq. 6, which has no biases); parts "input", "output" and, if gated, "gate", which is
/// as wide as "input".
class FeedForward : public Module {
 public:
  FeedForward(std::int64_t width, std::int64_t hidden, Activation activation, double dropout,
              Initialiser& initialiser, bool bias = true);
  /// Takes all sizes, the activation and the dropout from the configuration.
  FeedForward(const TransformerConfig& config, Initialiser& initialiser);
  Tensor operator()(const Tensor& x, Context& context) const;

 private:
  Tensor hidden(const Tensor& x) const;

  Linear input_, output_;
  std::unique_ptr<Linear> gate_;  // null: not gated
  Activation activation_;
  double dropout_;
};

/// Returns dropout(x) while training, x otherwise.
Tensor maybe_dropout(const Tensor& x, double p, Context& context);
/// Drops whole rows of x [..., n] while training: each is zeroed with probability p, or divided by
/// 1 - p.
Tensor drop_tokens(const Tensor& x, double p, Context& context);

/// A part of a model that maps a tensor to a tensor, with or without a Context.
template <class Layer>
concept LayerOfTensors = std::derived_from<Layer, Module> &&
    (std::is_invocable_r_v<Tensor, Layer&, const Tensor&, Context&> ||
     std::is_invocable_r_v<Tensor, Layer&, const Tensor&>);

/// Runs gradcheck() of a layer with respect to x and every parameter, without dropout.
template <LayerOfTensors Layer>
ModuleGradcheckResult gradcheck(Layer& layer, const Tensor& x, double tolerance = 1e-6) {
  const auto output = [&](std::span<const Tensor> in) {
    Context context = Context::inference();
    if constexpr (std::is_invocable_v<Layer&, const Tensor&, Context&>)
      return layer(in[0], context);
    else
      return layer(in[0]);
  };
  return gradcheck(layer, output, {x}, tolerance);
}

/// Layers and functions applied one after the other. Their names "0", "1", ... are their places in
/// the sequence; functions count too.
///
///   heed::Sequential net;
///   net.emplace<heed::Linear>(2, 32, true, initialiser);
///   net.add(heed::gelu);
///   net.emplace<heed::Linear>(32, 1, true, initialiser);
class Sequential : public Module {
 public:
  /// Builds a layer from these arguments and appends it.
  template <LayerOfTensors Layer, class... Arguments>
  Layer& emplace(Arguments&&... arguments) {
    auto layer = std::make_unique<Layer>(std::forward<Arguments>(arguments)...);
    Layer& added = *layer;
    add_module(std::to_string(steps_.size()), added);
    steps_.push_back([&added](const Tensor& x, Context& context) {
      if constexpr (std::is_invocable_v<Layer&, const Tensor&, Context&>)
        return added(x, context);
      else
        return added(x);
    });
    layers_.push_back(std::move(layer));
    return added;
  }
  /// Appends a function. Throws when it is empty.
  void add(std::function<Tensor(const Tensor&)> function);

  std::size_t size() const { return steps_.size(); }
  /// Passes x through all layers; returns x itself when there are none.
  Tensor operator()(const Tensor& x, Context& context) const;
  /// Passes x through all layers for inference.
  Tensor operator()(const Tensor& x) const;

 private:
  std::vector<std::unique_ptr<Module>> layers_;
  std::vector<std::function<Tensor(const Tensor&, Context&)>> steps_;
};

/// Parts of one kind, named "0", "1", ..., that a model calls itself.
template <std::derived_from<Module> Part>
class ModuleList : public Module {
 public:
  /// Builds a part from these arguments and appends it.
  template <class... Arguments>
  Part& emplace(Arguments&&... arguments) {
    parts_.push_back(std::make_unique<Part>(std::forward<Arguments>(arguments)...));
    add_module(std::to_string(parts_.size() - 1), *parts_.back());
    return *parts_.back();
  }
  std::size_t size() const { return parts_.size(); }
  /// Throws for an index beyond the end.
  Part& operator[](std::size_t index) const {
    check(index < parts_.size(), "module list: there is no part ", index, " among ", parts_.size());
    return *parts_[index];
  }

 private:
  std::vector<std::unique_ptr<Part>> parts_;
};

/// A table of all parameters and buffers with their shapes and element counts, and the totals.
std::string summary(Module& model);

/// Prepares fine-tuning with few weights (LoRA: Hu et al., arXiv 2106.09685). When config.lora_rank
/// is set, all embeddings, inputs, convolutions and stacks of the model are frozen
/// (Module::freeze), and the maps whose path ends in one of config.lora_maps get a low-rank part
/// (Linear::add_low_rank). Parts that belong to a task (output, comparison, pooling) are trained as
/// before. Throws an Error that lists the available names when a name matches no map.
void add_low_rank_parts(Module& model, const TransformerConfig& config);

/// Merges the low-rank parts into the weights: `name`.weight becomes `name`.weight + (alpha / rank)
/// B A for each `name` with `name`.lora_a and `name`.lora_b, which are dropped.
std::map<std::string, Tensor> merge_low_rank(std::map<std::string, Tensor> weights,
                                             const TransformerConfig& config);

}  // namespace heed
