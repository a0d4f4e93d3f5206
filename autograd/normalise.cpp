#include <cmath>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

Tensor norm_composed(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                     bool centred) {
  const double root = std::sqrt(epsilon);
  const Tensor scale = maximum(scale_of_squares(x, -1), root), scaled = x / scale;
  const Tensor from_mean = centred ? scaled - mean(scaled, -1, true) : scaled;
  Tensor y = from_mean * rsqrt(mean(square(from_mean), -1, true) + square(root / scale));
  if (weight.defined()) y = y * weight;
  return bias.defined() ? y + bias : y;
}

void check_norm_parameter(const char* op, const char* what, const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined()) return;
  check_same(op, x, parameter);
  check(parameter.shape() == Shape{x.size(-1)}, op, ": ", what, " of shape ", parameter.shape(),
        " does not fit input of shape ", x.shape());
}

void check_norm_arguments(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating(op, x);
  check(x.rank() >= 1 && x.size(-1) > 0, op, ": shape ", x.shape(), " has no elements to normalise");
  check_norm_parameter(op, "weight", weight, x);
  check_norm_parameter(op, "bias", bias, x);
}

void check_probability(const char* op, double p) {
  check(p >= 0 && p < 1, op, ": probability ", p, " is outside [0, 1)");
}

void check_addends(const char* op, const Tensor& x, const Tensor& residual, double p) {
  check_same(op, x, residual);
  check_floating(op, x);
  check_probability(op, p);
  check(x.shape() == residual.shape(), op, ": shapes ", x.shape(), " and ", residual.shape(), " differ");
}

/// The values that kernels keep of a normalisation for its backward pass, and room for its
/// gradients.
struct RowNorm {
  Shape rows;  // x as [rows, n]
  Tensor scale, mean, inverse_deviation;
  bool want_weight, want_bias;

  /// Without `centred` there are no means: RMS normalisation.
  RowNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, bool centred)
      : rows{x.count() / x.size(-1), x.size(-1)},
        scale(plain(weight)),
        inverse_deviation(Tensor::empty({rows[0]}, statistics_type(x.dtype()), x.device())),
        want_weight(weight.tracked()),
        want_bias(bias.tracked()) {
    if (centred) mean = empty_like(inverse_deviation);
  }
  Tensor as_rows(const Tensor& x) const { return x.defined() ? plain(x).view(rows) : x; }
  /// Room for the gradient of weight or bias, if it is wanted.
  Tensor room(bool wanted, const Tensor& grad) const {
    return wanted ? empty_like(grad, {rows[1]}) : Tensor();
  }
};

Tensor norm_of_rows(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                    bool centred) {
  check_norm_arguments(op, x, weight, bias);
  const Backend& backend = backend_of(x);
  check(std::isfinite(epsilon) && epsilon >= 0, op, ": epsilon is ", epsilon, "; it must not be negative");
  if (!usable(backend.layer_norm)) return norm_composed(x, weight, bias, epsilon, centred);

  const RowNorm norm(x, weight, bias, centred);
  const Tensor rows = norm.as_rows(x), out = empty_like(x);
  backend.layer_norm.forward(rows, norm.scale, plain(bias), epsilon, out.view(norm.rows), norm.mean,
                             norm.inverse_deviation);
  return record(op, out, {x, weight, bias},
                [norm, rows](const Tensor& grad) {
                  const Tensor dx = empty_like(grad), dweight = norm.room(norm.want_weight, grad),
                               dbias = norm.room(norm.want_bias, grad);
                  backend_of(grad).layer_norm.backward(rows, norm.scale, norm.mean, norm.inverse_deviation,
                                                       norm.as_rows(grad), dx.view(norm.rows), dweight,
                                                       dbias);
                  return Gradients{dx, dweight, dbias};
                },
                {&rows, &norm.scale});
}

