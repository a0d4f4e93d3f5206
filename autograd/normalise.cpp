#include "heed/autograd/ops.h"
#include "heed/autograd/recording.h"

namespace heed {

namespace {

Tensor layer_norm_composed(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  const Tensor centred = x - mean(x, -1, true);
  Tensor y = centred * rsqrt(mean(square(centred), -1, true) + epsilon);
  if (weight.defined()) y = y * weight;
  return bias.defined() ? y + bias : y;
}

void check_norm_parameter(const char* what, const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined()) return;
  check_same("layer_norm", x, parameter);
  check(parameter.shape() == Shape{x.size(-1)}, "layer_norm: ", what, " of shape ", parameter.shape(),
        " does not fit input of shape ", x.shape());
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  check_floating("layer_norm", x);
  check(x.rank() >= 1 && x.size(-1) > 0, "layer_norm: shape ", x.shape(), " has no elements to normalise");
  check_norm_parameter("weight", weight, x);
  check_norm_parameter("bias", bias, x);
  const Backend& backend = backend_of(x);
  if (!usable(backend.layer_norm)) return layer_norm_composed(x, weight, bias, epsilon);

  const Tensor rows = contiguous(x.detach()).view({x.count() / x.size(-1), x.size(-1)});
  const Tensor out = empty_like(x);
  const Tensor row_mean = Tensor::empty({rows.size(0)}, statistics_type(x.dtype()), x.device());
  const Tensor inverse_deviation = empty_like(row_mean);
  const Tensor scale = weight.defined() ? contiguous(weight.detach()) : weight;
  backend.layer_norm.forward(rows, scale, bias.defined() ? contiguous(bias.detach()) : bias, epsilon,
                             out.view(rows.shape()), row_mean, inverse_deviation);
  return record("layer_norm", out, {x, weight, bias},
                [rows, scale, row_mean, inverse_deviation, want_weight = weight.tracked(),
                 want_bias = bias.tracked()](const Tensor& grad) {
                  const auto wanted = [&](bool want) {
                    return want ? Tensor::empty({rows.size(1)}, grad.dtype(), grad.device()) : Tensor();
                  };
                  const Tensor dx = empty_like(grad), dweight = wanted(want_weight),
                               dbias = wanted(want_bias);
                  backend_of(grad).layer_norm.backward(rows, scale, row_mean, inverse_deviation,
                                                       contiguous(grad).view(rows.shape()),
                                                       dx.view(rows.shape()), dweight, dbias);
                  return Gradients{dx, dweight, dbias};
                },
                {&rows, &scale});
}

}  // namespace heed
