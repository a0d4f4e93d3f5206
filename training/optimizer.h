#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "heed/base/setting.h"
#include "heed/models/module.h"
#include "heed/training/muon.h"

namespace heed {

/// The learning rate after the warm-up. constant: stays at the peak. linear: falls linearly to
/// `final_rate`. cosine: falls to `final_rate` along half a cosine (arXiv 1608.03983).
/// inverse_sqrt: peak sqrt(warm-up / step) (Vaswani et al. 2017, section 5.3).
enum class ScheduleKind { constant, linear, cosine, inverse_sqrt };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  double learning_rate = 1e-3;  ///< the peak
  /// The rate rises linearly from 0 and reaches the peak at this step.
  std::int64_t warmup_steps = 0;
  double final_rate = 0;  ///< rate at the last step, for linear and cosine
};

/// Throws an Error with the name unless the number is 0 or from least_in_f32 to most_in_f32.
void check_in_f32(std::string_view name, double value);

/// The upper limit of step counts and intervals in settings.
inline constexpr double most_steps = 1e12;

void for_each_setting(auto&& visit, ScheduleOptions& options) {
  visit(options.kind, "name", {"constant", "linear", "cosine", "inverse_sqrt"},
        "Learning-rate schedule after the warm-up");
  visit(options.learning_rate, "learning_rate", least_in_f32, most_in_f32, "Peak learning rate");
  visit(options.warmup_steps, "warmup_steps", 0, most_steps,
        "Warm-up steps, in which the learning rate rises to its peak");
  visit(options.final_rate, "final_rate", 0, most_in_f32, "Final learning rate of linear and cosine");
}

/// A function that returns the learning rate of step 1, 2, ..., `steps`.
using Schedule = std::function<double(std::int64_t step, std::int64_t steps)>;
/// Returns the schedule with these options. Throws if an option is out of range.
Schedule make_schedule(const ScheduleOptions& options);
/// Returns the learning rate of one step.
double learning_rate_at(const ScheduleOptions& options, std::int64_t step, std::int64_t steps);

struct OptimizerStep;

/// The kind of optimizer. sgd: v = beta1 v + g, w -= lr v (beta1 is the momentum; 0: plain gradient
/// descent). adam: arXiv 1412.6980, weight decay added to the gradient. adamw: arXiv 1711.05101,
/// weight decay applied to the weights. muon: orthogonalised momentum (MuonOptions) for matrices
/// between hidden layers (is_hidden_map()), and adamw for everything else: embeddings, output maps,
/// vectors, tensors of other ranks, and matrices with one row or column.
enum class OptimizerKind { sgd, adam, adamw, muon };

/// Returns "sgd", "adam", "adamw", "muon".
std::vector<std::string> optimizer_names();
/// Returns the kind with this name. Throws an Error listing the names if there is none.
OptimizerKind optimizer_kind(std::string_view name);
std::string_view name_of(OptimizerKind kind);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  double beta1 = 0.9;  ///< Adam's; the momentum of SGD
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  /// Whether adamw and muon also decay parameters with fewer than two axes: biases, and the scales
  /// and shifts of norms. The other kinds decay all parameters.
  bool decay_vectors = false;
  MuonOptions muon = {};
};

void for_each_setting(auto&& visit, OptimizerOptions& options) {
  visit(options.kind, "name", optimizer_names(), "Optimizer");
  visit(options.beta1, "beta1", 0, below_one_in_f32, "Decay of Adam's first moment; the momentum of sgd");
  visit(options.beta2, "beta2", 0, below_one_in_f32, "Decay of Adam's second moment");
  visit(options.epsilon, "epsilon", least_in_f32, most_in_f32, "Added to the root of Adam's second moment");
  visit(options.weight_decay, "weight_decay", 0, most_in_f32,
        "Weight decay; adamw and muon apply it to the weights, adam adds it to the gradient");
  visit(options.decay_vectors, "decay_vectors",
        "adamw and muon: also decay biases and the scales and shifts of norms");
  for_each_setting(visit, options.muon);
}

/// Whether the parameter is in a part of the model: a dotted name or a prefix of one, such as
/// "encoder" or "encoder.layers.0".
bool lies_in(std::string_view parameter, std::string_view part);
/// Throws an Error naming what the part was `wanted` for, and the existing parts, unless the model
/// has it.
void check_part(Module& model, std::string_view part, std::string_view wanted);

/// The learning rate for a part of a model, as a multiple of the schedule's; 0 freezes the part.
struct PartRate {
  std::string part;
  double rate = 1;
};

/// The trained parameters of a model, and their relative learning rates.
struct TrainedParameters {
  std::vector<NamedTensor> parameters;
  std::vector<double> rates;  ///< one for each
};

/// Returns the parameters whose rate is not 0; the others become untracked, so no gradients are
/// computed for them. If several parts contain a parameter, the longest name wins. Throws an Error
/// if the model lacks a part, if a part is given twice, or if nothing is left to train.
TrainedParameters trained_parameters(Module& model, std::span<const PartRate> part_rates);

