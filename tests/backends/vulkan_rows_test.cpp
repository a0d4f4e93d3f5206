#include "heed/backends/vulkan/launch.h"
#include "heed/tests/row_cases.h"
#include "heed/tests/vulkan_compare.h"

// The kernels of the Vulkan backend that work on rows, and its optimizers, against those of the CPU: ragged
// sizes, tensors that begin in the middle of their memory, and lowered limits.

namespace {

Tensor floats(const Shape& shape, double low = -2, double high = 2, std::uint32_t stream = 0) {
  return tensor_of<float>(numbers(shape.count(), low, high, stream), shape);
}

/// Whole numbers in [low, high).
Tensor integers(const Shape& shape, double low, double high, std::uint32_t stream = 0) {
  Doubles values = numbers(shape.count(), low, high, stream);
  for (double& value : values) value = std::floor(value);
  return tensor_of<std::int32_t>(values, shape);
}

Tensor with(Tensor x, const std::vector<std::pair<std::int64_t, double>>& changes) {
  for (const auto& [at, value] : changes) x.data<float>()[at] = static_cast<float>(value);
  return x;
}

/// What makes kernels split rows over launches.
void split_everything(vulkan::Limits& limits) {
  limits.max_range = 32768;
  limits.max_groups = 8;
  limits.max_invocations = 64;
}

/// Rows there give what they give on the CPU. Each op at all sizes in turn: Mesa's software device soon
/// forgets what it compiled.
void check_rows(Device device, const std::vector<Extent>& extents) {
  std::vector<std::vector<OpCase>> cases;
  for (const Extent& extent : extents) cases.push_back(row_cases(extent));
  for (std::size_t op = 0; op < cases[0].size(); ++op)
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const OpCase& op_case = cases[i][op];
      CAPTURE_ALL(op_case.name, extents[i].rows, extents[i].n);
      // Where there is one column the variance is 0, and all is multiplied by 1 / sqrt(epsilon).
      const double allowed = extents[i].n == 1 ? 1e-4 : 2e-5;
      const auto found = op_results(op_case, DType::f32, device);
      CHECK(difference(found, op_results(op_case, DType::f32)).worst <= allowed);
    }
}

void check_rotary(Device device, const Shape& shape) {
  CAPTURE(shape);
  const Shape angles{shape[1], shape[3] / 2};
  const std::vector<Tensor> inputs = {floats(shape), floats(angles, -1, 1, 1), floats(angles, -1, 1, 2)};
  check_agreement(device, inputs, [&](const Backend& backend, const std::vector<Tensor>& in) {
    const Tensor turned = empty_on(in[0].device(), shape), back = empty_on(in[0].device(), shape);
    backend.rotary.forward(in[0], in[1], in[2], turned);
    backend.rotary.backward(in[0], in[1], in[2], back);
    return std::vector<Tensor>{turned, back};
  });
}

/// Gathers rows of x [batch, n, width] and adds the result back into them.
void check_gather_scatter(Device device, std::int64_t batch, std::int64_t n, std::int64_t m,
                          std::int64_t width) {
  CAPTURE_ALL(batch, n, m, width);
  const auto compute = [&](const Backend& backend, const std::vector<Tensor>& in) {
    const Tensor rows = empty_on(in[0].device(), {batch, m, width});
    const Tensor numbers = empty_on(in[0].device(), {batch, m, width}, DType::i32);
    backend.gather_rows(in[0], in[1], rows);
    backend.gather_rows(in[2], in[1], numbers);
    backend.scatter_add_rows(rows, in[1], in[0]);
    return std::vector<Tensor>{rows, numbers, in[0]};
  };
  const Tensor index = integers({batch, m}, -1, static_cast<double>(n), 1);
  // The same sums in the same order: the same bits.
  check_agreement(device, {floats({batch, n, width}), index, integers({batch, n, width}, -99, 99, 2)},
                  compute, 0);
}

void check_sort(Device device, const Tensor& x) {
  CAPTURE_ALL(x.shape(), x.dtype());
  const std::int64_t rows = x.size(0), n = x.size(1);
  const auto compute = [&](const Backend& backend, const std::vector<Tensor>& in) {
    std::vector<Tensor> results;
    const auto make = [&](std::int64_t k) -> const Tensor& {
      return results.emplace_back(empty_on(in[0].device(), {rows, k}, DType::i32));
    };
    for (bool descending : {false, true}) backend.argsort(in[0], descending, make(n));
    for (std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 9, n}) backend.top_k(in[0], make(k));
    return results;
  };
  check_agreement(device, {x}, compute, 0);
}

