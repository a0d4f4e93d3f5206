#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/models/module.h"

namespace heed {

/// How the learning rate goes on after the warm-up. constant: stays. linear: falls on a straight line to
/// `final_rate`. cosine: falls on half a cosine to `final_rate` (arXiv 1608.03983). inverse_sqrt: peak
/// sqrt(warm-up / step) (Vaswani et al. 2017, section 5.3).
enum class ScheduleKind { constant, linear, cosine, inverse_sqrt };

/// "constant", "linear", "cosine", "inverse_sqrt".
std::vector<std::string> schedule_names();
/// Throws an Error that lists the names for one that is not among them.
ScheduleKind schedule_kind(std::string_view name);
std::string_view name_of(ScheduleKind kind);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  double learning_rate = 1e-3;  ///< the peak
  /// The rate rises on a straight line from 0 and reaches the peak at this step.
  std::int64_t warmup_steps = 0;
  double final_rate = 0;  ///< at the last step of linear and cosine
};

/// The learning rate of step 1, 2, ..., `steps`. Throws for options out of range.
double learning_rate_at(const ScheduleOptions& options, std::int64_t step, std::int64_t steps);

struct OptimizerStep;

/// sgd: v = beta1 v + g, w -= lr v (beta1 is the momentum; 0: plain descent). adam: arXiv 1412.6980, weight
/// decay is added to the gradient. adamw: arXiv 1711.05101, weight decay is applied to the weights.
enum class OptimizerKind { sgd, adam, adamw };

/// "sgd", "adam", "adamw".
std::vector<std::string> optimizer_names();
/// Throws an Error that lists the names for one that is not among them.
OptimizerKind optimizer_kind(std::string_view name);
std::string_view name_of(OptimizerKind kind);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  double beta1 = 0.9;  ///< of Adam; the momentum of SGD
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  /// Whether adamw also decays parameters of one axis or none: biases, and the scales and shifts of norms.
  /// The other kinds decay all.
  bool decay_vectors = false;
};

/// The learning rate of a part of a model, as a multiple of the schedule's; 0: its weights stay as they are.
struct PartRate {
  std::string part;  ///< a dotted name or the beginning of one: "encoder", "encoder.layers.0"
  double rate = 1;
};

/// What is trained of a model, and how fast.
struct TrainedParameters {
  std::vector<NamedTensor> parameters;
  std::vector<double> rates;  ///< one for each
};

/// The parameters whose rate is not 0; the others become untracked, so that nothing is computed for them. Of
/// several parts that a parameter lies in the longest name counts. Throws an Error for a part that the model
/// does not have, for one given twice, and when nothing is left to train.
TrainedParameters trained_parameters(Module& model, std::span<const PartRate> part_rates);

/// Parameters that an optimizer treats alike.
struct ParameterGroup {
  std::vector<NamedTensor> parameters;
  double rate = 1;          ///< by which the learning rate is multiplied
  double weight_decay = 0;  ///< in place of the options', for vectors too
};

/// Updates parameters from their gradients: one fused kernel call for all of one learning rate and decay.
///
/// A parameter that has no gradient is left out of the step altogether: no decay, no change of its moments.
/// Adam's bias correction counts the steps of the optimizer, the same for all parameters.
class Optimizer {
 public:
  /// `parameters` are contiguous leaves on one device, as Module::parameters() gives them.
  /// Throws for options out of range, and for two parameters of one name or one parameter given twice.
  /// `rates`: by which the learning rate of each parameter is multiplied; none: 1 for all.
  /// `owned`: which parameters it steps and keeps moments for, where others belong to other processes; none:
  /// all.
  Optimizer(std::vector<NamedTensor> parameters, const OptimizerOptions& options,
            std::vector<double> rates = {}, std::vector<bool> owned = {});
  /// The parameters of all groups, in their order.
  Optimizer(std::span<const ParameterGroup> groups, const OptimizerOptions& options);

  /// Scales the gradients of the next step() so that their global norm is at most `limit`, unless that is
  /// given a scale itself; call it after backward(). Waits for nothing.
  void clip(double limit);
  /// One update. `gradient_scale` (one element, may be undefined) is multiplied into every gradient. Where
  /// `skip` (i32, one element, may be undefined) is not 0, weights and moments stay as they are.
  void step(double learning_rate, const Tensor& gradient_scale = {}, const Tensor& skip = {});
  /// Forgets all gradients.
  void zero_gradients();
  std::int64_t steps() const { return steps_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// The moments as named tensors ("first_moment.<parameter>", "second_moment.<parameter>") and the number of
  /// steps ("steps"). The moments share memory with the optimizer.
  std::map<std::string, Tensor> state() const;
  /// Takes over what state() gave. Throws, naming the tensor, when one is missing, of
  /// another shape or unknown.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  void check_parameters() const;
  void step_group(double rate, double decay, OptimizerStep& update);

  std::vector<NamedTensor> parameters_;
  std::vector<double> rates_;   // of each parameter
  std::vector<double> decays_;  // likewise
  std::vector<bool> owned_;     // empty: all
  std::vector<Shape> shapes_;   // of each parameter when the optimizer was made, as of the moments
  OptimizerOptions options_;
  // Empty when the kind has none; undefined where others own the parameter.
  std::vector<Tensor> first_moment_, second_moment_;
  std::int64_t steps_ = 0;
  Tensor clip_;  // of the next step; undefined: none
};

/// An exponential moving average of the weights, a = d a + (1 - d) w after each step, which often generalises
/// better than the last weights (Polyak and Juditsky 1992). d = min(decay, (1 + step) / (10 + step)), so that
/// the start is forgotten soon.
class MovingAverage {
 public:
  /// Starts from the present weights. `decay` lies between 0 and 1.
  MovingAverage(std::vector<NamedTensor> parameters, double decay);

  /// To be called after each step of the optimizer; `step` counts from 1.
  void update(std::int64_t step);
  /// The averages by the names of their parameters.
  std::map<std::string, Tensor> state() const;
  /// Takes over what state() gave. Throws, naming the tensor, when one is missing, of another shape, unknown
  /// or not finite.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  friend class AveragedWeights;
  std::vector<NamedTensor> parameters_;
  std::vector<Tensor> averages_;
  double decay_;
};

/// While it lives, the parameters hold their averages; afterwards they hold their own values again, to the
/// same bits.
class AveragedWeights {
 public:
  /// `average` may be null: then nothing happens.
  explicit AveragedWeights(const MovingAverage* average);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  const MovingAverage* average_;
  std::vector<Tensor> saved_;
};

}  // namespace heed
