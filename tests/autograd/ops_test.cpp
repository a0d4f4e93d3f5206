// The chain of trust over the op case table: finite differences in f64, composed against fused in f64, f32
// against f64, and the same bits for every number of threads.

#include "heed/autograd/cases/op_cases.h"
#include "heed/core/backend.h"
#include "heed/tests/support.h"
#include "heed/training/optimizer.h"

namespace {

void check_close(const std::vector<Doubles>& actual, const std::vector<Doubles>& expected, double tolerance) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t t = 0; t < actual.size(); ++t) {
    REQUIRE(actual[t].size() == expected[t].size());
    for (std::size_t i = 0; i < actual[t].size(); ++i) {
      const double scale = std::max(1.0, std::abs(expected[t][i]));
      CHECK_MESSAGE(std::abs(actual[t][i] - expected[t][i]) <= tolerance * scale, "tensor ", t, " element ",
                    i, ": ", actual[t][i], " against ", expected[t][i]);
    }
  }
}

}  // namespace

TEST_CASE("ops: gradients agree with finite differences") {
  for (const OpCase& op_case : op_cases()) {
    if (!op_case.differentiable) continue;
    CAPTURE(op_case.name);
    const GradcheckResult result = gradcheck(op_case.function, op_case.inputs, op_case.tolerance);
    CHECK_MESSAGE(result.passed, "input ", result.worst_input, " element ", result.worst_element, ": ",
                  result.analytic, " against ", result.numeric);
  }
}

TEST_CASE("ops: composed bodies agree with fused kernels") {
  for (const OpCase& op_case : op_cases()) {
    CAPTURE(op_case.name);
    const auto fused = op_results(op_case, DType::f64);
    const ComposeOnly compose_only;
    check_close(op_results(op_case, DType::f64), fused, 1e-10);
  }
}

TEST_CASE("ops: f32 agrees with f64") {
  for (const OpCase& op_case : op_cases()) {
    CAPTURE(op_case.name);
    check_close(op_results(op_case, DType::f32), op_results(op_case, DType::f64), 2e-5);
  }
}

TEST_CASE("ops: any number of threads gives the same bits") {
  for (const OpCase& op_case : op_cases()) {
    CAPTURE(op_case.name);
    std::vector<Doubles> single;
    for (int count : {1, 2, 3, 8}) {
      const test::WithThreads scope(count);
      const auto found = op_results(op_case, DType::f32);
      if (count == 1) single = found;
      CHECK(found == single);
    }
  }
}

// --- What was overwritten between a forward pass and its backward is an error, and not a wrong gradient.

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
  CHECK_ERROR(backward(product), "backward: a tensor that the gradient of mul reads was overwritten");
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

TEST_CASE("a result from which its own gradient is computed must not be overwritten either") {
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
  CHECK_ERROR(backward(early), "an optimizer step");
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
      Ints zeros(static_cast<std::size_t>(x.count()), 0);
      x.assign(std::span<const std::int32_t>(zeros));
    } else {
      const Tensor other = uniform(x.shape(), 0.5, 1.5, {99, 0, 0}, DType::f64);
      x.assign(std::span<const double>(other.to_vector<double>()));
    }
  };
  for (const bool composed : {false, true}) {
    for (const OpCase& op_case : op_cases()) {
      if (!op_case.differentiable) continue;
      CAPTURE_ALL(op_case.name, composed);
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