/// Values with ties, both zeros, infinities and NaN of both signs.
Tensor awkward(const Shape& shape) {
  Tensor x = floats(shape, -4, 4);
  const double special[] = {0.0, -0.0, infinity, -infinity, not_a_number, -not_a_number, 1e-42, -1e-42};
  for (std::int64_t i = 0; i < x.count(); ++i) {
    float& value = x.data<float>()[i];
    if (i % 3 == 0) value = std::round(value);
    if (i % 7 == 1) value = static_cast<float>(special[i / 7 % 8]);
  }
  return x;
}

}  // namespace

VULKAN_TEST("vulkan: softmax, norms and cross entropy give what they give on the CPU, at every size") {
  check_rows(device, {{1, 1}, {3, 5}, {70, 17}, {5, 300}, {2, 1031}, {1500, 12}});
  const LoweredLimits limits(device, split_everything);
  check_rows(device, {{900, 41}, {2, 131}});
}

VULKAN_TEST("vulkan: rows whose squares leave the range of f32 are normalised as on the CPU") {
  for (const Tensor& x : {with(floats({3, 40}), {{41, 1e38}, {42, -1e38}, {81, infinity}}),
                          floats({3, 40}, -2e18, 2e18), floats({3, 40}, -2e-30, 2e-30)})
    check_agreement(device, {x}, [](const Backend& backend, const std::vector<Tensor>& in) {
      const Device on = in[0].device();
      const Tensor y = empty_on(on, {3, 40}), mean = empty_on(on, {3}), inverse = empty_on(on, {3}),
                   root = empty_on(on, {3, 40}), of_root = empty_on(on, {3});
      backend.layer_norm.forward(in[0], {}, {}, 0, y, mean, inverse);
      backend.layer_norm.forward(in[0], {}, {}, 0, root, {}, of_root);
      return std::vector<Tensor>{y, root};
    });
}

VULKAN_TEST("vulkan: a NaN spoils its row of a softmax and no other") {
  const Tensor x = with(floats({3, 40}), {{45, not_a_number}});
  check_agreement(device, {x}, [](const Backend& backend, const std::vector<Tensor>& in) {
    const Tensor y = empty_on(in[0].device(), {3, 40});
    backend.softmax.forward(in[0], Tensor(), false, y);
    return std::vector<Tensor>{y};
  });
}

VULKAN_TEST("vulkan: an infinity spoils its row of a softmax and of a cross entropy, as on the CPU") {
  const Tensor x = with(floats({3, 40}), {{40, infinity}});
  const Tensor targets = Tensor::from(Ints{1, 2, 3}, {3});
  check_agreement(device, {x, targets}, [](const Backend& backend, const std::vector<Tensor>& in) {
    const Device on = in[0].device();
    const Tensor soft = empty_on(on, {3, 40}), log = empty_on(on, {3, 40}), loss = empty_on(on, {3}),
                 sums = empty_on(on, {3, 2}), slope = empty_on(on, {3, 40});
    backend.softmax.forward(in[0], {}, false, soft);
    backend.softmax.forward(in[0], {}, true, log);
    backend.cross_entropy.forward(in[0], in[1], 0.1, -1, loss, sums);
    backend.cross_entropy.backward(in[0], in[1], sums, Tensor::ones({3}, DType::f32, on), 0.1, -1, slope);
    return std::vector<Tensor>{soft, log, loss, slope};
  });
}

