// The kernels of the Vulkan backend that go element by element, reduce, scan and draw random
// numbers, beside those of the CPU: every layout, special values, and limits so tiny that everything
// has to be cut into pieces.

#include "heed/tests/vulkan_compare.h"

namespace {

/// The same elements in the same layout on both devices.
struct Both {
  Tensor cpu, gpu;

  Both(const Doubles& values, const Shape& shape, Device device, DType dtype = DType::f32) {
    cpu = dtype == DType::i32 ? test::tensor_of<std::int32_t>(values, shape)
                              : test::tensor_of<float>(values, shape);
    gpu = Tensor::empty(shape, dtype, device);
    backend_of(device).upload(cpu.storage()->host_data(), gpu);
  }
  /// Another view of both.
  Both view(const Shape& shape, const Shape& strides, std::int64_t offset = 0) const {
    Both result = *this;
    result.cpu = cpu.view(shape, strides, offset);
    result.gpu = gpu.view(shape, strides, offset);
    return result;
  }
};

Both random_both(const Shape& shape, Device device, std::uint32_t stream = 0, DType dtype = DType::f32) {
  const double bound = dtype == DType::i32 ? 1000 : 2;
  return {test::numbers(shape.count(), -bound, bound, stream), shape, device, dtype};
}

/// How far results may differ, relative to the CPU's or to `scale` where that is larger.
struct Tolerance {
  double error, scale;
  Tolerance(double error, double scale = 1e-30) : error(error), scale(scale) {}
};

/// Both results, element by element, NaN equal to NaN.
void check_same(const Tensor& gpu, const Tensor& cpu, Tolerance tolerance) {
  const Doubles actual = gpu.to_doubles(), expected = cpu.to_doubles();
  REQUIRE(actual.size() == expected.size());
  int wrong = 0;
  for (std::size_t i = 0; i < actual.size() && wrong < 5; ++i) {
    const double a = actual[i], e = expected[i];
    const bool same = a == e || (std::isnan(a) && std::isnan(e)) ||
                      std::abs(a - e) <= tolerance.error * std::max(std::abs(e), tolerance.scale);
    if (same) continue;
    ++wrong;
    FAIL_CHECK("element ", i, ": ", a, " on Vulkan, ", e, " on the CPU");
  }
  CHECK(wrong == 0);
}

using Kernel = std::function<void(const Backend&, const std::vector<Tensor>& in, const Tensor& out)>;

/// Runs a kernel on both devices, on the same inputs, into new outputs, and compares these.
void check_kernel(const Shape& shape, DType dtype, Device device, Tolerance tolerance,
                  const std::vector<Both>& inputs, const Kernel& kernel) {
  const Tensor expected = Tensor::empty(shape, dtype), actual = Tensor::empty(shape, dtype, device);
  std::vector<Tensor> on_cpu, on_gpu;
  for (const Both& each : inputs) {
    on_cpu.push_back(each.cpu);
    on_gpu.push_back(each.gpu);
  }
  kernel(cpu_backend, on_cpu, expected);
  kernel(backend_of(device), on_gpu, actual);
  check_same(actual, expected, tolerance);
}

const Tensor& on(bool gpu, const Both& both) {
  return gpu ? both.gpu : both.cpu;
}

/// Calls body(device) with the limits of the device and again with tiny ones.
void with_limits(const std::function<void(Device)>& body) {
  const auto device = vulkan_test_device();
  if (!device) return;
  body(*device);
  const LoweredLimits limits(*device, [](vulkan::Limits& tiny) {
    tiny.max_range = 2048;
    tiny.max_groups = 2;
    tiny.max_invocations = 64;
  });
  INFO("with tiny limits");
  body(*device);
}

/// Views of the shape [6, 5, 7] in many layouts: contiguous, rows and columns that
/// repeat, transposed, with gaps.
std::vector<Both> layouts(Device device, std::uint32_t stream, DType dtype = DType::f32) {
  const Shape shape{6, 5, 7};
  const Both x = random_both({6, 5, 7, 3}, device, stream, dtype);
  return {x.view(shape, {35, 7, 1}, 11), x.view(shape, {0, 0, 1}, 3),  x.view(shape, {5, 1, 0}),
          x.view(shape, {0, 0, 0}, 17),  x.view(shape, {1, 6, 30}),    x.view(shape, {105, 21, 3}, 1),
          x.view(shape, {35, 1, 5}),     x.view(shape, {0, 7, 1}, 200)};
}

const Doubles special_values = {
    0.0,    -0.0,     1.0,       -1.0,    0.5,       -0.5,      2.0,      -2.0,  3.0,
    -3.0,   infinity, -infinity, 1e-20,   -1e-9,     1e-3,      88.0,     -86.0, 90.0,
    -120.0, 1e5,      -8191.5,   8192.25, 3.1e9,     1e30,      -1e30,    0.61,  0.63,
    3.924,  3.92501,  1.5708,    1e-5,    0.9999999, 1.0000001, 12345.67, -7.25, not_a_number};

}  // namespace

