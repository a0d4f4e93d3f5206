#include <algorithm>
#include <utility>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

static Tensor cross_entropy_composed(const Tensor& logits, const Tensor& targets, double smoothing,
                                     std::int32_t ignored) {
  const Tensor log_probabilities = log_softmax(cast(logits, statistics_type(logits.dtype())), -1);
  const Tensor is_ignored = equal(targets, ignored);
  // gather() reads -1 as "none"; as a class it is out of range and must be refused like any other.
  const Tensor in_range = where(less(targets, 0), static_cast<double>(logits.size(-1)), targets);
  const Tensor safe = where(is_ignored, 0, in_range);
  const Tensor picked = squeeze(gather(log_probabilities, -1, unsqueeze(safe, -1)), -1);
  const Tensor loss = picked * (smoothing - 1.0) - mean(log_probabilities, -1) * smoothing;
  return masked_fill(loss, is_ignored, 0);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing, std::int32_t ignored) {
  check_floating("cross_entropy", logits);
  check_indices("cross_entropy", targets);
  Shape rows_shape = targets.shape();
  rows_shape.push_back(logits.rank() > 0 ? logits.size(-1) : 0);
  check(rows_shape == logits.shape() && logits.size(-1) > 0, "cross_entropy: logits of shape ",
        logits.shape(), " do not fit targets of shape ", targets.shape());
  check(smoothing >= 0 && smoothing <= 1, "cross_entropy: smoothing ", smoothing, " is outside [0, 1]");
  const Backend& backend = backend_of(logits);
  if (!usable(backend.cross_entropy)) return cross_entropy_composed(logits, targets, smoothing, ignored);

  const Tensor rows = plain(logits).view({targets.count(), logits.size(-1)});
  const Tensor classes = contiguous(targets).view({targets.count()});
  const DType precise = statistics_type(logits.dtype());
  const Tensor loss = Tensor::empty(targets.shape(), precise, logits.device());
  const Tensor log_sum_exp = Tensor::empty({targets.count(), 2}, precise, logits.device());
  backend.cross_entropy.forward(rows, classes, smoothing, ignored, loss.view({targets.count()}), log_sum_exp);
  return record(
      "cross_entropy", loss, {logits},
      [rows, classes, log_sum_exp, smoothing, ignored, shape = logits.shape()](const Tensor& grad) {
        const Tensor dlogits = reuse_or_empty(rows);  // overwrites the logits when nothing else uses them
        backend_of(grad).cross_entropy.backward(
            rows, classes, log_sum_exp, contiguous(grad).view(classes.shape()), smoothing, ignored, dlogits);
        return Gradients{dlogits.view(shape)};
      },
      {&rows, &classes});
}

Tensor mean_squared_error(const Tensor& x, const Tensor& target) {
  check_same("mean_squared_error", x, target);
  check(x.shape() == target.shape(), "mean_squared_error: shapes ", x.shape(), " and ", target.shape(),
        " differ; reshape() one of them");
  return mean(square(x - target));
}

Tensor kl_divergence(const Tensor& log_p, const Tensor& log_q) {
  check_same("kl_divergence", log_p, log_q);
  check(log_p.shape() == log_q.shape() && log_p.rank() > 0, "kl_divergence: shapes ", log_p.shape(), " and ",
        log_q.shape(), " are not the same [..., classes]");
  const Tensor p = exp(log_p), nothing = equal(p.detach(), 0);
  return sum(p * (where(nothing, 0, log_p) - where(nothing, 0, log_q)), -1);
}

// The loss of a model with a large vocabulary, whose logits would be the largest tensor of a training step.
// Only a chunk of rows of the logits exists at a time. Since the result is a plain sum, the gradient of
// every row is known up to one factor as soon as its logits are, so it is computed right away and the
// logits are not needed again. The factor is 1, or the gradient set by ExpectedGradient: a loss scale,
// without which the many small gradients of logits would vanish in f16.

namespace {

/// The chunks of logits when the backend has no rule: 16 MB of f32 at a time.
LogitChunks plan_chunks(const Backend& backend, const Tensor& x, std::int64_t rows, std::int64_t classes) {
  if (backend.logit_chunks) return backend.logit_chunks(x.device(), x.dtype(), rows, classes);
  constexpr std::int64_t logits_at_once = 1 << 22;
  return {std::max<std::int64_t>(1, logits_at_once / classes), classes};
}

struct ChunkedLoss {
  // x [rows, d], weight [classes, d], bias [classes] or undefined, targets [rows]
  Tensor x, weight, bias, targets;
  double smoothing;
  std::int32_t ignored;
};

Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  return slice(x, 0, begin, begin + count);
}