VULKAN_TEST("vulkan: values exchanged within subgroups give the same bits") {
  for (const Extent& extent : {Extent{37, 64}, Extent{5, 250}})
    for (const OpCase& op_case : row_cases(extent)) {
      CAPTURE(op_case.name);
      const auto found = op_results(op_case, DType::f32, device);
      const LoweredLimits without(device, [](vulkan::Limits& limits) { limits.exchanging = 1; });
      CHECK(op_results(op_case, DType::f32, device) == found);
    }
  using vulkan::row_shader;
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const std::uint32_t can = gpu.limits().exchanging;
  const auto chosen = [&](std::uint32_t workgroup, std::uint32_t lanes) {
    return row_shader(gpu, "softmax", DType::f32, {workgroup, lanes});
  };
  CHECK(chosen(256, 2) == (can > 1 ? "softmax_subgroups_f32" : "softmax_f32"));
  CHECK(chosen(2, 2) == "softmax_f32");  // no whole subgroup
  CHECK(chosen(256, 256) == (can >= 16 ? "softmax_subgroups_f32" : "softmax_f32"));
}

VULKAN_TEST("vulkan: rotary positions, in one launch and in many that begin anywhere in a sequence") {
  const std::vector<Shape> shapes = {{1, 1, 1, 2}, {2, 5, 3, 8}, {3, 7, 1, 22}, {2, 90, 4, 16}, {0, 4, 2, 4}};
  for (const Shape& shape : shapes) check_rotary(device, shape);
  const LoweredLimits limits(device, split_everything);
  for (const Shape& shape : shapes) check_rotary(device, shape);
  check_rotary(device, {5, 33, 3, 70});
}

VULKAN_TEST("vulkan: the gradients of a layer norm without rows are zeros") {
  const auto make = [&](const Shape& shape) { return Tensor::empty(shape, DType::f32, device); };
  const Tensor x = make({0, 4}), dweight = make({4}), dbias = make({4});
  backend_of(device).layer_norm.backward(x, {}, make({0}), make({0}), x, x, dweight, dbias);
  CHECK(dweight.to_doubles() == Doubles(4, 0));
  CHECK(dbias.to_doubles() == Doubles(4, 0));
}

VULKAN_TEST("vulkan: a target that is no class is an error at the next wait, with its row") {
  const Backend& backend = backend_of(device);
  const Tensor logits = copy_on(device, floats({5, 3}));
  const Tensor targets = Tensor::from(Ints{0, 1, 3, -2, -1}, {5}, device);
  const Tensor loss = empty_on(device, {5}), logs = empty_on(device, {5, 2});
  backend.cross_entropy.forward(logits, targets, 0, -1, loss, logs);
  CHECK_ERROR(loss.to_doubles(), "cross_entropy: a target is not a class in [0, 3)");
  backend.cross_entropy.forward(logits, targets, 0, -1, loss, logs);
  CHECK_ERROR(loss.to_doubles(), "(position 2)");
  CHECK(loss.to_doubles().size() == 5);  // said once
}

VULKAN_TEST("vulkan: gather and scatter, few and many rows, repeated and missing targets") {
  const auto check = [&](std::int64_t batch, std::int64_t n, std::int64_t m, std::int64_t width) {
    check_gather_scatter(device, batch, n, m, width);
  };
  check(1, 1, 1, 1);
  check(1, 50, 400, 33);
  check(1, 3, 2500, 4);
  check(6, 17, 20, 5);
  check(40, 30, 1, 1);
  check(3, 9, 100, 16);
  check(2, 5, 0, 3);
  const LoweredLimits limits(device, [](vulkan::Limits& lower) {
    split_everything(lower);
    lower.max_range = 4096;
  });
  check(1, 200, 300, 12);
  check(5, 40, 70, 30);
}

VULKAN_TEST("vulkan: an index that is no row is an error, with its position") {
  const Backend& backend = backend_of(device);
  const Tensor x = copy_on(device, floats({2, 4, 3})), out = empty_on(device, {2, 3, 3});
  const Tensor index = Tensor::from(Ints{0, -1, 1, 2, -2, 4}, {2, 3}, device);
  backend.gather_rows(x, index, out);
  CHECK_ERROR(out.to_doubles(), "gather_rows: an index is outside [0, 4)");
  backend.scatter_add_rows(out, index, x);
  CHECK_ERROR(x.to_doubles(), "(position 4)");
  // Indices are looked at where there is no row to add to, too.
  const Tensor first = copy_on(device, Tensor::from(Ints{-1, 0}, {1, 2}));
  backend.scatter_add_rows(copy_on(device, floats({1, 2, 3})), first, empty_on(device, {1, 0, 3}));
  CHECK_ERROR(synchronize(device), "position 1");
}