VULKAN_TEST("vulkan: unary ops take special values as the CPU does") {
  const Both x(special_values, {static_cast<std::int64_t>(special_values.size())}, device);
  const Both grad(Doubles(special_values.size(), 0.75), x.cpu.shape(), device);
  const auto check_op = [&](UnaryOp op, UnaryParams params) {
    CAPTURE_ALL(name_of(op), params.p);
    check_kernel(x.cpu.shape(), DType::f32, device, 1e-5, {x},
                 [&](auto& backend, auto& in, auto& out) { backend.unary(op, params, in[0], out); });
    check_kernel(x.cpu.shape(), DType::f32, device, 2e-5, {x, grad}, [&](auto& backend, auto& in, auto& out) {
      backend.unary_backward(op, params, in[0], in[1], out);
    });
  };
#define HEED_UNARY(name, ...) check_op(UnaryOp::name, {0.7, 1.3});
#include "heed/core/elementwise.def"
  for (double p : {0.0, 1.0, 2.0, -3.0, 0.5, 3.0, 17.0, -0.25, 16777216.0})
    check_op(UnaryOp::pow_scalar, {p, 0});
}

VULKAN_TEST("vulkan: binary ops and comparisons take special values as the CPU does") {
  const auto count = static_cast<std::int64_t>(special_values.size());
  const Both values(special_values, {count}, device);
  const Both a = values.view({count, count}, {1, 0}), b = values.view({count, count}, {0, 1});
  const auto check = [&](auto op, DType dtype, double tolerance, const Kernel& kernel) {
    CAPTURE(name_of(op));
    check_kernel({count, count}, dtype, device, tolerance, {a, b}, kernel);
  };
#define HEED_BINARY(name, ...)            \
  check(BinaryOp::name, DType::f32, 1e-5, \
        [](auto& backend, auto& in, auto& out) { backend.binary(BinaryOp::name, in[0], in[1], out); });
#define HEED_COMPARE(name, ...)         \
  check(CompareOp::name, DType::i32, 0, \
        [](auto& backend, auto& in, auto& out) { backend.compare(CompareOp::name, in[0], in[1], out); });
#include "heed/core/elementwise.def"
}

TEST_CASE("vulkan: elementwise kernels walk any layout") {
  with_limits([](Device device) {
    const Shape shape{6, 5, 7};
    const std::vector<Both> a = layouts(device, 1), b = layouts(device, 2), grad = layouts(device, 3);
    const std::vector<Both> ia = layouts(device, 4, DType::i32), ib = layouts(device, 5, DType::i32);
    const Both yes(test::numbers(shape.count(), -1, 1), shape, device, DType::i32);
    const auto check = [&](DType dtype, Tolerance tolerance, const std::vector<Both>& inputs,
                           const Kernel& kernel) {
      check_kernel(shape, dtype, device, tolerance, inputs, kernel);
    };
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::size_t j = (i * 3 + 1) % a.size(), k = (i * 5 + 2) % a.size();
      CAPTURE(i);
      check(DType::f32, 1e-5, {a[i]},
            [](auto& backend, auto& in, auto& out) { backend.unary(UnaryOp::gelu, {}, in[0], out); });
      check(DType::f32, 1e-5, {a[i], grad[j]}, [](auto& backend, auto& in, auto& out) {
        backend.unary_backward(UnaryOp::silu, {}, in[0], in[1], out);
      });
      check(DType::f32, 0, {a[i], b[j]},
            [](auto& backend, auto& in, auto& out) { backend.binary(BinaryOp::sub, in[0], in[1], out); });
      for (const BinaryOp op : {BinaryOp::mul, BinaryOp::maximum})
        check(DType::i32, 0, {ia[i], ib[j]},
              [op](auto& backend, auto& in, auto& out) { backend.binary(op, in[0], in[1], out); });
      for (const int operand : {0, 1})
        check(DType::f32, 1e-5, {a[i], b[j], grad[k]}, [operand](auto& backend, auto& in, auto& out) {
          backend.binary_backward(BinaryOp::div, operand, in[0], in[1], in[2], out);
        });
      check(DType::i32, 0, {ia[i], ib[j]},
            [](auto& backend, auto& in, auto& out) { backend.compare(CompareOp::less, in[0], in[1], out); });
      check(DType::f32, 0, {ia[k], a[i], b[j]},
            [](auto& backend, auto& in, auto& out) { backend.where(in[0], in[1], in[2], out); });
    }
    check(DType::i32, 0, {yes, ia[0], ib[4]},
          [](auto& backend, auto& in, auto& out) { backend.where(in[0], in[1], in[2], out); });
  });
}

