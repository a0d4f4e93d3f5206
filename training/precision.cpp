#include "heed/training/precision.h"

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/names.h"
#include "heed/core/backend.h"
#include "heed/training/step.h"

namespace heed {

constexpr NameTable<Precision, 5> precisions{"precision",
                                             {{{"f32", Precision::f32},
                                               {"f16", Precision::f16},
                                               {"bf16", Precision::bf16},
                                               {"high", Precision::high},
                                               {"medium", Precision::medium}}}};

/// Scales tensors on a device with half types.
static void scale_all(const std::vector<Tensor>& x, const Tensor& factor, bool add,
                      const std::vector<Tensor>& out) {
  backend_of(out[0]).scale_all(x, factor, add, out);
}

static Tensor number(double value, DType dtype, Device device) {
  return Tensor::full({1}, value, dtype, device);
}

std::vector<std::string> precision_names() {
  return precisions.names();
}

std::string_view name_of(Precision precision) {
  return precisions.name_of(precision);
}

Precision precision_from_name(std::string_view name) {
  return precisions.find(name);
}

DType dtype_in(Precision precision) {
  switch (precision) {
    case Precision::f16:
      return DType::f16;
    case Precision::bf16:
      return DType::bf16;
    default:
      return DType::f32;
  }
}

MatmulPrecision matmul_precision_in(Precision precision) {
  switch (precision) {
    case Precision::high:
      return MatmulPrecision::high;
    case Precision::medium:
    case Precision::bf16:
      return MatmulPrecision::medium;
    default:
      return MatmulPrecision::highest;
  }
}

MatmulPrecision answer_precision_in(Precision precision) {
  return precision == Precision::bf16 ? MatmulPrecision::highest : matmul_precision_in(precision);
}

void check_precision(Precision precision, Device device) {
  check(precision != Precision::f16 || device.type != DeviceType::cpu, "precision ", name_of(precision),
        " needs a Vulkan device: the CPU computes in f32, with optional bf16 matrix products");
}

std::string precision_remark(Precision precision, Device device) {
  const bool on_cpu = device.type == DeviceType::cpu;
  if (on_cpu ? is_fast(matmul_precision_in(precision))
             : precision != Precision::high && precision != Precision::medium)
    return {};
  return concat_text("precision ", name_of(precision), " is f32 here: ",
                     on_cpu ? "this processor multiplies no faster in bf16 (Intel's AMX does, and for bf16 "
                              "AVX-512 BF16 on AMD's processors)"
                            : "on a GPU use bf16 or f16");
}

LowerPrecision::LowerPrecision(const std::vector<NamedTensor>& parameters, Precision precision) {
  if (precision == Precision::f32) return;
  const DType half = dtype_in(precision);
  std::vector<Tensor> weights, copies;
  for (const NamedTensor& named : parameters) {
    check_precision(precision, named.tensor->device());
    const bool on_cpu = named.tensor->device().type == DeviceType::cpu;
    if (on_cpu && !products_) products_.emplace(matmul_precision_in(precision));
    if (on_cpu || half == DType::f32 || named.tensor->dtype() != DType::f32) continue;
    const Tensor weight = contiguous(named.tensor->detach());
    replaced_.push_back({named.tensor, *named.tensor});
    weights.push_back(weight);
    copies.push_back(Tensor::empty(weight.shape(), half, weight.device()));
  }
  if (replaced_.empty()) return;
  scale_all(weights, {}, false, copies);
  for (std::size_t i = 0; i < copies.size(); ++i) {
    Tensor& member = *replaced_[i].member;
    member = member.tracked() ? parameter(copies[i]) : copies[i];
  }
}

LowerPrecision::~LowerPrecision() {
  for (const Replaced& replaced : replaced_) *replaced.member = replaced.weight;
}

void LowerPrecision::collect_gradients(const Tensor& factor) const {
  const NoGrad no_grad;
  // fresh: gradients of weights that have none yet; more: gradients added to an existing one.
  std::vector<Tensor> fresh, first_sums, more, sums;
  for (const Replaced& replaced : replaced_) {
    const Tensor half = replaced.member->tracked() ? gradient(*replaced.member) : Tensor();
    if (!half.defined()) continue;
    zero_gradient(*replaced.member);
    Tensor& sum = replaced.weight.node()->gradient;
    const bool is_first = !sum.defined();
    if (is_first) sum = Tensor::empty(half.shape(), DType::f32, half.device());
    (is_first ? fresh : more).push_back(contiguous(half.detach()));
    (is_first ? first_sums : sums).push_back(sum);
  }
  if (!fresh.empty()) scale_all(fresh, factor, false, first_sums);
  if (!more.empty()) scale_all(more, factor, true, sums);
}

LossScale::LossScale(Device device, const LossScaleState& state)
    : scale_(number(state.scale, DType::f32, device)),
      good_(number(static_cast<double>(state.good_steps), DType::i32, device)),
      skipped_(number(static_cast<double>(state.skipped), DType::i32, device)),
      skip_(number(0, DType::i32, device)) {}

Tensor LossScale::inverse() const {
  const NoGrad no_grad;
  return reciprocal(scale_);  // exact: the scale is a power of two
}

void LossScale::update(const Tensor& norm) {
  const NoGrad no_grad;
  const Device device = scale_.device();
  const Tensor zero = number(0, DType::i32, device), one = number(1, DType::i32, device);
  const Tensor zero_or_nan = norm * 0;  // infinity times 0 is NaN
  skip_ = not_equal(zero_or_nan, zero_or_nan);
  good_ = where(skip_, zero, good_ + one);
  const Tensor grow = equal(good_, number(static_cast<double>(patience), DType::i32, device));
  good_ = where(grow, zero, good_);
  scale_ = clamp(where(skip_, scale_ * 0.5, where(grow, scale_ * 2, scale_)), lowest, highest);
  skipped_ = skipped_ + skip_;
}

Tensor LossScale::can_shrink() const {
  const NoGrad no_grad;
  return greater(scale_, number(lowest, DType::f32, scale_.device()));
}

LossScaleState LossScale::state() const {
  return {scale_.item(), static_cast<std::int64_t>(good_.item()), static_cast<std::int64_t>(skipped_.item())};
}

Autocast::Autocast(std::vector<NamedTensor> parameters, Precision precision, const LossScaleState& loss_scale)
    : parameters_(std::move(parameters)), precision_(precision) {
  if (precision == Precision::f32) return;
  check(!parameters_.empty(), "Autocast: the model has no parameters");
  const Device device = parameters_[0].tensor->device();
  check_precision(precision, device);
  if (device.type != DeviceType::cpu) dtype_ = dtype_in(precision);
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
  const LowerPrecision lower(parameters_, precision_);
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
  optimizer.compute_in(dtype_in(precision_), matmul_precision_in(precision_));
  optimizer.step(learning_rate, {}, skip);
  optimizer.zero_gradients();
}

LossScaleState Autocast::loss_scale_state() const {
  check(loss_scale_.has_value(), "Autocast: only f16 has a loss scale");
  return loss_scale_->state();
}

}  // namespace heed
