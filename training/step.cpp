#include "heed/training/step.h"

#include <cmath>
#include <limits>
#include <utility>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/backend.h"

namespace heed {

/// Returns 0 if x is finite, otherwise NaN: infinity times 0 is NaN.
static Tensor zero_or_nan(const Tensor& x, DType dtype) {
  return cast(reshape(x.detach(), {1}), dtype) * 0;
}

static void check_gradients(const std::vector<std::string>& names, const Tensor& squares) {
  const std::vector<double> sums = squares.to_doubles();
  for (std::size_t i = 0; i < names.size(); ++i) {
    check(std::isfinite(sums[i]), "the gradient of \"", names[i], "\" is not finite (its squares add up to ",
          sums[i], "); try a lower learning rate, a longer warm-up or a lower clipping limit");
  }
}

/// Returns one sum per tensor: f64 on the CPU, f32 elsewhere.
static Tensor sums_of_squares(const std::vector<Tensor>& tensors) {
  const Device device = tensors[0].device();
  const Backend& backend = backend_of(device);
  const DType dtype = device.type == DeviceType::cpu ? DType::f64 : DType::f32;
  const Tensor sums = Tensor::empty({static_cast<std::int64_t>(tensors.size())}, dtype, device);
  backend.sums_of_squares(tensors, sums);
  return sums;
}

GradientSum::GradientSum(std::vector<NamedTensor> parameters)
    : parameters_(std::move(parameters)), sums_(parameters_.size()) {}

std::vector<Tensor> GradientSum::take() {
  std::vector<Tensor> gradients;
  for (const NamedTensor& parameter : parameters_) {
    gradients.push_back(gradient(*parameter.tensor));
    zero_gradient(*parameter.tensor);
  }
  return gradients;
}

void GradientSum::add(std::vector<Tensor> gradients) {
  std::vector<Tensor> more, sums;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    Tensor gradient = std::exchange(gradients[i], {});
    if (!gradient.defined() || !sums_[i].defined() || !backend_of(gradient).scale_all) {
      add(i, std::move(gradient));
    } else {
      more.push_back(std::move(gradient));
      sums.push_back(sums_[i]);
    }
  }
  if (!more.empty()) backend_of(more[0]).scale_all(more, {}, true, sums);
}

void GradientSum::add(std::size_t parameter, Tensor gradient) {
  if (!gradient.defined()) return;
  Tensor& sum = sums_[parameter];
  if (sum.defined())
    backend_of(sum).binary(BinaryOp::add, sum, gradient, sum);
  else
    sum = std::move(gradient);
}

void GradientSum::finish() {
  for (std::size_t i = 0; i < sums_.size(); ++i)
    parameters_[i].tensor->node()->gradient = std::exchange(sums_[i], {});  // backward() would copy it
}

GradientNorm::GradientNorm(std::span<const NamedTensor> parameters, double divisor) : divisor_(divisor) {
  check(divisor > 0, "gradient norm: the divisor is ", divisor, "; it must be positive");
  std::vector<Tensor> gradients;
  for (const NamedTensor& parameter : parameters) {
    const Tensor grad = gradient(*parameter.tensor);
    if (!grad.defined()) continue;
    names_.push_back(parameter.name);
    gradients.push_back(contiguous(grad.detach()));
  }
  check(!gradients.empty(), "gradient norm: no parameter has a gradient; call backward() first");

  squares_ = sums_of_squares(gradients);
  add_up();
}

GradientNorm::GradientNorm(std::vector<std::string> names, std::span<const double> squares, Device device,
                           double divisor)
    : names_(std::move(names)), divisor_(divisor) {
  check(divisor > 0 && !names_.empty() && names_.size() == squares.size(), "gradient norm: ", squares.size(),
        " sums of squares for ", names_.size(), " parameters, divisor ", divisor);
  const Tensor wide = Tensor::from(squares, {static_cast<std::int64_t>(squares.size())});
  if (device.type == DeviceType::cpu)
    squares_ = wide;
  else
    squares_ = Tensor::from(std::vector<float>(squares.begin(), squares.end()), wide.shape(), device);
  add_up();
}

