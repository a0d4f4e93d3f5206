#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "heed/core/random.h"
#include "heed/core/scope.h"
#include "heed/core/tensor.h"

namespace heed {

struct Node;

/// Returns a tracked leaf that shares the elements of `tensor` (any floating dtype). backward()
/// collects its gradient.
Tensor parameter(const Tensor& tensor);

/// Adds d(output)/d(leaf) to the gradient of every leaf that `output` depends on. `output` must
/// have one element, unless `gradient` (of the same shape) is given as its gradient to start from.
/// A graph can be walked only once, since closures are freed as they run.
void backward(const Tensor& output, const Tensor& gradient = {});

/// Returns the gradient collected in a leaf; undefined when none has arrived yet. Throws when the
/// tensor is not a leaf.
Tensor gradient(const Tensor& leaf);
/// Drops the gradient of a leaf.
void zero_gradient(const Tensor& leaf);

/// Records the leaves that get a gradient from backward() on this thread while it lives. A leaf
/// that still holds a gradient after step() and zero_gradients() of all optimizers is trained by
/// none of them. An example is a parameter of a part that was never registered with add_module():
///
///   const heed::GradientWatch watch;
///   heed::backward(loss);
///   adamw.step(rate);
///   adamw.zero_gradients();
///   heed::check(watch.left().empty(), "part of the model is not trained");
class GradientWatch : Scoped<&Scope::gradient_watch> {
 public:
  GradientWatch() : Scoped(this) {}
  /// The shapes of the recorded leaves that still exist and hold a gradient, in the order in which
  /// backward() first reached them.
  std::vector<Shape> left() const;

 private:
  friend void backward(const Tensor& output, const Tensor& gradient);
  std::vector<std::weak_ptr<Node>> reached_;  // may list a leaf several times
};

/// Turns recording on or off for this thread while it lives.
using RecordingScope = Scoped<&Scope::recording>;
/// Turns recording off for this thread while it lives.
class NoGrad : RecordingScope {
 public:
  NoGrad() : RecordingScope(false) {}
};

/// Runs `segment(inputs, random)` without keeping its intermediate tensors, and runs it again in
/// backward with the same random numbers (gradient checkpointing, arXiv 1604.06174). This saves
/// memory and costs time. Parameters used inside the segment get their gradients as usual.
Tensor recompute_in_backward(std::function<Tensor(std::span<const Tensor>, Random&)> segment,
                             std::vector<Tensor> inputs, Random& random);

/// The outcome of a gradient check.
struct GradcheckResult {
  bool passed = false;
  /// Max over elements of |analytic - numeric| / max(1, |analytic|, |numeric|).
  double worst_error = 0;
  int worst_input = -1;  ///< index of the input with the worst error
  std::int64_t worst_element = -1;
  double analytic = 0;
  double numeric = 0;
};

/// Compares backward() with central finite differences of sum(w * function(inputs)), w fixed random
/// weights, in f64. Perturbs the elements of every f64 input one by one, at most `max_elements` per
/// input, evenly spread. The function must be deterministic. Throws when an input is f32, tracked
/// or not.
GradcheckResult gradcheck(const std::function<Tensor(std::span<const Tensor>)>& function,
                          std::vector<Tensor> inputs, double tolerance = 1e-6, double step = 1e-5,
                          std::int64_t max_elements = 64);

}  // namespace heed
