#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "heed/models/module.h"

/// The parts of a training step (Trainer::step): sums of gradients and losses, the gradient norm,
/// and the check for values that are not finite. None of them waits for the device.
namespace heed {

/// The results of one batch of a step, besides its gradients.
struct BatchOutcome {
  struct Term {
    std::string name;  ///< "loss" for the objective's own, or an auxiliary loss's name
    Tensor sum;        ///< over the batch, one element
  };
  std::int64_t count = 0;   ///< number of targets
  std::vector<Term> terms;  ///< in the order they were added
  std::vector<Observation> observations;
};

/// The results of a step, besides its losses.
struct StepOutcome {
  double learning_rate = 0;
  Tensor gradient_norm;  ///< before clipping, [1], on the device
};

/// Adds the gradients of a step's batches in order. Each batch computes its own gradient from zero
/// before it is added. Because floating-point addition is not associative, this makes the sum
/// independent of which process computed which batch.
class GradientSum {
 public:
  explicit GradientSum(std::vector<NamedTensor> parameters);
  /// Moves the gradients of a batch out of the parameters; undefined if there is none.
  std::vector<Tensor> take();
  /// Adds a gradient for each parameter, in one kernel call if the device has it. Ignores undefined
  /// ones.
  void add(std::vector<Tensor> gradients);
  /// Adds a gradient to the sum of one parameter.
  void add(std::size_t parameter, Tensor gradient);
  /// Sets the gradients of the parameters to the sums, and starts again from zero.
  void finish();

 private:
  std::vector<NamedTensor> parameters_;
  std::vector<Tensor> sums_;  // undefined: no gradient yet
};

/// The global norm of parameters' gradients, |g| = sqrt(sum of all g_i^2), and the factor that
/// clips them (Pascanu et al., arXiv 1211.5063). Ignores parameters without a gradient.
class GradientNorm {
 public:
  /// Measures the gradients divided by `divisor` (the number of tokens summed over); changes
  /// nothing.
  explicit GradientNorm(std::span<const NamedTensor> parameters, double divisor = 1);
  /// For gradients measured elsewhere: `squares` holds the sum of squares of each name's gradient.
  GradientNorm(std::vector<std::string> names, std::span<const double> squares, Device device,
               double divisor);

  /// Returns the factor for Optimizer::step, on the device: 1 / divisor, or less if the norm
  /// exceeds `limit` (0: no limit).
  Tensor scale(double limit) const;
  /// The parameters that have a gradient, and the sum of squares of each gradient:
  /// f64 on the CPU, f32 elsewhere.
  const std::vector<std::string>& names() const { return names_; }
  const Tensor& squares() const { return squares_; }
  /// The norm, [1], on the device.
  const Tensor& norm() const { return norm_; }
  /// The norm as a number. Waits for the device.
  double value() const { return norm_.item(); }

 private:
  void add_up();

  std::vector<std::string> names_;
  Tensor squares_;  // [parameters with a gradient]
  Tensor norm_;     // [1]
  double divisor_;
};

/// Sums losses and tokens on the device, so that training does not wait for a loss until it is
/// shown.
class LossMeter {
 public:
  /// Adds the sum of a loss over some tokens.
  void add(const std::string& name, const Tensor& sum);
  /// Counts the tokens of a batch.
  void add_tokens(std::int64_t tokens) { tokens_ += tokens; }
  std::int64_t tokens() const { return tokens_; }
  /// The mean of a loss per token, on the device.
  Tensor mean(const std::string& name) const;

  /// The sums since the start or the last clear(), on the device of the losses.
  const std::map<std::string, Tensor>& on_device() const { return sums_; }
  /// The sums so far; waits for the device.
  std::map<std::string, double> sums() const;
  /// Restores sums from a checkpoint.
  void restore(const std::map<std::string, double>& sums, std::int64_t tokens);
  /// Resets all sums to zero.
  void clear();

 private:
  std::map<std::string, Tensor> sums_;
  // Becomes a tensor once the device and dtype of the loss are known.
  std::map<std::string, double> restored_;
  std::int64_t tokens_ = 0;
};

/// Detects a gradient or loss that is not finite on the device, so that no step waits for the
/// answer.
///
/// From the first such step on, skip() keeps the optimizer from changing anything. check() reports
/// what went wrong and in which step, whenever the host calls it.
class FiniteGuard {
 public:
  /// Checks the gradients of a step (counted from 1) and the losses so far; call it before the
  /// update. Waits only if the set of parameters with gradients changed since the last step. If
  /// `overflow_allowed` (i32 [1], may be undefined) is not 0, gradients may be infinite: a smaller loss
  /// scale can help.
  void watch(std::int64_t step, const GradientNorm& norm, const LossMeter& losses,
             const Tensor& overflow_allowed = {});
  /// The `skip` argument of Optimizer::step: i32 [1], 0 while everything is finite, otherwise the
  /// first step that was not.
  const Tensor& skip() const { return failed_; }
  /// Throws an Error naming the first step that was not finite, and the parameter or
  /// loss. Waits for the device.
  void check(const LossMeter& losses) const;

 private:
  std::vector<std::string> names_;  // of the parameters
  Tensor squares_;                  // of their gradients, in the last step or the one that failed
  Tensor failed_;
};

/// Throws an Error naming the first unusable parameter: one that is not finite or whose sum of
/// squares overflows f32. Waits for the device.
void check_weights(std::span<const NamedTensor> parameters, std::int64_t step);

}  // namespace heed
