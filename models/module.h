#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/autograd/autograd.h"
#include "heed/core/random.h"
#include "heed/core/tensor.h"

namespace heed {

/// A parameter or buffer with its dotted name, for example
/// "encoder.layers.0.attention.query.weight".
struct NamedTensor {
  std::string name;
  Tensor* tensor;
};

/// True when a leaf, if it is a matrix, maps one hidden layer to another. Optimizers may treat such
/// maps in their own way (OptimizerKind::muon). It is true for parameter(). Among the parameters of
/// a Module it is true for those of Linear, except the maps to classes at the end of heed's models.
bool is_hidden_map(const Tensor& leaf);
/// Sets is_hidden_map() of a leaf. Pass false for tables of vectors and for the last map of your
/// own model.
void set_hidden_map(const Tensor& leaf, bool is_map);

/// A part of a model that owns named parameters and other parts. Members are registered by address,
/// so a module can be neither moved nor copied. Parts declared as Part<Kind> and parameters
/// declared as Parameter register themselves, in the order of the members. Where settings decide
/// which parts exist, as in heed's own models, the constructor registers all of them with
/// add_module(), add_parameter() and add_buffer().
class Module {
 public:
  virtual ~Module() = default;
  Module& operator=(Module&&) = delete;

  /// All parameters of this module and its parts, in registration order; shared ones appear once.
  std::vector<NamedTensor> parameters() { return collected(&Module::parameters_); }
  /// Tensors that are saved with the model but not trained by gradient.
  std::vector<NamedTensor> buffers() { return collected(&Module::buffers_); }
  /// Returns parameters() followed by buffers(), the content of a model file.
  std::vector<NamedTensor> state();
  /// Replaces every floating parameter and buffer by a copy of the given dtype on the given device;
  /// parameters become new leaves. Integer buffers stay on the CPU: they describe patterns, which
  /// the host builds.
  void to(DType dtype, Device device);
  /// Makes this module and its parts discard values derived from parameters and buffers. Call it
  /// after these received new values from outside, for example from a file.
  void state_changed();
  /// Turns the parameters of this module and its parts into buffers: they are still saved with the
  /// model but no longer trained.
  void freeze();
  /// Applies round_to_int8() to every matrix among the parameters, for running a model token by
  /// token, where reading the weights takes most of the time. Throws an Error unless they are f32
  /// and on the CPU.
  void round_to_int8();
  /// Applies round_to_bf16() to every matrix among the parameters, under the same conditions.
  void round_to_bf16();
  /// Calls visit for this module and all its parts; a shared part is visited once per owner.
  void for_each_part(const std::function<void(Module&)>& visit);
  /// Updates buffers from the values that a pass observed (Context::observe). Throws an Error for a
  /// module without such buffers.
  virtual void absorb(std::span<const Tensor> values);
  /// Returns the part whose path() is `path`, or this module itself; null when there is none.
  Module* find(std::string_view path);
  /// Returns the number of trained elements; shared ones count once. Throws an Error when the sum
  /// overflows.
  std::int64_t parameter_count();
  /// Returns the dotted name of this module within its model, for error messages; "" for the model
  /// itself. A part shared by several modules is named after the first one that registered it.
  std::string path() const;

 protected:
  /// Discards values derived from parameters and buffers.
  virtual void forget() {}
  /// Makes `member` a tracked leaf with the values of `initial`. `hidden_map` sets its
  /// is_hidden_map().
  void add_parameter(std::string name, Tensor& member, const Tensor& initial, bool hidden_map = false);
  void add_buffer(std::string name, Tensor& member, const Tensor& initial);
  void add_module(std::string name, Module& part);
  /// Returns the start of an error message: path and kind, such as "encoder.layers.0.attention
  /// (Linear)".
  std::string described(const char* kind) const;

 private:
  template <class Kind>
  friend class Part;
  friend class Parameter;

