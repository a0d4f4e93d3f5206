// What was overwritten between a forward pass and its backward is an error, and not a wrong gradient.

#include <doctest/doctest.h>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/backend.h"
#include "heed/tests/cases/op_cases.h"
#include "heed/training/optimizer.h"

using namespace heed;
using Doubles = std::vector<double>;

namespace {

void overwrite(const Tensor& x) {
  if (x.dtype() == DType::i32)
    x.assign(std::span<const std::int32_t>(x.to_vector<std::int32_t>()));
  else
    x.assign(std::span<const double>(x.to_vector<double>()));
}

/// The gradients of the op case's loss when `change` happens between forward and backward; nothing when it
/// throws.
std::vector<Doubles> gradients(const OpCase& op_case,
                               const std::function<void(const std::vector<Tensor>&)>& change) {
  std::vector<Tensor> inputs = inputs_for(op_case, DType::f64);
  for (Tensor& input : inputs)
    if (is_floating(input.dtype())) input = parameter(input);
  const Tensor loss = sum(op_case.function(inputs));
  change(inputs);
  try {
    backward(loss);
  } catch (const Error& error) {
    CHECK_MESSAGE(std::string(error.what()).find("overwritten") != std::string::npos, error.what());
    return {};
  }
  std::vector<Doubles> list;
  for (const Tensor& input : inputs)
    if (input.tracked()) list.push_back(gradient(input).to_vector<double>());
  return list;
}

}  // namespace

TEST_CASE("a tensor assigned between forward and backward is an error where its old values are needed") {
  const Tensor w = parameter(Tensor::from<double>({1}, {1})), x = Tensor::from<double>({2}, {1});
  const Tensor product = w * x;
  x.assign(std::span<const double>(Doubles{10}));
  CHECK_THROWS_WITH_AS(backward(product),
                       doctest::Contains("backward: what mul was computed from has been overwritten"), Error);
  backward(w * x);
  CHECK(gradient(w).item() == 10);

  // What is not needed may be overwritten.
  zero_gradient(w);
  const Tensor total = w + x;
  x.assign(std::span<const double>(Doubles{3}));
  backward(total);
  CHECK(gradient(w).item() == 1);
}

TEST_CASE("a view of a tensor shares its fate, a copy does not") {
  const Tensor w = parameter(Tensor::ones({2}, DType::f64)), x = Tensor::ones({2, 2}, DType::f64);
  const Tensor seen = w * x[0], copied = w * contiguous(transpose(x, 0, 1))[0];
  overwrite(x);
  CHECK_THROWS_AS(backward(sum(seen)), Error);
  CHECK_NOTHROW(backward(sum(copied)));
}

TEST_CASE("a result that its own gradient is computed from is not to be overwritten either") {
  const Tensor x = parameter(Tensor::from<double>({{1, 2}}));
  for (const Tensor& y : {exp(x), softmax(x), log_softmax(x), log_sum_exp(x, 1), log_sum_exp(x, 1, true)}) {
    CAPTURE(y.shape());
    const Tensor total = sum(y);
    overwrite(y);
    CHECK_THROWS_AS(backward(total), Error);
  }
}

TEST_CASE("an optimizer's step overwrites its weights") {
  Tensor w = parameter(Tensor::from<double>({1}, {1}));
  Optimizer sgd({{"w", &w}}, {.kind = OptimizerKind::sgd});
  const Tensor early = square(w);
  backward(square(w));
  sgd.step(0.1);
  CHECK_THROWS_WITH_AS(backward(early), doctest::Contains("a step of an optimizer"), Error);
}

TEST_CASE("an error leaves the rest of the graph as it was") {
  const Tensor w = parameter(Tensor::from<double>({2}, {1})), x = Tensor::from<double>({5}, {1});
  const Tensor shared = square(w);
  const Tensor loss = shared * x;
  overwrite(x);
  CHECK_THROWS_AS(backward(loss), Error);
  zero_gradient(w);
  backward(shared);
  CHECK(gradient(w).item() == 4);
}

TEST_CASE("every op either does without an overwritten operand or says so: never another gradient") {
  // Random values take the place of the old ones; a gradient that comes out must be that of the old values.
  int refused = 0;
  const auto scramble = [](const Tensor& x) {
    if (x.dtype() == DType::i32) {
      std::vector<std::int32_t> zeros(static_cast<std::size_t>(x.count()), 0);
      x.assign(std::span<const std::int32_t>(zeros));
    } else {
      const Tensor other = uniform(x.shape(), 0.5, 1.5, {99, 0, 0}, DType::f64);
      x.assign(std::span<const double>(other.to_vector<double>()));
    }
  };
  for (const bool composed : {false, true}) {
    for (const OpCase& op_case : op_cases()) {
      if (!op_case.differentiable) continue;
      CAPTURE(op_case.name);
      CAPTURE(composed);
      const std::unique_ptr<ComposeOnly> scope = composed ? std::make_unique<ComposeOnly>() : nullptr;
      const auto expected = gradients(op_case, [](const auto&) {});
      REQUIRE(!expected.empty());
      for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
        const auto found = gradients(op_case, [&](const auto& inputs) { scramble(inputs[i]); });
        CAPTURE(i);
        if (found.empty())
          ++refused;
        else
          CHECK(found == expected);
      }
    }
  }
  CHECK(refused > 100);
}
