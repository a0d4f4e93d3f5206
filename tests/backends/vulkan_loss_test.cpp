// The loss over a vocabulary on a Vulkan device: how many rows of logits at a time, what a chunk costs, half
// types against f32 on the same rounded numbers, and small gradients under a loss scale.

#include "heed/autograd/graph.h"
#include "heed/core/backend.h"
#include "heed/tests/vulkan_compare.h"

namespace heed::vulkan {
LogitChunks plan_logits(std::uint64_t memory_bytes, std::int64_t element, std::int64_t rows,
                        std::int64_t classes);  // of rows.cpp
}

namespace {

/// Inputs of a loss: x [rows, width], weight [classes, width], bias [classes], targets [rows].
struct LossCase {
  std::int64_t rows, width, classes;
  bool with_bias = true;
  double smoothing = 0.1, scale = 1;  // of the logits
};

/// The loss and the gradients of x, weight and bias, as doubles.
using LossResults = std::vector<Doubles>;

/// `from`: where x, weight and bias come from, rounded to what a half type holds; empty: made anew.
LossResults outcome_of(const LossCase& c, std::vector<Tensor> inputs, std::int64_t rows_at_once,
                       double upstream = 3) {
  const Device device = inputs[0].device();
  for (Tensor& input : inputs) input = parameter(input);
  Ints ids;
  for (std::int64_t i = 0; i < c.rows; ++i)
    ids.push_back(i % 5 == 4 ? -1 : static_cast<std::int32_t>(i * 7919 % c.classes));
  const Tensor targets = Tensor::from(ids, {c.rows}, device);
  const Tensor loss = linear_cross_entropy(inputs[0], inputs[1], c.with_bias ? inputs[2] : Tensor(), targets,
                                           c.smoothing, -1, rows_at_once);
  backward(loss * upstream);
  LossResults outcome{{loss.item()}};
  for (std::size_t i = 0; i < (c.with_bias ? 3u : 2u); ++i)
    outcome.push_back(gradient(inputs[i]).to_doubles());
  return outcome;
}

std::vector<Tensor> inputs_on(const LossCase& c, Device device, DType dtype = DType::f32) {
  std::vector<Tensor> inputs;
  std::uint32_t stream = 0;
  for (const Shape& shape : {Shape{c.rows, c.width}, Shape{c.classes, c.width}, Shape{c.classes}}) {
    const Tensor x = tensor_of<float>(numbers(shape.count(), -c.scale, c.scale, ++stream), shape);
    inputs.push_back(cast(Tensor::from(x.to_vector<float>(), shape, device), dtype));
  }
  return inputs;
}

/// The same numbers on the CPU in f32.
std::vector<Tensor> on_cpu(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> copies;
  for (const Tensor& input : inputs) copies.push_back(tensor_of<float>(input.to_doubles(), input.shape()));
  return copies;
}

/// Of all results, relative to the largest number of each.
double worst_relative(const LossResults& found, const LossResults& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    double largest = 0, difference = 0;
    for (std::size_t j = 0; j < found[i].size(); ++j) {
      largest = std::max(largest, std::abs(expected[i][j]));
      difference = std::max(difference, std::abs(found[i][j] - expected[i][j]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

}  // namespace

TEST_CASE("vulkan loss: chunks of logits follow from the shape and the memory") {
  constexpr std::uint64_t large = std::uint64_t{80} << 30, small = std::uint64_t{2} << 30;
  const auto chunks = [](std::uint64_t memory, std::int64_t element, std::int64_t rows,
                         std::int64_t classes) {
    const LogitChunks plan = vulkan::plan_logits(memory, element, rows, classes);
    CHECK(plan.pitch % 8 == 0);
    CHECK(plan.pitch >= classes);
    CHECK(plan.pitch < classes + 8);
    CHECK(static_cast<std::uint64_t>(plan.rows * plan.pitch * element) <= memory / 8);
    return (rows + plan.rows - 1) / plan.rows;
  };
  // GPT-2, 8 x 1,024 tokens: 99 chunks as a CPU holds them.
  CHECK(chunks(large, 4, 8192, 50257) == 4);
  CHECK(chunks(large, 2, 8192, 50257) == 2);
  CHECK(chunks(small, 4, 8192, 50257) == 7);
  CHECK(chunks(large, 4, 8192, 256000) == 4);  // 2,048 rows of a large vocabulary, too
  CHECK(chunks(large, 4, 100000, 30) == 1);
  CHECK(chunks(large, 4, 1, 50257) == 1);
  CHECK(vulkan::plan_logits(1 << 20, 4, 10, 50257).rows == 1);  // where there is hardly any room
  CHECK(vulkan::plan_logits(large, 4, 0, 10).rows >= 1);
}

VULKAN_TEST("vulkan loss: an odd vocabulary, in any chunks, gives what the CPU gives") {
  for (const LossCase& c : {LossCase{37, 12, 45}, LossCase{20, 7, 131, false, 0}, LossCase{1, 3, 2}}) {
    const std::vector<Tensor> inputs = inputs_on(c, device);
    for (const std::int64_t at_once : {0, 1, 8, 16}) {
      CAPTURE(at_once);
      const LossResults found = outcome_of(c, inputs, at_once);
      CHECK(worst_relative(found, outcome_of(c, on_cpu(inputs), at_once)) < 1e-5);
      CHECK(outcome_of(c, inputs, at_once) == found);
    }
  }
}

VULKAN_TEST("vulkan loss: a chunk costs a few dispatches, whatever its size") {
  const LossCase c{64, 8, 50, false};
  const std::vector<Tensor> inputs = inputs_on(c, device);
  const auto dispatches = [&](std::int64_t at_once) {
    outcome_of(c, inputs, at_once);
    const std::int64_t before = device_counters(device).dispatches;
    outcome_of(c, inputs, at_once);
    return device_counters(device).dispatches - before;
  };
  // Logits, loss, gradient of the logits, and what it gives x and the weight.
  CHECK(dispatches(8) - dispatches(16) == 4 * 5);
  CHECK(dispatches(0) == dispatches(64));
}

VULKAN_TEST("vulkan loss: half types add up the weight's gradient in f32") {
  const LossCase c{300, 8, 21};
  for (const auto& half : {std::pair(DType::f16, 0x1p-11), std::pair(DType::bf16, 0x1p-8)}) {
    const auto [dtype, step] = half;
    CAPTURE(half.first);
    const std::vector<Tensor> inputs = inputs_on(c, device, dtype);
    const LossResults expected = outcome_of(c, on_cpu(inputs), 0);
    // 300 roundings of a sum would come to much more than those of the single terms.
    for (const std::int64_t at_once : {1, 64, 300}) {
      CAPTURE(at_once);
      CHECK(worst_relative(outcome_of(c, inputs, at_once), expected) < 3 * step);
    }
  }
}

VULKAN_TEST("vulkan loss: a loss scale keeps small gradients of logits") {
  // All classes but the target are so unlikely that f16 rounds their probabilities to 0.
  const std::int64_t classes = 40, rows = 16;
  Floats bias(classes, -18.0f);
  bias[0] = 0;
  const auto weight_gradient = [&](Device where, DType dtype, double expected_gradient) {
    const auto on = [&](const Floats& values, const Shape& shape) {
      return parameter(cast(Tensor::from(values, shape, where), dtype));
    };
    const Tensor x = on(Floats(rows, 1), {rows, 1}), w = on(Floats(classes, 0), {classes, 1}),
                 b = on(bias, {classes});
    const Tensor scale = Tensor::full({1}, expected_gradient, DType::f32, where);
    const ExpectedGradient expected(scale);
    const Tensor targets = Tensor::from(Ints(rows, 0), {rows}, where);
    backward(linear_cross_entropy(x, w, b, targets) * scale);
    Doubles grad = gradient(w).to_doubles();
    for (double& value : grad) value /= expected_gradient;
    return grad;
  };
  const Doubles right = weight_gradient({}, DType::f32, 1);
  CHECK(right[1] > 1e-8);
  CHECK(weight_gradient(device, DType::f16, 1)[1] == 0);
  const Doubles kept = weight_gradient(device, DType::f16, 16384);
  CHECK(std::abs(kept[1] - right[1]) < 0.01 * right[1]);
}

TEST_CASE("loss: gradients taken for an expected gradient are right for any other") {
  const LossCase c{9, 4, 7};
  const std::vector<Tensor> inputs = on_cpu(inputs_on(c, {}));
  const LossResults expected = outcome_of(c, inputs, 2);
  CHECK_ERROR(ExpectedGradient(Tensor::ones({2})), "one untracked element");
  CHECK_FALSE(ExpectedGradient::active().defined());
  const ExpectedGradient other(Tensor::full({1}, 64));
  CHECK(worst_relative(outcome_of(c, inputs, 2), expected) < 1e-6);
}