VULKAN_TEST("vulkan: argsort and top-k, stable, NaN as the largest") {
  for (const Shape& shape :
       {Shape{1, 1}, Shape{50, 2}, Shape{7, 100}, Shape{3, 1024}, Shape{2, 2050}, Shape{1, 9000}}) {
    check_sort(device, awkward(shape));
    check_sort(device, integers(shape, -20, 20));
  }
  const LoweredLimits limits(device, [](vulkan::Limits& lower) {
    split_everything(lower);
    lower.shared_bytes = 1024;
  });
  for (const Shape& shape : {Shape{20, 700}, Shape{3, 64}, Shape{1, 2000}})
    check_sort(device, awkward(shape));
}

namespace {

/// Parameters, gradients and moments of ragged sizes, as inputs of a computation: four of each size.
std::vector<Tensor> optimizer_inputs() {
  std::vector<Tensor> inputs;
  std::uint32_t stream = 0;
  for (std::int64_t size : {1, 300, 7, 5000, 64}) {
    inputs.insert(inputs.end(), {floats({size}, -1, 1, ++stream), floats({size}, -1, 1, ++stream),
                                 floats({size}, -0.1, 0.1, ++stream), floats({size}, 0, 0.1, ++stream)});
  }
  return inputs;
}

std::vector<Tensor> every_fourth(const std::vector<Tensor>& inputs, std::size_t first) {
  std::vector<Tensor> list;
  for (std::size_t i = first; i < inputs.size(); i += 4) list.push_back(inputs[i]);
  return list;
}

struct OptimizerCase {
  bool adam, decoupled, scaled, momentum;
  std::int32_t skip;  // -1: undefined
};

void check_optimizer(Device device, const OptimizerCase& with) {
  CAPTURE_ALL(with.adam, with.decoupled, with.scaled, with.momentum, with.skip);
  const auto compute = [&](const Backend& backend, const std::vector<Tensor>& in) {
    const auto weights = every_fourth(in, 0), gradients = every_fourth(in, 1), first = every_fourth(in, 2),
               second = every_fourth(in, 3);
    const Device where = in[0].device();
    OptimizerStep step;
    step.parameters = weights;
    step.gradients = gradients;
    if (with.adam || with.momentum) step.first_moment = first;
    if (with.adam) step.second_moment = second;
    if (with.scaled) step.gradient_scale = Tensor::from(Floats{0.25f}, {1}, where);
    if (with.skip >= 0) step.skip = Tensor::from(Ints{with.skip}, {1}, where);
    step.learning_rate = 0.01;
    step.weight_decay = 0.1;
    step.decoupled_decay = with.decoupled;
    step.step = 3;
    with.adam ? backend.adam(step) : backend.sgd(step);
    return in;
  };
  check_agreement(device, optimizer_inputs(), compute, 3e-6);
}

}  // namespace

VULKAN_TEST("vulkan: Adam and gradient descent, scaled, decayed and skipped") {
  const std::vector<OptimizerCase> cases = {{true, false, false, true, -1}, {true, true, true, true, 0},
                                            {true, true, true, true, 5},    {false, false, false, false, -1},
                                            {false, true, true, true, 0},   {false, false, true, true, 1}};
  for (const OptimizerCase& each : cases) check_optimizer(device, each);
  const LoweredLimits limits(device, [](vulkan::Limits& lower) { lower.max_range = 4096; });
  check_optimizer(device, cases[1]);
}

VULKAN_TEST("vulkan: sums of squares of many tensors") {
  std::vector<Tensor> inputs;
  for (std::int64_t size : {1, 30000, 0, 7, 8192, 8193, 100, 64, 3, 20000, 1})
    inputs.push_back(floats({size}, -3, 3, static_cast<std::uint32_t>(inputs.size())));
  const auto compute = [&](const Backend& backend, const std::vector<Tensor>& in) {
    const bool on_cpu = in[0].device().type == DeviceType::cpu;
    const Tensor out = Tensor::empty({static_cast<std::int64_t>(in.size())}, on_cpu ? DType::f64 : DType::f32,
                                     in[0].device());
    backend.sums_of_squares(in, out);
    return std::vector<Tensor>{out};
  };
  check_agreement(device, inputs, compute, 1e-6);
  const LoweredLimits limits(device, [](vulkan::Limits& lower) {
    lower.max_range = 70000;
    lower.max_groups = 4;
  });
  check_agreement(device, inputs, compute, 1e-6);
}

