#include "heed/training/autocast.h"

#include "heed/autograd/autograd.h"
#include "heed/autograd/expected_gradient.h"
#include "heed/autograd/ops.h"
#include "heed/training/step_monitor.h"

namespace heed {

Autocast::Autocast(Module& model, Precision precision, const LossScaleState& loss_scale)
    : model_(model), precision_(precision) {
  if (precision == Precision::f32) return;
  const std::vector<NamedTensor> parameters = model.parameters();
  check(!parameters.empty(), "Autocast: the model has no parameters");
  const Device device = parameters[0].tensor->device();
  check_precision(precision, device);
  if (device.type != DeviceType::cpu) dtype_ = precision == Precision::f16 ? DType::f16 : DType::bf16;
  if (precision != Precision::f16) return;
  check(loss_scale.scale >= LossScale::lowest && loss_scale.scale <= LossScale::highest,
        "Autocast: the loss scale is ", loss_scale.scale, "; it must be ", LossScale::lowest, " to ",
        LossScale::highest);
  loss_scale_.emplace(device, loss_scale);
}

Tensor Autocast::backward(const std::function<Tensor()>& loss) {
  check(!computing_, "Autocast: backward() was called within backward()");
  struct Computing {
    bool& flag;
    explicit Computing(bool& set) : flag(set) { flag = true; }
    ~Computing() { flag = false; }
  } const computing(computing_);
  const LowerPrecision lower(model_, precision_);
  const ExpectedGradient expected(loss_scale_ ? loss_scale_->factor() : Tensor());
  Tensor found = loss();
  check(
      found.defined() && found.count() == 1, "Autocast: the loss must have one element",
      found.defined() ? concat_text(", not the shape ", found.shape()) : std::string(", but there is none"));
  if (is_half(found.dtype())) found = found.to(DType::f32);
  heed::backward(loss_scale_ ? found * loss_scale_->factor() : found);
  lower.collect_gradients(loss_scale_ ? loss_scale_->inverse() : Tensor());
  return found.detach();
}

void Autocast::step(Optimizer& optimizer, double learning_rate) {
  check(!computing_, "Autocast: step() was called within backward(), where parameters are copies");
  Tensor skip;
  if (loss_scale_) {
    loss_scale_->update(GradientNorm(optimizer.parameters()).norm());
    skip = loss_scale_->skip();
  }
  optimizer.step(learning_rate, {}, skip);
  optimizer.zero_gradients();
}

LossScaleState Autocast::loss_scale_state() const {
  check(loss_scale_.has_value(), "Autocast: there is a loss scale in f16 alone");
  return loss_scale_->state();
}

}  // namespace heed