/// The gradients under the assumption that the sum's own gradient is `expected` (undefined: 1); undefined
/// when not wanted. That of the weight is summed over chunks, in f32 for half operands.
struct EarlyGradients {
  Tensor expected, x, weight, bias;
  bool wanted() const { return x.defined() || weight.defined() || bias.defined(); }
};

/// Buffers for one chunk of rows, allocated once for all chunks.
struct Scratch {
  Tensor logits;       // [rows, pitch]
  Tensor log_sum_exp;  // [rows, 2]
  Tensor grad;         // [rows]: the assumed gradient of each loss
  Tensor ones;         // [1, rows]; defined when the gradient of the bias is computed by a product
};

/// Writes the losses of rows begin ... begin + count - 1 to `loss` and adds their share of the gradients.
void add_rows(const ChunkedLoss& given, const Scratch& scratch, std::int64_t begin, std::int64_t count,
              const Tensor& loss, EarlyGradients& gradients) {
  const Backend& backend = backend_of(given.x);
  const std::int64_t classes = given.weight.size(0), pitch = scratch.logits.size(1);
  const Tensor x = rows_of(given.x, begin, count), targets = rows_of(given.targets, begin, count);
  const Tensor logits = scratch.logits.view({count, classes}, {pitch, 1}, scratch.logits.offset());
  const Tensor log_sum_exp = rows_of(scratch.log_sum_exp, 0, count);
  backend.matmul(x, transpose(given.weight, 0, 1), given.bias, 0, logits);
  backend.cross_entropy.forward(logits, targets, given.smoothing, given.ignored, rows_of(loss, begin, count),
                                log_sum_exp);
  if (!gradients.wanted()) return;

  backend.cross_entropy.backward(logits, targets, log_sum_exp, rows_of(scratch.grad, 0, count),
                                 given.smoothing, given.ignored, logits);
  const double beta = begin ? 1 : 0;
  if (backend.linear_backward && gradients.x.defined() && gradients.weight.defined() && pitch == classes) {
    backend.linear_backward(std::span(&logits, 1), x, std::span(&given.weight, 1), beta,
                            rows_of(gradients.x, begin, count), std::span(&gradients.weight, 1));
  } else {
    if (gradients.x.defined())
      backend.matmul(logits, given.weight, {}, 0, rows_of(gradients.x, begin, count));
    if (gradients.weight.defined()) backend.matmul(transpose(logits, 0, 1), x, {}, beta, gradients.weight);
  }
  if (gradients.bias.defined() && scratch.ones.defined())
    backend.matmul(scratch.ones.view({1, count}, {count, 1}, scratch.ones.offset()), logits, {}, beta,
                   gradients.bias.view({1, classes}));
  else if (gradients.bias.defined())
    gradients.bias = begin ? gradients.bias + sum(logits, 0) : sum(logits, 0);
}

/// Multiplies a gradient by one factor, in place: the closure runs only once.
Tensor scaled(const Tensor& gradient, const Tensor& factor) {
  if (!gradient.defined()) return {};
  const Tensor repeated = broadcast_view(cast(factor, gradient.dtype()), gradient.shape());
  backend_of(gradient).binary(BinaryOp::mul, gradient, repeated, gradient);
  return gradient;
}

/// Rescales the early gradients to the actual gradient and converts them to the dtype of the inputs.
Gradients rescaled_gradients(const EarlyGradients& early, const Tensor& grad, DType dtype) {
  const Tensor factor = early.expected.defined() ? grad / early.expected : grad;
  const Backend& backend = backend_of(grad);
  if (!backend.scale_all)
    return {scaled(early.x, factor), scaled(early.weight, factor), scaled(early.bias, factor)};
  std::vector<Tensor> from, to;
  Gradients all;
  for (const Tensor& gradient : {early.x, early.weight, early.bias}) {
    const bool converts = gradient.defined() && gradient.dtype() != dtype;
    all.push_back(converts ? Tensor::empty(gradient.shape(), dtype, gradient.device()) : gradient);
    if (!gradient.defined()) continue;
    from.push_back(gradient);
    to.push_back(all.back());
  }
  backend.scale_all(from, factor, false, to);
  return all;
}