namespace {

/// The same with inputs in f16 or bf16 on the device, and what they were rounded to on the CPU.
void check_half_agreement(Device device, DType dtype, const std::vector<Tensor>& inputs,
                          const Computation& compute, double allowed) {
  CAPTURE(dtype);
  std::vector<Tensor> halves, rounded;
  for (const Tensor& input : inputs) {
    halves.push_back(empty_on(device, input.shape(), dtype));
    backend_of(device).copy(copy_on(device, input), halves.back());
    rounded.push_back(tensor_of<float>(halves.back().to_doubles(), input.shape()));
  }
  check_near(numbers_of(compute(backend_of(device), halves)), numbers_of(compute(cpu_backend, rounded)),
             allowed);
}

/// Softmax, layer norm, that of a sum, cross entropy, gather, scatter and sort of x [30, 77].
std::vector<Tensor> rows_of_every_kind(const Backend& backend, const std::vector<Tensor>& in) {
  const Tensor &x = in[0], &weight = in[1], &bias = in[2], &grad = in[3];
  const Device device = x.device();
  const std::int64_t rows = x.size(0), n = x.size(1);
  const auto make = [&](const Shape& shape) { return empty_on(device, shape, x.dtype()); };
  const auto make_f32 = [&] { return empty_on(device, {rows}); };
  std::vector<Tensor> results;
  const auto out = [&](const Tensor& result) { return results.emplace_back(result); };

  const Tensor y = out(make(x.shape()));
  backend.softmax.forward(x, {}, false, y);
  backend.softmax.backward(y, grad, false, out(make(x.shape())));
  const Tensor mean = out(make_f32()), inverse = out(make_f32());
  backend.layer_norm.forward(x, weight, bias, 1e-5, out(make(x.shape())), mean, inverse);
  const Tensor dx = out(make(x.shape())), dweight = out(make({n})), dbias = out(make({n}));
  backend.layer_norm.backward(x, weight, mean, inverse, grad, dx, dweight, dbias);
  const Tensor sum = out(make(x.shape())), normed = out(make(x.shape())), dsum = out(make(x.shape())),
               dropped = out(make(x.shape()));
  const Tensor of_sum = out(make_f32()), dscale = out(make({n}));
  backend.add_norm.forward(x, grad, 0.3, {1, 2, 3}, weight, {}, 1e-5, sum, normed, {}, of_sum);
  backend.add_norm.backward(sum, weight, {}, of_sum, grad, y, 0.3, {1, 2, 3}, dsum, dropped, dscale, {});
  const Tensor targets = copy_on(device, integers({rows}, 0, static_cast<double>(n), 9));
  const Tensor loss = out(make_f32()), logs = out(empty_on(device, {rows, 2}));
  backend.cross_entropy.forward(x, targets, 0.1, -1, loss, logs);
  backend.cross_entropy.backward(x, targets, logs, loss, 0.1, -1, out(make(x.shape())));
  const Tensor index = copy_on(device, integers({1, 100}, 0, static_cast<double>(rows), 8));
  const Tensor gathered = out(make({1, 100, n}));
  backend.gather_rows(x.view({1, rows, n}), index, gathered);
  const Tensor sums = out(make({1, rows, n}));
  backend.gather_rows(x.view({1, rows, n}), copy_on(device, integers({1, rows}, 0, 1)), sums);
  backend.scatter_add_rows(gathered, index, sums);
  const Tensor order = out(empty_on(device, x.shape(), DType::i32));
  backend.argsort(x, true, order);
  return results;
}

}  // namespace

VULKAN_TEST("vulkan: rows of f16 and bf16, computed in f32") {
  const std::vector<Tensor> inputs = {floats({30, 77}), floats({77}, 0.5, 2, 1), floats({77}, -1, 1, 2),
                                      floats({30, 77}, -1, 1, 3)};
  check_half_agreement(device, DType::f16, inputs, rows_of_every_kind, 2e-3);
  check_half_agreement(device, DType::bf16, inputs, rows_of_every_kind, 1.6e-2);
}