  void round_matrices(void (*round)(const Tensor&), const char* format);
  std::vector<NamedTensor> collected(std::vector<NamedTensor> Module::*list);

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::pair<std::string, Module*>> parts_;
  const Module* parent_ = nullptr;
  std::string name_;  // in the parent
};

/// A part that its owner registers by declaring it:
///
///   class Mlp : public heed::Module {
///    public:
///     heed::Tensor operator()(const heed::Tensor& x) const {
///       return out_(heed::gelu(in_(x)) * scale_);
///     }
///
///    private:
///     heed::Initialiser initialiser_{1};
///     heed::Part<heed::Linear> in_{*this, "in", 2, 32, true, initialiser_};
///     heed::Parameter scale_{*this, "scale", heed::Tensor::ones({32})};
///     heed::Part<heed::Linear> out_{*this, "out", 32, 1, true, initialiser_};
///   };
template <class Kind>
class Part : public Kind {
 public:
  /// Builds the part from `arguments`.
  template <class... Arguments>
  Part(Module& owner, const std::string& name, Arguments&&... arguments)
      : Kind(std::forward<Arguments>(arguments)...) {
    owner.add_module(name, *this);
  }
};

/// A parameter that its owner registers by declaring it (see Part).
class Parameter : public Tensor {
 public:
  Parameter(Module& owner, std::string name, const Tensor& initial) {
    owner.add_parameter(std::move(name), *this, initial);
  }
};

/// The outcome of a module's gradient check.
struct ModuleGradcheckResult : GradcheckResult {
  std::string worst_name;  ///< "input 0" or the name of a parameter
};

/// Runs gradcheck() of function(inputs) with respect to every floating input and every parameter of
/// `module`, which must be f64 (Module::to). The module is left as it was.
ModuleGradcheckResult gradcheck(Module& module,
                                const std::function<Tensor(std::span<const Tensor>)>& function,
                                std::vector<Tensor> inputs = {}, double tolerance = 1e-6, double step = 1e-5,
                                std::int64_t max_elements = 64);

/// A loss term that a layer adds to the task's loss, such as ClusterFormer's clustering loss.
struct AuxiliaryLoss {
  std::string name;
  double weight = 1;
  Tensor value;  ///< one element
};

/// Internals that a forward pass records on request: cluster assignments, orders, attention
/// weights. A slow path: values needed only for it are computed only when a Capture is attached.
struct Capture {
  struct Entry {
    std::string layer;  ///< the layer's path, such as "encoder.layers.0.attention"
    std::string name;   ///< "order", "assignment", ...
    Tensor value;       ///< detached
  };
  std::vector<Entry> entries;  ///< in the order of computation

  /// The last value of this name, from any layer; undefined when there is none.
  Tensor find(std::string_view name) const;
};

/// Values from a training pass that update a layer's buffers, such as the centroids of routing
/// attention.
struct Observation {
  Module* layer;               ///< its Module::absorb() receives the values
  std::vector<Tensor> values;  ///< detached
};

/// The state of one forward pass: whether it is training, its random keys, the losses that layers
/// add, and the tensors that layers pass to later ones.
struct Context {
  bool training = false;
  Random random{0};
  std::vector<AuxiliaryLoss> losses;
  /// Tensors that layers pass to later ones of their stack, under a name chosen by the attention
  /// variant, such as "clusterformer.centroids". Empty at the start of a stack.
  std::map<std::string, Tensor> shared_tensors;
  Capture* capture = nullptr;  ///< where layers record their internals; null: nowhere
  /// Where layers leave updates of their buffers, so that all batches of a step see the same
  /// buffers and the result depends only on the order of the batches (the Trainer); null: buffers
  /// are updated at once.
  std::vector<Observation>* observations = nullptr;

  /// Returns the context of one training step.
  static Context train(std::uint64_t seed, std::uint32_t step) { return {true, Random(seed, step), {}, {}}; }
  static Context inference() { return {}; }

  /// Passes `values` to layer.absorb(), at once or through `observations`.
  void observe(Module& layer, std::vector<Tensor> values);

