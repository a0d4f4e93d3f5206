#include "heed/autograd/ops.h"
#include "heed/autograd/recording.h"

// The loss of a model with a large vocabulary. Its logits would be the largest tensor of the whole
// step; here only some rows of them exist at a time. Because the result is a plain sum, the gradient of
// every row is known up to one factor as soon as its logits are, so it is taken right away and the
// logits are not needed again.

namespace heed {

namespace {

constexpr std::int64_t logits_at_once = 1 << 22;  // elements: 16 MB in f32

struct Loss {
  // x [rows, d], weight [classes, d], bias [classes] or undefined, targets [rows]
  Tensor x, weight, bias, targets;
  double smoothing;
  std::int32_t ignored;
};

Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  Shape shape = x.shape();
  shape[0] = count;
  return x.view(shape, x.strides(), x.offset() + begin * x.strides()[0]);
}

Tensor transposed(const Tensor& x) {
  return x.view({x.size(1), x.size(0)}, {x.stride(1), x.stride(0)}, x.offset());
}

/// The gradients for a sum whose own gradient is 1; undefined where none is wanted.
struct UnitGradients {
  Tensor x, weight, bias;
};

/// The losses of rows begin ... begin + count - 1, written to `loss`; their part of the gradients is added.
void add_rows(const Loss& given, std::int64_t begin, std::int64_t count, const Tensor& loss,
              UnitGradients& gradients) {
  const Backend& backend = backend_of(given.x);
  const DType dtype = given.x.dtype();
  const Device device = given.x.device();
  const Tensor x = rows_of(given.x, begin, count), targets = rows_of(given.targets, begin, count);
  const Tensor logits = Tensor::empty({count, given.weight.size(0)}, dtype, device);
  const Tensor log_sum_exp = Tensor::empty({count}, statistics_type(dtype), device);
  backend.matmul(x, transposed(given.weight), given.bias, 0, logits);
  backend.cross_entropy.forward(logits, targets, given.smoothing, given.ignored, rows_of(loss, begin, count),
                                log_sum_exp);
  if (!gradients.x.defined() && !gradients.weight.defined() && !gradients.bias.defined()) return;

  const Tensor ones = Tensor::ones({count}, statistics_type(dtype), device);
  backend.cross_entropy.backward(logits, targets, log_sum_exp, ones, given.smoothing, given.ignored, logits);
  if (gradients.x.defined()) backend.matmul(logits, given.weight, {}, 0, rows_of(gradients.x, begin, count));
  if (gradients.weight.defined()) backend.matmul(transposed(logits), x, {}, begin ? 1 : 0, gradients.weight);
  if (gradients.bias.defined()) gradients.bias = begin ? gradients.bias + sum(logits, 0) : sum(logits, 0);
}

/// The gradient for any other upstream gradient, in the same memory: a closure runs once.
Tensor scaled(const Tensor& unit_gradient, const Tensor& grad) {
  if (!unit_gradient.defined()) return {};
  const Tensor factor = broadcast_view(cast(grad, unit_gradient.dtype()), unit_gradient.shape());
  backend_of(grad).binary(BinaryOp::mul, unit_gradient, factor, unit_gradient);
  return unit_gradient;
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            double smoothing, std::int32_t ignored, std::int64_t rows_at_once) {
  constexpr const char* op = "linear_cross_entropy";
  check_same(op, x, weight);
  check_floating(op, x);
  check_indices(op, targets);
  check(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1), op, ": input of shape ",
        x.shape(), " does not fit weight of shape ", weight.shape(), " ([classes, in])");
  check(weight.size(0) > 0, op, ": a weight of shape ", weight.shape(), " knows no classes");
  if (bias.defined()) {
    check_same(op, x, bias);
    check(bias.shape() == Shape{weight.size(0)}, op, ": bias of shape ", bias.shape(),
          " does not fit weight of shape ", weight.shape());
  }
  check(targets.count() == row_count(x.shape()), op, ": targets of shape ", targets.shape(),
        " do not fit inputs of shape ", x.shape());
  check(smoothing >= 0 && smoothing <= 1, op, ": smoothing ", smoothing, " is outside [0, 1]");
  const std::int64_t rows = targets.count(), classes = weight.size(0);
  if (!usable(backend_of(x).cross_entropy)) {
    const Tensor logits = linear(reshape(x, {rows, x.size(-1)}), weight, bias);
    return sum(cross_entropy(logits, reshape(targets, {rows}), smoothing, ignored));
  }
  require_kernel(backend_of(x).matmul, op, x.device());

  const Loss given{contiguous(x.detach()).view({rows, x.size(-1)}),
                   contiguous(weight.detach()),
                   bias.defined() ? contiguous(bias.detach()) : bias,
                   contiguous(targets).view({rows}),
                   smoothing,
                   ignored};
  const auto wanted = [&](const Tensor& input) {
    if (!recording() || !input.tracked()) return Tensor();
    return rows > 0 ? empty_like(input) : Tensor::zeros(input.shape(), input.dtype(), input.device());
  };
  const Tensor losses = Tensor::empty({rows}, statistics_type(x.dtype()), x.device());
  UnitGradients gradients{wanted(x), wanted(weight), wanted(bias)};
  if (gradients.x.defined()) gradients.x = gradients.x.view(given.x.shape());
  const std::int64_t at_once =
      rows_at_once > 0 ? rows_at_once : std::max<std::int64_t>(1, logits_at_once / classes);
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    add_rows(given, begin, std::min(at_once, rows - begin), losses, gradients);
  }
  return record(op, sum(losses), {x, weight, bias}, [gradients, shape = x.shape()](const Tensor& grad) {
    const Tensor dx = scaled(gradients.x, grad);
    return Gradients{dx.defined() ? dx.view(shape) : dx, scaled(gradients.weight, grad),
                     scaled(gradients.bias, grad)};
  });
}

}  // namespace heed