VULKAN_TEST("vulkan: elementwise kernels write over their inputs, and take large transposed operands") {
  const Both x = random_both({131, 257}, device), y = random_both({257, 131}, device, 1);
  const Both transposed = y.view({131, 257}, {1, 131});
  for (bool gpu : {false, true}) {
    const Backend& backend = backend_of(on(gpu, x));
    backend.binary(BinaryOp::add, on(gpu, x), on(gpu, transposed), on(gpu, x));
    backend.unary_backward(UnaryOp::tanh, {}, on(gpu, x), on(gpu, transposed), on(gpu, x));
  }
  check_same(x.gpu, x.cpu, 1e-5);
}

TEST_CASE("vulkan: copies and fills of any layout") {
  with_limits([](Device device) {
    const Both x = random_both({4, 3, 33, 2, 40}, device), order = random_both({9000}, device, 7, DType::i32);
    struct Layout {
      Shape shape, from, to;
    };
    const std::vector<Layout> all = {
        {{33, 80}, {80, 1}, {80, 1}},                                          // contiguous
        {{33, 80}, {1, 33}, {80, 1}},                                          // a transposition
        {{80, 33}, {33, 1}, {1, 80}},                                          // the same from the other side
        {{3, 33, 2, 40}, {2640, 1, 33, 66}, {2640, 80, 40, 1}},                // four axes, one turned
        {{2, 3, 40, 35}, {4200, 35, 105, 1}, {4200, 1400, 35, 1}},             // heads
        {{2, 3, 4, 5, 6}, {1, 2, 6, 24, 120}, {360, 120, 30, 6, 1}},           // five axes, none merges
        {{2, 2, 3, 2, 4, 3}, {2, 1, 4, 48, 12, 96}, {144, 72, 24, 12, 3, 1}},  // six
        {{50, 9}, {0, 1}, {11, 1}},  // rows repeat, gaps in the output
        {{50, 9}, {1, 0}, {9, 1}},
        {{1, 1}, {1, 1}, {1, 1}},
        {{0, 5}, {5, 1}, {5, 1}}};
    for (const Layout& layout : all) {
      CAPTURE_ALL(layout.shape, layout.from);
      const Both out = random_both({9000}, device, 2), integers = random_both({9000}, device, 2, DType::i32);
      const Both to = out.view(layout.shape, layout.to, 5);
      for (bool gpu : {false, true}) {
        const Backend& backend = backend_of(on(gpu, x));
        backend.copy(on(gpu, x).view(layout.shape, layout.from, 3), on(gpu, to));
        backend.copy(on(gpu, order).view(layout.shape, layout.from, 3),
                     on(gpu, integers).view(layout.shape, layout.to, 5));
      }
      check_same(out.gpu, out.cpu, 0);
      check_same(integers.gpu, integers.cpu, 0);
      for (bool gpu : {false, true}) {
        const Backend& backend = backend_of(on(gpu, x));
        backend.copy(on(gpu, order).view(layout.shape, layout.from, 3), on(gpu, to));
        backend.fill(2.75, on(gpu, integers).view(layout.shape, layout.to, 9));
      }
      check_same(out.gpu, out.cpu, 0);
      check_same(integers.gpu, integers.cpu, 0);
      for (bool gpu : {false, true}) backend_of(on(gpu, x)).fill(2.75, on(gpu, to));
      check_same(out.gpu, out.cpu, 0);
    }
  });
}

