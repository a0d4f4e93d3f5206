// Kernels of the Vulkan backend that walk lists of tensors: against one tensor after the other, with ragged
// sizes, tensors that begin in the middle of their memory, half types and lowered limits; and how few
// dispatches they take.

#include "heed/tests/vulkan_compare.h"

namespace {

const std::vector<std::int64_t> ragged = {1, 4096, 7, 0, 4097, 64, 10000, 3, 255};

/// Tensors of ragged sizes; every other one begins where no four elements can be read at once.
std::vector<Tensor> list_on(Device device, DType dtype, std::uint32_t stream) {
  std::vector<Tensor> list;
  for (const std::int64_t size : ragged) {
    const Tensor full = copy_on(device, tensor_of<float>(numbers(size, -2, 2, ++stream), {size}));
    const Tensor x = list.size() % 2 ? empty_on(device, {size}, dtype) : Tensor::empty({size}, dtype, device);
    backend_of(device).copy(full, x);
    list.push_back(x);
  }
  return list;
}

struct Scaling {
  DType from, to;
  bool with_factor, add;
};

/// What one tensor after the other comes to: products and sums in f32, rounded once.
Numbers scaled_one_by_one(Device device, const Scaling& s, double factor) {
  const std::vector<Tensor> x = list_on(device, s.from, 1), out = list_on(device, s.to, 100);
  const Backend& backend = backend_of(device);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Tensor value = converted(x[i], DType::f32);
    if (s.with_factor) backend.unary(UnaryOp::mul_scalar, {factor}, value, value);
    if (s.add) backend.binary(BinaryOp::add, converted(out[i], DType::f32), value, value);
    backend.copy(value, out[i]);
  }
  return numbers_of(out);
}

Numbers scaled_at_once(Device device, const Scaling& s, double factor) {
  const std::vector<Tensor> x = list_on(device, s.from, 1), out = list_on(device, s.to, 100);
  const Tensor by = s.with_factor ? Tensor::full({1}, factor, DType::f32, device) : Tensor();
  backend_of(device).scale_all(x, by, s.add, out);
  return numbers_of(out);
}

void check_scaling(Device device, const Scaling& s) {
  CAPTURE_ALL(s.from, s.to, s.with_factor, s.add);
  const double factor =
      0.75;  // two bits: products of half types are exact, so that a fused multiply-add is, too
  const auto found = scaled_at_once(device, s, factor);
  const auto expected = scaled_one_by_one(device, s, factor);
  if (s.from == DType::f32 && s.with_factor && s.add) {
    check_near(found, expected, s.to == DType::bf16 ? 1e-2 : 1e-3);
  } else {
    CHECK(found == expected);
  }
  CHECK(scaled_at_once(device, s, factor) == found);
}

}  // namespace

VULKAN_TEST("vulkan lists: tensors scaled, converted and added at once") {
  for (const DType from : {DType::f32, DType::f16, DType::bf16})
    for (const DType to : {DType::f32, DType::f16, DType::bf16})
      for (const bool with_factor : {false, true})
        for (const bool add : {false, true}) check_scaling(device, {from, to, with_factor, add});
}

VULKAN_TEST("vulkan lists: within lowered limits, and in place") {
  {
    const LoweredLimits limits(device, [](vulkan::Limits& lower) {
      lower.max_range = 4096;
      lower.max_groups = 2;
      lower.max_invocations = 64;
    });
    check_scaling(device, {DType::f32, DType::f32, true, false});
    check_scaling(device, {DType::f16, DType::f32, false, true});
  }
  const std::vector<Tensor> x = list_on(device, DType::f16, 1);
  const auto before = numbers_of(x);
  backend_of(device).scale_all(x, Tensor::full({1}, 0.5, DType::f32, device), false, x);
  const auto after = numbers_of(x);
  CHECK(after[6][77] == before[6][77] / 2);
}

VULKAN_TEST("vulkan lists: one dispatch takes a whole model's parameters") {
  const Backend& backend = backend_of(device);
  std::vector<Tensor> weights, gradients, first, second, halves;
  for (std::int64_t i = 0; i < 200; ++i) {
    for (std::vector<Tensor>* list : {&weights, &gradients, &first, &second})
      list->push_back(Tensor::ones({1 + i % 70}, DType::f32, device));
    halves.push_back(Tensor::empty(weights.back().shape(), DType::bf16, device));
  }
  OptimizerStep step;
  step.parameters = weights;
  step.gradients = gradients;
  step.first_moment = first;
  step.second_moment = second;
  step.learning_rate = 0.5;
  CHECK(dispatches_of(device, [&] { backend.adam(step); }) == 1);
  CHECK(weights[150].to_doubles()[3] < 1);
  CHECK(dispatches_of(device, [&] { backend.scale_all(weights, {}, false, halves); }) == 1);
  CHECK(dispatches_of(device, [&] { backend.scale_all(halves, {}, true, gradients); }) == 1);
  const Tensor sums = Tensor::empty({200}, DType::f32, device);
  CHECK(dispatches_of(device, [&] { backend.sums_of_squares(gradients, sums); }) == 2);
  // Types that differ take a dispatch each.
  halves[7] = Tensor::ones(weights[7].shape(), DType::f16, device);
  CHECK(dispatches_of(device, [&] { backend.scale_all(weights, {}, false, halves); }) == 2);
}