  /// Returns the weighted sum of `losses`; undefined when there are none.
  Tensor auxiliary_loss() const;
};

/// Makes the contexts of a hand-written training loop. It counts the steps, so no two steps draw
/// the same dropout masks.
class StepContexts {
 public:
  /// `step`: the number of steps already done, when training is resumed.
  explicit StepContexts(std::uint64_t seed, std::uint32_t step = 0) : seed_(seed), step_(step) {}

  /// Returns the context of the next step; steps count from 1. Throws an Error after 2^32 - 1
  /// steps.
  Context next();
  /// The number of the step that next() returned last.
  std::uint32_t step() const { return step_; }

 private:
  std::uint64_t seed_;
  std::uint32_t step_;
};

/// Makes models built on this thread take almost no memory while it lives. Their parameters and
/// buffers have the right shapes, but every element is the same zero. Constructors still check
/// everything. A model of any size is built within milliseconds, to be counted and discarded.
class ShapesOnly : Scoped<&Scope::shapes_only> {
 public:
  ShapesOnly() : Scoped(true) {}
  static bool active() { return current_scope.shapes_only; }
  /// Returns a tensor of this shape backed by a single element. Throws an Error when the element
  /// count overflows.
  static Tensor tensor(const Shape& shape, DType dtype = DType::f32);
};

/// The initial values of linear maps.
enum class LinearInit {
  /// Weights by xavier_uniform(), biases 0; used by heed's own models.
  xavier,
  /// Weights and biases U(-a, a) with a = 1 / sqrt(in), as in PyTorch. Better for inputs of few
  /// numbers, where maps without biases all bend at 0.
  fan_in
};

/// Draws the initial values of parameters. Every call uses the next stream of the seed, so building
/// a model again in the same order gives the same parameters. These streams are separate from those
/// of training steps.
class Initialiser {
 public:
  explicit Initialiser(std::uint64_t seed, LinearInit maps = LinearInit::xavier)
      : key_{seed, initial_step, 0}, maps_(maps) {}

  /// Return the weight [out, in] and the bias [out] of a linear map.
  Tensor linear_weight(std::int64_t out, std::int64_t in, double gain = 1);
  Tensor linear_bias(std::int64_t out, std::int64_t in);

  /// Draws from U(-a, a) with a = gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq.
  /// 16).
  Tensor xavier_uniform(const Shape& shape, std::int64_t fan_in, std::int64_t fan_out, double gain = 1);
  /// Draws the weight [out, in] of a linear map by xavier_uniform().
  Tensor xavier_uniform(std::int64_t out, std::int64_t in, double gain = 1) {
    return xavier_uniform({out, in}, in, out, gain);
  }
  /// Draws from U(-a, a) with a = gain sqrt(3 / fan_in) (He et al. 2015, arXiv 1502.01852, eq. 10;
  /// the gain fits relu).
  Tensor kaiming_uniform(const Shape& shape, std::int64_t fan_in, double gain = std::numbers::sqrt2);
  /// Draws from N(0, gain^2 / fan_in).
  Tensor kaiming_normal(const Shape& shape, std::int64_t fan_in, double gain = std::numbers::sqrt2);
  /// Returns gain times a random matrix [out, in] whose rows (columns, if these are fewer) are
  /// orthonormal (Saxe et al. 2014, arXiv 1312.6120).
  Tensor orthogonal(std::int64_t out, std::int64_t in, double gain = 1);
  Tensor uniform(const Shape& shape, double low, double high);
  Tensor normal(const Shape& shape, double deviation);
  /// Draws from N(0, deviation^2) restricted to [-bound deviation, bound deviation], bound >= 0.5.
  Tensor truncated_normal(const Shape& shape, double deviation, double bound = 2);
  /// Returns the same value everywhere; uses no stream.
  static Tensor constant(const Shape& shape, double value, DType dtype = DType::f32);
  /// Returns a seed for a part with its own Initialiser, such as an attention variant.
  std::uint64_t next_seed();

 private:
  static constexpr std::uint32_t initial_step = 0xffffffff;  // no training run gets that far
  RandomKey next();

  RandomKey key_;
  LinearInit maps_;
};

}  // namespace heed