VULKAN_TEST("vulkan: floats truncate to integers, and stay within their bounds") {
  const Doubles values = {0.9,  -0.9,         2.5,          -2.5,          1e9,          -1e9,     3e9,
                          -3e9, 2147483520.0, 2147483648.0, -2147483648.0, not_a_number, infinity, -infinity};
  const Both x(values, {static_cast<std::int64_t>(values.size())}, device);
  check_kernel(x.cpu.shape(), DType::i32, device, 0, {x},
               [](auto& backend, auto& in, auto& out) { backend.copy(in[0], out); });
  for (const double value : {3.9, -3.9, 1e12, -1e12, not_a_number})
    check_kernel({3}, DType::i32, device, 0, {},
                 [&](auto& backend, auto&, auto& out) { backend.fill(value, out); });
}

TEST_CASE("vulkan: reductions and running sums of any shape") {
  with_limits([](Device device) {
    const std::vector<Shape> shapes = {{1, 1, 1},   {5, 1, 3},    {1, 20011, 1}, {3, 5000, 1},
                                       {700, 6, 1}, {41, 33, 1},  {1, 3000, 3},  {2, 300, 70},
                                       {1, 7, 900}, {3, 40, 130}, {1, 2, 1500}};
    for (const Shape& shape : shapes) {
      CAPTURE(shape);
      for (const DType dtype : {DType::f32, DType::i32}) {
        const Both x = random_both(shape, device, 3, dtype);
        const Tolerance sums(dtype == DType::i32 ? 0 : 3e-5, 1);  // of both signs: they cancel
        const Shape reduced{shape[0], shape[2]};
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
          CAPTURE(static_cast<int>(op));
          check_kernel(reduced, dtype, device, op == ReduceOp::sum ? sums : 0, {x},
                       [op](auto& backend, auto& in, auto& out) { backend.reduce(op, in[0], out); });
        }
        check_kernel(reduced, DType::i32, device, 0, {x},
                     [](auto& backend, auto& in, auto& out) { backend.argmax(in[0], out); });
        for (const bool reverse : {false, true}) {
          CAPTURE(reverse);
          check_kernel(shape, dtype, device, sums, {x}, [reverse](auto& backend, auto& in, auto& out) {
            backend.cumulative_sum(in[0], reverse, out);
          });
        }
      }
    }
  });
}

TEST_CASE("vulkan: a sum of whole numbers that does not fit is an error, and one that fits is right") {
  with_limits([](Device device) {
    constexpr double large = 2e9;
    for (const Shape& shape : {Shape{1, 9, 1}, {2, 5001, 1}, {1, 3001, 3}, {1, 3, 1500}}) {
      CAPTURE(shape);
      const std::int64_t n = shape[1], inner = shape[2], count = shape.count();
      // First numbers of one sign, then as many of the other: parts of the sum do not fit, but the sum does.
      Doubles values(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = i / inner % n;
        values[static_cast<std::size_t>(i)] = row < n / 2 ? large : row < n / 2 * 2 ? -large : 7;
      }
      const Both pairs(values, shape, device, DType::i32),
          all(Doubles(values.size(), large), shape, device, DType::i32);
      const Tensor sums = Tensor::empty({shape[0], inner}, DType::i32, device);
      const Backend& gpu = backend_of(device);
      gpu.reduce(ReduceOp::sum, pairs.gpu, sums);
      for (const double sum : sums.to_doubles()) CHECK(sum == 7);
      gpu.reduce(ReduceOp::sum, all.gpu, sums);
      CHECK_ERROR(synchronize(device), "does not fit in i32");
    }
  });
}

