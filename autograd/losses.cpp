#include "heed/autograd/ops.h"
#include "heed/autograd/recording.h"

namespace heed {

namespace {

Tensor cross_entropy_composed(const Tensor& logits, const Tensor& targets, double smoothing,
                              std::int32_t ignored) {
  const Tensor log_probabilities = log_softmax(cast(logits, statistics_type(logits.dtype())), -1);
  const Tensor is_ignored = equal(targets, ignored);
  // To gather(), -1 means "nothing"; as a class it is as wrong as any beyond the last one, and is refused so.
  const Tensor in_range = where(less(targets, 0), static_cast<double>(logits.size(-1)), targets);
  const Tensor safe = where(is_ignored, 0, in_range);
  const Tensor picked = squeeze(gather(log_probabilities, -1, unsqueeze(safe, -1)), -1);
  const Tensor loss = picked * (smoothing - 1.0) - mean(log_probabilities, -1) * smoothing;
  return masked_fill(loss, is_ignored, 0);
}

}  // namespace

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

  const Tensor rows = contiguous(logits.detach()).view({targets.count(), logits.size(-1)});
  const Tensor classes = contiguous(targets).view({targets.count()});
  const DType precise = statistics_type(logits.dtype());
  const Tensor loss = Tensor::empty(targets.shape(), precise, logits.device());
  const Tensor log_sum_exp = Tensor::empty({targets.count(), 2}, precise, logits.device());
  backend.cross_entropy.forward(rows, classes, smoothing, ignored, loss.view({targets.count()}), log_sum_exp);
  return record(
      "cross_entropy", loss, {logits},
      [rows, classes, log_sum_exp, smoothing, ignored, shape = logits.shape()](const Tensor& grad) {
        const Tensor dlogits = reuse_or_empty(rows);  // the logits themselves, when nobody else needs them
        backend_of(grad).cross_entropy.backward(
            rows, classes, log_sum_exp, contiguous(grad).view(classes.shape()), smoothing, ignored, dlogits);
        return Gradients{dlogits.view(shape)};
      },
      {&rows, &classes});
}

}  // namespace heed
