#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/models/module.h"
#include "heed/training/task.h"

/// What a trainer tracks in every step without waiting for the device: gradients, losses,
/// and whether they are finite.
namespace heed {

/// The global norm of parameters' gradients, |g| = sqrt(sum of all g_i^2), and the factor that clips them
/// (Pascanu et al., arXiv 1211.5063). Ignores parameters without a gradient.
class GradientNorm {
 public:
  /// Measures the gradients divided by `divisor` (the number of tokens summed over); changes nothing.
  explicit GradientNorm(std::span<const NamedTensor> parameters, double divisor = 1);
  /// For gradients measured elsewhere: `squares` holds the sum of squares of each name's gradient.
  GradientNorm(std::vector<std::string> names, std::span<const double> squares, Device device,
               double divisor);

  /// The factor for Optimizer::step, on the device: 1 / divisor, or less if the norm
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

/// Sums losses and tokens on the device, so that nothing waits for a loss until it is shown.
class LossMeter {
 public:
  /// Adds the sum of a loss over some tokens.
  void add(const std::string& name, const Tensor& sum);
  /// Counts the tokens of a batch.
  void add_tokens(std::int64_t tokens) { tokens_ += tokens; }
  std::int64_t tokens() const { return tokens_; }

  /// The sums since the start or the last clear(), on the device of the losses.
  const std::map<std::string, Tensor>& on_device() const { return sums_; }
  /// The sums so far; waits for the device.
  std::map<std::string, double> sums() const;
  /// Starts from sums that were read earlier.
  void restore(const std::map<std::string, double>& sums, std::int64_t tokens);
  /// Starts from zero.
  void clear();

 private:
  std::map<std::string, Tensor> sums_;
  // Becomes a tensor once the device and dtype of the loss are known.
  std::map<std::string, double> restored_;
  std::int64_t tokens_ = 0;
};

/// Detects a gradient or loss that is not finite on the device, so that no step waits for the answer.
///
/// From the first such step on, skip() keeps the optimizer from changing anything. check() reports what
/// went wrong and in which step, whenever the host calls it.
class FiniteGuard {
 public:
  /// Checks the gradients of a step (counted from 1) and the losses so far; call it before the update.
  /// Waits only if the set of parameters with gradients changed since the last step. If `forgiven` (i32
  /// [1], may be undefined) is not 0, gradients may be infinite: a smaller loss scale can help.
  void watch(std::int64_t step, const GradientNorm& norm, const LossMeter& losses,
             const Tensor& forgiven = {});
  /// For Optimizer::step: i32 [1], 0 while everything is finite, else the first step that was not.
  const Tensor& skip() const { return failed_; }
  /// Throws an Error naming the first step that was not finite, and the parameter or
  /// loss. Waits for the device.
  void check(const LossMeter& losses) const;

 private:
  std::vector<std::string> names_;  // of the parameters
  Tensor squares_;                  // of their gradients, in the last step or the one that failed
  Tensor failed_;
};

/// Throws an Error naming the first unusable parameter: one that is not finite or whose sum of squares
/// overflows f32. Waits for the device.
void check_weights(std::span<const NamedTensor> parameters, std::int64_t step);

// Divergence is judged by comparing the loss with that of the first step, which is the loss of the
// untrained model. The limits are loose, so that ordinary training never triggers them.

/// The metric "loss", a mean like the training loss, if the evaluation has one.
std::optional<double> loss_of(const Evaluation& evaluation);

/// Whether a loss is far above that of the first step.
bool is_far_above(double loss, double first_loss);

/// Whether the weights are useless even if the deciding metric, such as an accuracy, is still
/// finite: some metric is infinite, or the loss is over a thousand times that of the first step and
/// its exponential overflows.
bool has_diverged(const Evaluation& evaluation, std::optional<double> first_loss);

/// The best evaluation of a run.
struct BestEvaluation {
  std::int64_t step = 0;
  double loss = 0;
  bool chosen_by_loss = false;  ///< or by another metric where less is better
};
/// A remark if the best evaluation is worse than the untrained model; otherwise "". Weights chosen by
/// accuracy, say, may well have a larger loss, so for them only a loss far above the first counts.
std::string remark_on_best(const BestEvaluation& best, double first_loss);

}  // namespace heed