TEST_CASE("vulkan: extremes of ties, infinities and NaN; sums of nothing") {
  with_limits([](Device device) {
    Doubles values(4000, -infinity);
    for (std::size_t at : {1500u, 1600u, 3900u}) values[at] = 7;
    const Both ties(values, {2, 2000, 1}, device), columns(values, {1, 400, 10}, device);
    values[1999] = values[1998] = not_a_number;
    const Both with_nan(values, {2, 2000, 1}, device), nan_columns(values, {1, 400, 10}, device);
    for (const Both& x : {ties, columns, with_nan, nan_columns}) {
      const Shape shape{x.cpu.size(0), x.cpu.size(2)};
      check_kernel(shape, DType::i32, device, 0, {x},
                   [](auto& backend, auto& in, auto& out) { backend.argmax(in[0], out); });
      for (const ReduceOp op : {ReduceOp::max, ReduceOp::min})
        check_kernel(shape, DType::f32, device, 0, {x},
                     [op](auto& backend, auto& in, auto& out) { backend.reduce(op, in[0], out); });
    }
    check_kernel({3, 2}, DType::f32, device, 0, {Both({}, {3, 0, 2}, device)},
                 [](auto& backend, auto& in, auto& out) { backend.reduce(ReduceOp::sum, in[0], out); });
  });
}

TEST_CASE("vulkan: random numbers have the bits of the CPU") {
  with_limits([](Device device) {
    const RandomKey key{0x123456789abcdef0, 77, 0xfffffff0};
    for (std::int64_t count : {1, 3, 4, 511, 513, 5003}) {
      CAPTURE(count);
      const Both x = random_both({count + 3}, device).view({count}, {1}, 3);
      const Both residual = random_both({count}, device, 1);
      const auto check = [&](Tolerance tolerance, const Kernel& kernel) {
        check_kernel({count}, DType::f32, device, tolerance, {x, residual}, kernel);
      };
      check(0, [&](auto& backend, auto&, auto& out) { backend.uniform(key, 0, 1, out); });
      check(1e-6, [&](auto& backend, auto&, auto& out) { backend.uniform(key, 3, 5, out); });
      // Angles are rounded before their cosine is taken, sums of both signs cancel: those errors are
      // absolute.
      check({3e-6, 1}, [&](auto& backend, auto&, auto& out) { backend.normal(key, 0, 1, out); });
      for (const double p : {0.1, 0.5, 1 - 0x1p-24}) {
        check(0, [&](auto& backend, auto& in, auto& out) { backend.dropout(in[0], {}, p, key, out); });
        check({1e-6, 1}, [&](auto& backend, auto& in, auto& out) {
          backend.fill(0, out);
          backend.dropout(in[0], in[1], p, key, out);
        });
      }
    }
  });
}

TEST_CASE("vulkan: half types are read, written, filled and reduced") {
  with_limits([](Device device) {
    const Both x = random_both({3, 41, 5}, device);
    for (const DType half : {DType::f16, DType::bf16}) {
      CAPTURE(half);
      const Tolerance rounding(half == DType::f16 ? 0x1p-11 : 0x1p-8, 1);
      const Backend& backend = backend_of(device);
      const auto wide = [](const Tensor& of_half) { return converted(of_half, DType::f32); };
      const Tensor a = converted(x.gpu, half), b = Tensor::empty({3, 41, 5}, half, device);
      check_same(wide(a), x.cpu, rounding);
      // The rounded values from here on. A view whose first element lies at an odd one, turned around.
      const Tensor host = wide(a).to(Device{}), turned = b.view({5, 40}, {40, 1}, 1);
      backend.copy(a.view({5, 40}, {1, 5}, 7), turned);
      check_same(wide(turned), converted(host.view({5, 40}, {1, 5}, 7), DType::f32), 0);

      const Tensor sums = Tensor::empty({3, 41, 5}, DType::f32);
      backend.fill(0.333251953125, b);
      backend.binary(BinaryOp::add, a, b, b);
      cpu_backend.binary(BinaryOp::add, host, Tensor::full({3, 41, 5}, 0.333251953125), sums);
      check_same(wide(b), sums, {2 * rounding.error, 1});

      const Tensor total = Tensor::empty({3, 5}, half, device), expected = Tensor::empty({3, 5}, DType::f32);
      backend.reduce(ReduceOp::sum, a, total);
      cpu_backend.reduce(ReduceOp::sum, host, expected);
      check_same(wide(total), expected, rounding);
      backend.cumulative_sum(a, true, b);
      cpu_backend.cumulative_sum(host, true, sums);
      check_same(wide(b), sums, rounding);
    }
  });
}