void check_arguments(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const Tensor& targets, double smoothing) {
  check_same(op, x, weight);
  check_floating(op, x);
  check_indices(op, targets);
  check(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1), op, ": input of shape ",
        x.shape(), " does not fit weight of shape ", weight.shape(), " ([classes, in])");
  check(weight.size(0) > 0, op, ": a weight of shape ", weight.shape(), " has no classes");
  if (bias.defined()) {
    check_same(op, x, bias);
    check(bias.shape() == Shape{weight.size(0)}, op, ": bias of shape ", bias.shape(),
          " does not fit weight of shape ", weight.shape());
  }
  check(targets.count() == row_count(x.shape()), op, ": targets of shape ", targets.shape(),
        " do not fit inputs of shape ", x.shape());
  check(smoothing >= 0 && smoothing <= 1, op, ": smoothing ", smoothing, " is outside [0, 1]");
}

/// Makes room for the wanted gradients of the inputs; without rows, these are the final values.
/// `sums`: the type of gradients that are added up over the chunks.
EarlyGradients early_gradients(const Tensor& x, const Tensor& weight, const Tensor& bias, DType sums) {
  const bool empty = row_count(x.shape()) == 0;
  const auto wanted = [&](const Tensor& input, DType dtype) {
    if (!recording() || !input.tracked()) return Tensor();
    return empty ? Tensor::zeros(input.shape(), dtype, input.device())
                 : Tensor::empty(input.shape(), dtype, input.device());
  };
  EarlyGradients gradients{ExpectedGradient::active(), wanted(x, x.dtype()), wanted(weight, sums),
                           wanted(bias, sums)};
  if (gradients.x.defined()) gradients.x = gradients.x.view({row_count(x.shape()), x.size(-1)});
  return gradients;
}

Scratch allocate_scratch(const ChunkedLoss& given, const LogitChunks& chunks,
                         const EarlyGradients& gradients) {
  const DType dtype = given.x.dtype(), statistics = statistics_type(dtype);
  const Device device = given.x.device();
  const Tensor& expected = gradients.expected;
  Scratch scratch{Tensor::empty({chunks.rows, chunks.pitch}, dtype, device),
                  Tensor::empty({chunks.rows, 2}, statistics, device),
                  {},
                  {}};
  if (gradients.wanted())
    scratch.grad = expected.defined()
                       ? contiguous(broadcast_view(cast(reshape(expected, {1}), statistics), {chunks.rows}))
                       : Tensor::ones({chunks.rows}, statistics, device);
  if (gradients.bias.defined() && backend_of(given.x).logit_chunks)
    scratch.ones = Tensor::ones({1, chunks.rows}, dtype, device);
  return scratch;
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            double smoothing, std::int32_t ignored, std::int64_t rows_at_once) {
  constexpr const char* op = "linear_cross_entropy";
  check_arguments(op, x, weight, bias, targets, smoothing);
  const std::int64_t rows = targets.count();
  const Backend& backend = backend_of(x);
  if (!usable(backend.cross_entropy)) {
    const Tensor logits = linear(reshape(x, {rows, x.size(-1)}), weight, bias);
    return sum(cross_entropy(logits, reshape(targets, {rows}), smoothing, ignored));
  }

  const ChunkedLoss given{plain(x).view({rows, x.size(-1)}), plain(weight), plain(bias),
                          contiguous(targets).view({rows}),  smoothing,     ignored};
  const DType statistics = statistics_type(x.dtype());
  LogitChunks chunks = plan_chunks(backend, x, rows, weight.size(0));
  if (rows_at_once > 0) chunks.rows = rows_at_once;
  chunks.rows = std::min(chunks.rows, rows);
  const Tensor losses = Tensor::empty({rows}, statistics, x.device());
  // A sum over chunks is rounded to a half type only once.
  EarlyGradients gradients = early_gradients(x, weight, bias, rows > chunks.rows ? statistics : x.dtype());
  const Scratch scratch = allocate_scratch(given, chunks, gradients);
  for (std::int64_t begin = 0; begin < rows; begin += chunks.rows)
    add_rows(given, scratch, begin, std::min(chunks.rows, rows - begin), losses, gradients);
  return record(op, sum(losses), {x, weight, bias},
                [gradients, shape = x.shape(), dtype = x.dtype()](const Tensor& grad) {
                  Gradients all = rescaled_gradients(gradients, grad, dtype);
                  if (all[0].defined()) all[0] = all[0].view(shape);
                  return all;
                });
}

}  // namespace heed