/// Parameters with the same learning rate and weight decay.
struct ParameterGroup {
  std::vector<NamedTensor> parameters;
  double rate = 1;  ///< multiplies the learning rate
  /// Overrides the weight decay in the options, for vectors too; std::nullopt: the value in the
  /// options.
  std::optional<double> weight_decay = 0;
};

/// Updates parameters from their gradients, with one fused kernel call for all parameters that
/// share a learning rate and weight decay. Muon orthogonalises matrices of the same shape together.
///
/// A step skips parameters without a gradient: no decay, and their moments do not change. Adam's
/// bias correction counts the optimizer's steps, the same for all parameters.
class Optimizer {
 public:
  /// `parameters` are contiguous leaves on one device, as Module::parameters() returns them. Throws
  /// if an option is out of range, if two parameters share a name or if one parameter is given
  /// twice. `rates`: multiplies each parameter's learning rate; empty: 1 for all. `owned`: which
  /// parameters this optimizer steps and keeps moments for, when other processes own the rest;
  /// empty: all.
  Optimizer(std::vector<NamedTensor> parameters, const OptimizerOptions& options,
            std::vector<double> rates = {}, std::vector<bool> owned = {});
  /// The parameters of all groups, in their order.
  Optimizer(std::span<const ParameterGroup> groups, const OptimizerOptions& options);

  /// Scales the gradients of the next step() so that their global norm is at most `limit`, unless
  /// step() is given a scale. Call it after backward(). Does not wait for the device.
  void clip(double limit);
  /// One update. Every gradient is multiplied by `gradient_scale` (one element, may be undefined).
  /// If `skip` (i32, one element, may be undefined) is not 0, weights and moments do not change.
  void step(double learning_rate, const Tensor& gradient_scale = {}, const Tensor& skip = {});
  /// Sets the precision of Muon's matrix products for f32 weights, f32 by default: on a GPU their type,
  /// and on the CPU their MatmulPrecision.
  void compute_in(DType on_gpu, MatmulPrecision on_cpu) { products_ = {on_gpu, on_cpu}; }
  /// Forgets all gradients.
  void zero_gradients();
  std::int64_t steps() const { return steps_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// Returns the moments as named tensors ("first_moment.<parameter>", "second_moment.<parameter>")
  /// and the number of steps ("steps"). The moments share memory with the optimizer; Muon's
  /// matrices have no second moment.
  std::map<std::string, Tensor> state() const;
  /// Restores what state() returned. Throws, naming the tensor, if one is missing,
  /// unknown or has another shape.
  void load_state(const std::map<std::string, Tensor>& state);
  /// Throws what load_state() would throw.
  void check_state(const std::map<std::string, Tensor>& state) const;

 private:
  void check_parameters() const;
  /// Common to parameters that are updated together: rate, weight decay, whether they are stepped
  /// as matrices, and type.
  using Group = std::tuple<double, double, bool, DType>;
  Group parameter_group(std::size_t i) const;
  void step_group(const Group& group, OptimizerStep& update);

  std::vector<NamedTensor> parameters_;
  std::vector<double> rates_;   // of each parameter
  std::vector<double> decays_;  // likewise
  std::vector<bool> owned_;     // empty: all
  std::vector<bool> matrices_;  // which are stepped as matrices
  std::vector<Shape> shapes_;   // of each parameter at construction, and of its moments
  OptimizerOptions options_;
  // Empty if the kind has none; undefined for parameters that other processes own.
  std::vector<Tensor> first_moment_, second_moment_;
  std::int64_t steps_ = 0;
  MuonProducts products_;
  Tensor clip_;  // gradient scale for the next step; undefined: none
};

/// An exponential moving average of the weights, a = d a + (1 - d) w after each step, which often
/// generalises better than the final weights (Polyak and Juditsky 1992). d = min(decay, (1 + step)
/// / (10 + step)), so that the initial weights are soon forgotten.
class MovingAverage {
 public:
  /// Starts from the current weights. `decay` lies between 0 and 1.
  MovingAverage(std::vector<NamedTensor> parameters, double decay);

  /// Call after each optimizer step; `step` counts from 1.
  void update(std::int64_t step);
  /// The averages, by parameter name.
  std::map<std::string, Tensor> state() const;
  /// Restores what state() returned. Throws, naming the tensor, if one is missing, unknown, not
  /// finite or has another shape.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  friend class AveragedWeights;
  std::vector<NamedTensor> parameters_;
  std::vector<Tensor> averages_;
  double decay_;
};

/// Replaces parameters by their averages while it lives; its destructor restores the original
/// values, bit for bit.
class AveragedWeights {
 public:
  /// Does nothing if `average` is null.
  explicit AveragedWeights(const MovingAverage* average);
  ~AveragedWeights();
  AveragedWeights& operator=(AveragedWeights&&) = delete;

 private:
  const MovingAverage* average_;
  std::vector<Tensor> saved_;
};

}  // namespace heed
