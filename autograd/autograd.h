#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "heed/core/random.h"
#include "heed/core/tensor.h"

namespace heed {

struct Node;

/// A tracked leaf that shares the elements of `tensor` (f32 or f64): its gradient is collected by backward().
Tensor parameter(const Tensor& tensor);

/// Adds d(output)/d(leaf) to the gradient of every leaf that `output` depends on. `output` has one
/// element unless the gradient to start from is given (same shape). A graph can be walked once: closures
/// are freed as they run.
void backward(const Tensor& output, const Tensor& gradient = {});

/// The gradient collected in a leaf; undefined when there is none yet. Throws when the tensor is not a leaf.
Tensor gradient(const Tensor& leaf);
/// Forgets the gradient of a leaf.
void zero_gradient(const Tensor& leaf);

/// While it lives, notes which leaves backward() on this thread leaves a gradient in. After the step and the
/// zero_gradients() of all optimizers, whoever holds a gradient still is trained by nobody, such as the
/// parameters of a part that no add_module() has registered:
///
///   const heed::GradientWatch watch;
///   heed::backward(loss);
///   adamw.step(rate);
///   adamw.zero_gradients();
///   heed::check(watch.left().empty(), "something of the model is not trained");
class GradientWatch {
 public:
  GradientWatch();
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;
  /// The shapes of those leaves that exist and hold a gradient still, in the order in which they were
  /// reached.
  std::vector<Shape> left() const;

 private:
  friend void backward(const Tensor& output, const Tensor& gradient);
  GradientWatch* previous_;
  std::vector<std::weak_ptr<Node>> reached_;  // some of them several times
};

/// Turns the recording of ops on or off for this thread while it lives.
class RecordingScope {
 public:
  explicit RecordingScope(bool enabled);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool previous_;
};
/// While it lives on this thread, ops are not recorded.
class NoGrad : public RecordingScope {
 public:
  NoGrad() : RecordingScope(false) {}
};

/// Runs `segment(inputs, random)` without keeping its intermediate tensors, and runs it again in backward
/// with the same random numbers (arXiv 1604.06174): memory for time. Parameters that the segment uses get
/// their gradients as usual.
Tensor recompute_in_backward(std::function<Tensor(std::span<const Tensor>, Random&)> segment,
                             std::vector<Tensor> inputs, Random& random);

/// The outcome of a gradient check.
struct GradcheckResult {
  bool passed = false;
  double worst_error = 0;  ///< max over elements of |analytic - numeric| / max(1, |analytic|, |numeric|)
  int worst_input = -1;    ///< which input
  std::int64_t worst_element = -1;
  double analytic = 0;
  double numeric = 0;
};

/// Compares backward() with central finite differences of sum(w * function(inputs)), w fixed random weights,
/// in f64. Every f64 input is perturbed element by element; at most `max_elements` per input, evenly spread.
/// The function must be deterministic. Throws when an input is f32, tracked or not.
GradcheckResult gradcheck(const std::function<Tensor(std::span<const Tensor>)>& function,
                          std::vector<Tensor> inputs, double tolerance = 1e-6, double step = 1e-5,
                          std::int64_t max_elements = 64);

}  // namespace heed