NormedSum add_norm(const char* op, const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                   const Tensor& weight, const Tensor& bias, double epsilon, bool centred) {
  check_norm_arguments(op, x, weight, bias);
  check_addends(op, x, residual, p);
  const Backend& backend = backend_of(x);
  if (!usable(backend.add_norm)) {
    const Tensor sum = dropout_add(x, residual, p, key);
    return {sum, norm_of_rows(op, sum, weight, bias, epsilon, centred)};
  }
  const RowNorm norm(x, weight, bias, centred);
  const Tensor sum = empty_like(x, norm.rows), out = empty_like(x);
  backend.add_norm.forward(norm.as_rows(x), norm.as_rows(residual), p, key, norm.scale, plain(bias), epsilon,
                           sum, out.view(norm.rows), norm.mean, norm.inverse_deviation);
  const Tensor outs[] = {sum.view(x.shape()), out}, inputs[] = {x, residual, weight, bias};
  const Tensor* const reads[] = {&sum, &norm.scale};
  const std::vector<Tensor> results = record_joint(
      op, outs, inputs,
      [norm, sum, p, key, want_x = x.tracked()](std::span<const Tensor> grads) {
        const Tensor &sum_grad = grads[0], &grad = grads[1];
        if (!grad.defined())  // only the sum was used
          return Gradients{want_x ? dropout(sum_grad, p, key) : Tensor(), sum_grad, Tensor(), Tensor()};
        const Tensor dsum = empty_like(grad), dx = p > 0 ? empty_like(grad) : Tensor(),
                     dweight = norm.room(norm.want_weight, grad), dbias = norm.room(norm.want_bias, grad);
        backend_of(grad).add_norm.backward(sum, norm.scale, norm.mean, norm.inverse_deviation,
                                           norm.as_rows(grad), norm.as_rows(sum_grad), p, key,
                                           norm.as_rows(dsum), norm.as_rows(dx), dweight, dbias);
        return Gradients{dx.defined() ? dx : dsum, dsum, dweight, dbias};
      },
      reads);
  return {results[0], results[1]};
}

Tensor apply_dropout(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                     const Tensor& out) {
  backend_of(x).dropout(x, residual, p, key, out);
  return out;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  return norm_of_rows("layer_norm", x, weight, bias, epsilon, true);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  return norm_of_rows("rms_norm", x, weight, {}, epsilon, false);
}

NormedSum add_layer_norm(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                         const Tensor& weight, const Tensor& bias, double epsilon) {
  return add_norm("add_layer_norm", x, residual, p, key, weight, bias, epsilon, true);
}

NormedSum add_rms_norm(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                       const Tensor& weight, double epsilon) {
  return add_norm("add_rms_norm", x, residual, p, key, weight, {}, epsilon, false);
}

static Tensor rotary_composed(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  const auto of_heads = [&](const Tensor& table) { return cast(unsqueeze(table.detach(), 1), x.dtype()); };
  const Tensor cosine = of_heads(cosines), sine = of_heads(sines);  // [N, 1, dh / 2]
  const std::int64_t width = x.size(3), half = width / 2;
  const Tensor first = slice(x, 3, 0, half), second = slice(x, 3, half, width);
  return concat({first * cosine - second * sine, second * cosine + first * sine}, 3);
}

static void check_rotary(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  check_floating("rotary", x);
  check_same("rotary", cosines, sines);
  check(x.rank() == 4 && x.size(3) % 2 == 0, "rotary: x must be [B, N, H, dh] with an even dh, got shape ",
        x.shape());
  const Shape expected{x.size(1), x.size(3) / 2};
  check(cosines.shape() == expected && sines.shape() == expected, "rotary: cosines and sines of shapes ",
        cosines.shape(), " and ", sines.shape(), " must be [N, dh / 2] = ", expected);
  check(cosines.dtype() == statistics_type(x.dtype()) && cosines.device() == x.device(), "rotary: for x of ",
        x.dtype(), " on ", x.device(), " cosines and sines must be ", statistics_type(x.dtype()),
        " on the same device, got ", cosines.dtype(), " on ", cosines.device());
}

Tensor rotary(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  check_rotary(x, cosines, sines);
  const Backend& backend = backend_of(x);
  if (!usable(backend.rotary)) return rotary_composed(x, cosines, sines);
  const Tensor cosine = plain(cosines), sine = plain(sines), out = empty_like(x);
  backend.rotary.forward(plain(x), cosine, sine, out);
  return record("rotary", out, {x},
                [cosine, sine](const Tensor& grad) {
                  const Tensor turned = contiguous(grad), dx = empty_like(grad);
                  backend_of(grad).rotary.backward(turned, cosine, sine, dx);
                  return Gradients{dx};
                },
                {&cosine, &sine});
}

Tensor dropout(const Tensor& x, double p, const RandomKey& key) {
  check_floating("dropout", x);
  check_probability("dropout", p);
  if (p == 0) return x;
  return record("dropout", apply_dropout(plain(x), {}, p, key, empty_like(x)), {x},
                [p, key](const Tensor& grad) {
                  return Gradients{apply_dropout(contiguous(grad), {}, p, key, reuse_or_empty(grad))};
                });
}

Tensor dropout_add(const Tensor& x, const Tensor& residual, double p, const RandomKey& key) {
  check_addends("dropout_add", x, residual, p);
  if (p == 0) return x + residual;
  const Tensor out = apply_dropout(plain(x), plain(residual), p, key, empty_like(x));
  return record("dropout_add", out, {x, residual}, [p, key](const Tensor& grad) {
    return Gradients{apply_dropout(contiguous(grad), {}, p, key, empty_like(grad)), grad};
  });
}

}  // namespace heed
