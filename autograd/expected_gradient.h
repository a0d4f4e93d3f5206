#pragma once

#include "heed/core/tensor.h"

namespace heed {

/// While it lives on this thread, an op that takes gradients along with its result (linear_cross_entropy) takes them for
/// `expected` as the gradient of that result (f32, one element; undefined = 1), so that a loss scale protects them
/// from vanishing in half precision. What backward() brings in the end may be anything; the gradients are right.
class ExpectedGradient {
 public:
  explicit ExpectedGradient(const Tensor& expected);
  ~ExpectedGradient();
  ExpectedGradient(const ExpectedGradient&) = delete;
  ExpectedGradient& operator=(const ExpectedGradient&) = delete;
  static const Tensor& active();

 private:
  Tensor previous_;
};

}  // namespace heed
