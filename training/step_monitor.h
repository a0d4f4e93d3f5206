#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/models/module.h"
#include "heed/training/task.h"

/// What a trainer looks at in every step without waiting for the device: gradients,
/// losses, and whether they are finite.
namespace heed {

/// The global norm of the gradients of some parameters, |g| = sqrt(sum of all g_i^2), and the factor that
/// clips them (Pascanu et al., arXiv 1211.5063). Parameters without a gradient do not count.
class GradientNorm {
 public:
  /// Measures the gradients divided by `divisor` (how many tokens a sum ran over); nothing is changed.
  explicit GradientNorm(std::span<const NamedTensor> parameters, double divisor = 1);
  /// Of gradients that were measured elsewhere, in parts: the sums of their squares, one for each name.
  GradientNorm(std::vector<std::string> names, std::span<const double> squares, Device device,
               double divisor);

  /// The factor for Optimizer::step, on the device: 1 / divisor, and less where the norm
  /// exceeds `limit` (0: no limit).
  Tensor scale(double limit) const;
  /// The parameters that have a gradient, and the sum of squares of each gradient:
  /// f64 on the CPU, f32 elsewhere.
  const std::vector<std::string>& names() const { return names_; }
  const Tensor& squares() const { return squares_; }
  /// The norm, [1], on the device.
  const Tensor& norm() const { return norm_; }
  /// Waits for the device.
  double value() const { return norm_.item(); }

 private:
  void add_up();

  std::vector<std::string> names_;
  Tensor squares_;  // [parameters with a gradient]
  Tensor norm_;     // [1]
  double divisor_;
};

/// Sums losses on the device, token by token, so that nothing waits for a loss before it is shown.
class LossMeter {
 public:
  /// Adds the sum of a loss over some tokens.
  void add(const std::string& name, const Tensor& sum);
  /// Counts the tokens of a batch.
  void add_tokens(std::int64_t tokens) { tokens_ += tokens; }
  std::int64_t tokens() const { return tokens_; }

  /// The sums since the start or the last clear(), where the losses are.
  const std::map<std::string, Tensor>& on_device() const { return sums_; }
  /// The sums so far; waits for the device.
  std::map<std::string, double> sums() const;
  /// Starts from sums that were read earlier.
  void restore(const std::map<std::string, double>& sums, std::int64_t tokens);
  /// Starts from nothing.
  void clear();

 private:
  std::map<std::string, Tensor> sums_;
  // Becomes a tensor when the device and dtype of the loss are known.
  std::map<std::string, double> restored_;
  std::int64_t tokens_ = 0;
};

/// Notices a gradient or a loss that is not finite on the device, so that no step waits to be told.
///
/// From the first such step on skip() keeps the optimizer from changing anything, and check() says, whenever
/// the host comes to ask, what went wrong in which step.
class FiniteGuard {
 public:
  /// Looks at the gradients of a step (from 1) and at the losses so far, before the update. Waits only where
  /// other parameters have gradients than in the step before. Where `forgiven` (i32 [1], may be undefined) is
  /// not 0, gradients may be infinite: a smaller loss scale can help.
  void watch(std::int64_t step, const GradientNorm& norm, const LossMeter& losses,
             const Tensor& forgiven = {});
  /// For Optimizer::step: i32 [1], 0 while all was finite, else the first step that was not.
  const Tensor& skip() const { return failed_; }
  /// Throws an Error that names the first step that was not finite, and the parameter or
  /// the loss. Waits for the device.
  void check(const LossMeter& losses) const;

 private:
  std::vector<std::string> names_;  // of the parameters
  Tensor squares_;                  // of their gradients, in the last step or in the one that failed
  Tensor failed_;
};

/// Throws an Error that names the first parameter that nothing can be computed with any more, because it is
/// not finite or its squares add up to more than f32 holds. Waits for the device.
void check_weights(std::span<const NamedTensor> parameters, std::int64_t step);

// When a training is said to have diverged: judged by its loss against that of its first step, which is the
// loss of the untrained model. All of it is rough, so that no ordinary training is blamed.

/// The metric "loss", a mean like the loss of training, where the evaluation has one.
std::optional<double> loss_of(const Evaluation& evaluation);

/// Whether a loss is out of proportion to that of the first step.
bool is_far_above(double loss, double first_loss);

/// Whether weights are of no use, whatever a metric that stays finite says of them (an accuracy does): some
/// metric is infinite, or the loss is a thousand times that of the first step and so large that its
/// exponential is infinite.
bool has_diverged(const Evaluation& evaluation, std::optional<double> first_loss);

/// The best evaluation of a run.
struct BestEvaluation {
  std::int64_t step = 0;
  double loss = 0;
  bool chosen_by_loss = false;  ///< or by another metric of which less is better
};
/// A remark on a best evaluation that is worse than the model was before its first step; "" for one that is
/// not. Weights that were chosen by their accuracy, say, may well have a larger loss: only one far above is
/// worth a word.
std::string remark_on_best(const BestEvaluation& best, double first_loss);

}  // namespace heed