void GradientNorm::add_up() {
  const NoGrad no_grad;
  norm_ = sqrt(sum(squares_, 0, true)) * (1 / divisor_);
}

Tensor GradientNorm::scale(double limit) const {
  const NoGrad no_grad;
  if (limit <= 0) return Tensor::full({1}, 1 / divisor_, norm_.dtype(), norm_.device());
  // limit / 0 is infinite, which the clamp turns into 1.
  return clamp(div(Tensor::full({1}, limit, norm_.dtype(), norm_.device()), norm_), 0, 1) * (1 / divisor_);
}

void LossMeter::add(const std::string& name, const Tensor& sum) {
  const NoGrad no_grad;
  Tensor& total = sums_[name];
  if (!total.defined()) {
    const auto earlier = restored_.find(name);
    const double start = earlier == restored_.end() ? 0 : earlier->second;
    total = Tensor::full(sum.shape(), start, sum.dtype(), sum.device());
    restored_.erase(name);
  }
  total = total + sum.detach();
}

Tensor LossMeter::mean(const std::string& name) const {
  return sums_.at(name) / static_cast<double>(tokens_);
}

std::map<std::string, double> LossMeter::sums() const {
  std::map<std::string, double> values = restored_;
  for (const auto& [name, total] : sums_) values[name] = total.item();
  return values;
}

void LossMeter::restore(const std::map<std::string, double>& sums, std::int64_t tokens) {
  clear();
  restored_ = sums;
  tokens_ = tokens;
}

void LossMeter::clear() {
  sums_.clear();
  restored_.clear();
  tokens_ = 0;
}

void FiniteGuard::watch(std::int64_t step, const GradientNorm& norm, const LossMeter& losses,
                        const Tensor& overflow_allowed) {
  const NoGrad no_grad;
  const Device device = norm.norm().device();
  const DType dtype = norm.norm().dtype();
  if (names_ != norm.names()) {
    check(losses);
    names_ = norm.names();
    squares_ = norm.squares();
    failed_ = Tensor::zeros({1}, DType::i32, device);
  }
  // Squares are not negative, so the norm is finite only if all of them are.
  Tensor sum = zero_or_nan(norm.norm(), dtype);
  if (overflow_allowed.defined()) sum = where(overflow_allowed, Tensor::zeros({1}, dtype, device), sum);
  for (const auto& [name, total] : losses.on_device()) sum = sum + zero_or_nan(total, dtype);
  const Tensor number = Tensor::full({1}, static_cast<double>(step), DType::i32, device);
  const Tensor bad = where(not_equal(sum, sum), number, failed_);
  squares_ = where(failed_, squares_, norm.squares());
  failed_ = where(failed_, failed_, bad);
}

void FiniteGuard::check(const LossMeter& losses) const {
  if (!failed_.defined()) return;
  const auto step = static_cast<std::int64_t>(failed_.item());
  if (step == 0) return;
  try {
    check_gradients(names_, squares_);
    // A sum that is not finite stays that way.
    for (const auto& [name, sum] : losses.sums()) heed::check(std::isfinite(sum), "\"", name, "\" is ", sum);
    fail("the norm of the gradients is not finite, although every gradient is; try a lower learning rate");
  } catch (const Error& error) {
    fail("training stopped in step ", step, ", before changing the weights: ", error.what());
  }
}

void check_weights(std::span<const NamedTensor> parameters, std::int64_t step) {
  std::vector<Tensor> weights;
  for (const NamedTensor& parameter : parameters) weights.push_back(contiguous(parameter.tensor->detach()));
  const std::vector<double> sums = sums_of_squares(weights).to_doubles();
  for (std::size_t i = 0; i < sums.size(); ++i)
    check(sums[i] <= std::numeric_limits<float>::max(), "training diverged in step ", step,
          ": the weights \"", parameters[i].name,
          "\" are too large to compute with (their squares add up to ", sums[i],
          "); they were not saved. Try a lower learning_rate or more warmup_steps");
}

}  // namespace heed
