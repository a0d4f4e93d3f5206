#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/core/random.h"
#include "heed/core/tensor.h"

namespace heed {

/// A parameter or buffer with its dotted name, for example "encoder.layers.0.attention.query.weight".
struct NamedTensor {
  std::string name;
  Tensor* tensor;
};

/// A part of a model that owns named parameters and other parts. Members are registered by address, so a
/// module neither moves nor copies; hold parts by value or unique_ptr and register them in the constructor.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// All parameters of this module and its parts, in registration order, each once even when shared.
  std::vector<NamedTensor> parameters();
  /// Tensors that are saved with the model but not trained by gradient.
  std::vector<NamedTensor> buffers();
  /// parameters() followed by buffers(): what a model file holds.
  std::vector<NamedTensor> state();
  /// Replaces every floating parameter and buffer by a copy of another dtype and device; parameters become
  /// fresh leaves. Buffers of integers stay on the CPU: they say how patterns are built, which the host does.
  void to(DType dtype, Device device);
  /// To be called when parameters or buffers were given new values from outside, such as from a file: what
  /// this module and its parts have worked out from the old ones is forgotten.
  void state_changed();
  /// Makes buffers of the parameters of this module and its parts: they are saved with the model and no
  /// longer trained.
  void freeze();
  /// round_to_int8() of every matrix among the parameters: for computing with a model token by token, when
  /// reading the weights takes the time. Throws an Error unless they are f32 and on the CPU.
  void round_to_int8();
  /// Calls visit for this module and all parts, those that are shared once for each owner.
  void for_each_part(const std::function<void(Module&)>& visit);
  /// Moves buffers by what a pass has seen (Context::observe). Throws an Error for a module that has none to
  /// move.
  virtual void absorb(std::span<const Tensor> values);
  /// The module of a path() below this one, or this one itself; null when there is none.
  Module* find(std::string_view path);
  /// Number of trained elements.
  std::int64_t parameter_count();
  /// The dotted name of this module inside the model it is part of, for error messages; "" for the model
  /// itself. A part that several modules share is named after the first that registered it.
  std::string path() const;

 protected:
  /// Forgets what was worked out from parameters and buffers.
  virtual void forget() {}
  /// Makes `member` a tracked leaf that holds `initial`.
  void add_parameter(std::string name, Tensor& member, const Tensor& initial);
  void add_buffer(std::string name, Tensor& member, const Tensor& initial);
  void add_module(std::string name, Module& part);
  /// The beginning of an error message: path and kind, as in "encoder.layers.0.attention (Linear)".
  std::string described(const char* kind) const;

 private:
  std::vector<NamedTensor> collected(std::vector<NamedTensor> Module::*list);

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::pair<std::string, Module*>> parts_;
  const Module* parent_ = nullptr;
  std::string name_;  // in the parent
};

/// A loss term that a layer adds to the task's loss, such as ClusterFormer's clustering loss.
struct AuxiliaryLoss {
  std::string name;
  double weight = 1;
  Tensor value;  ///< of one element
};

/// What a forward pass shows of its inside on request: cluster assignments, orders, attention weights. A slow
/// path: what is computed for it alone is computed only when somebody asks.
struct Capture {
  struct Entry {
    std::string layer;  ///< the path of the layer in the model, such as "encoder.layers.0.attention"
    std::string name;   ///< "order", "assignment", ...
    Tensor value;       ///< detached
  };
  std::vector<Entry> entries;  ///< in the order of the pass

  /// The last value of this name, of any layer; undefined when there is none.
  Tensor find(std::string_view name) const;
};

class Module;

/// What a training pass has seen that moves buffers of a layer, such as the centroids of routing attention.
struct Observation {
  Module* layer;               ///< whose Module::absorb() takes it
  std::vector<Tensor> values;  ///< detached
};

/// What travels through one forward pass: whether it trains, its random keys, what layers add to the loss,
/// and what passes from layer to layer.
struct Context {
  bool training = false;
  Random random{0};
  std::vector<AuxiliaryLoss> losses;
  /// What layers hand to later ones of their stack, by a name that the variant owns, such as
  /// "clusterformer.centroids". Empty where a stack begins.
  std::map<std::string, Tensor> handed_on;
  Capture* capture = nullptr;  ///< where layers leave what they show of their inside; null: nobody looks
  /// Where layers leave what moves their buffers, so that all batches of a step see the same ones and their
  /// order alone decides (the Trainer); null: the buffers move at once.
  std::vector<Observation>* observations = nullptr;

  /// A context for one training step.
  static Context train(std::uint64_t seed, std::uint32_t step) { return {true, Random(seed, step), {}, {}}; }
  static Context inference() { return {}; }

  /// Hands `values` to layer.absorb(), at once or through `observations`.
  void observe(Module& layer, std::vector<Tensor> values);

  /// The weighted sum of `losses`; undefined when there are none.
  Tensor auxiliary_loss() const;
};

/// The contexts of a training loop of your own, one step after the other: no step draws the masks of another
/// because its number was forgotten.
class Rng {
 public:
  /// `step`: how many steps were done before, for a training that goes on.
  explicit Rng(std::uint64_t seed, std::uint32_t step = 0) : seed_(seed), step_(step) {}

  /// The context of the next step; the first is number 1. Throws an Error after 2^32 - 1 of them.
  Context next_step();
  /// Of the step that next_step() gave last.
  std::uint32_t step() const { return step_; }

 private:
  std::uint64_t seed_;
  std::uint32_t step_;
};

class Module;

/// While one lives on a thread, that thread builds models whose parameters and buffers have their shapes but
/// hold next to no memory: every element is the same zero. All checks of constructors happen, and a model of
/// any size is there within milliseconds, to be counted and thrown away; its values mean nothing.
class ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  static bool active();
  /// A tensor of this shape over one element. Throws an Error where the number of elements does not fit.
  static Tensor tensor(const Shape& shape, DType dtype = DType::f32);

 private:
  bool previous_;
};

/// What a model holds.
struct ModelCost {
  std::int64_t parameters = 0;  ///< trained elements, those that are shared counted once
  std::int64_t buffers = 0;     ///< elements that are saved with the model but not trained
};
/// Counts with checked arithmetic: an Error where a sum does not fit. Of a model that was built within
/// ShapesOnly as of any other.
ModelCost cost_of(Module& model);

/// Draws the initial values of parameters. Every call takes the next stream of the seed, so a model that is
/// built again in the same order has the same parameters. Streams are apart from those of training steps.
class Initialiser {
 public:
  explicit Initialiser(std::uint64_t seed) : key_{seed, initial_step, 0} {}

  /// U(-a, a) with a = gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 16).
  Tensor xavier_uniform(const Shape& shape, std::int64_t fan_in, std::int64_t fan_out, double gain = 1);
  /// The same for a linear map's weight [out, in].
  Tensor xavier_uniform(std::int64_t out, std::int64_t in, double gain = 1) {
    return xavier_uniform({out, in}, in, out, gain);
  }
  Tensor uniform(const Shape& shape, double low, double high);
  Tensor normal(const Shape& shape, double deviation);
  /// The same value everywhere; draws nothing.
  static Tensor constant(const Shape& shape, double value, DType dtype = DType::f32);
  /// A seed for a part that makes its own Initialiser, such as an attention variant.
  std::uint64_t next_seed();

 private:
  static constexpr std::uint32_t initial_step = 0xffffffff;  // no training run gets that far
  RandomKey next();

  RandomKey key_;
};

}  // namespace heed
