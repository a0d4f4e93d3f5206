#include "heed/tests/kernel_check.h"

// The CPU kernels against straightforward loops in double.

namespace heed {
namespace {

using namespace test;

template <class T>
Tensor random_tensor(const Shape& shape, double low, double high, std::uint32_t stream) {
  return tensor_of<T>(numbers(shape.count(), low, high, stream), shape);
}

/// The elements in row-major order, by the definition of strides.
template <class T>
Doubles elements(const Tensor& tensor) {
  Doubles values;
  const T* data = tensor.data<T>();
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int axis = tensor.rank() - 1; axis >= 0; --axis) {
      offset += rest % tensor.size(axis) * tensor.stride(axis);
      rest /= tensor.size(axis);
    }
    values.push_back(static_cast<double>(data[offset]));
  }
  return values;
}

Tensor transposed(const Tensor& x) {
  Shape shape = x.shape(), strides = x.strides();
  const int last = x.rank() - 1;
  std::swap(shape[last], shape[last - 1]);
  std::swap(strides[last], strides[last - 1]);
  return x.view(shape, strides, x.offset());
}

/// Views of one extent, laid out in every way the contract allows: contiguous,
/// transposed, with gaps, broadcast.
template <class T>
std::vector<Tensor> layouts_of(std::int64_t rows, std::int64_t columns, double low, double high) {
  const Tensor wide = random_tensor<T>({rows, 2 * columns + 3}, low, high, 4);
  return {random_tensor<T>({rows, columns}, low, high, 1),
          transposed(random_tensor<T>({columns, rows}, low, high, 2)),
          wide.view({rows, columns}, {2 * columns + 3, 1}, 3),
          wide.view({rows, columns}, {2 * columns + 3, 2}, 1),
          random_tensor<T>({1, columns}, low, high, 5).view({rows, columns}, {0, 1}, 0),
          random_tensor<T>({rows, 1}, low, high, 6).view({rows, columns}, {1, 0}, 0),
          random_tensor<T>({1}, low, high, 7).view({rows, columns}, {0, 0}, 0)};
}

void check_close(double value, double expected, double tolerance) {
  if (std::isnan(expected)) {
    CHECK(std::isnan(value));
  } else if (!(std::abs(value - expected) <= tolerance * std::max(1.0, std::abs(expected)))) {
    CHECK(value == doctest::Approx(expected));
  }
}

void check_all_close(const Doubles& values, const Doubles& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) check_close(values[i], expected[i], tolerance);
}

/// An op of the table, with numbers if it takes any, and the range in which it is smooth.
struct UnaryCase {
  UnaryOp op;
  const char* name;
  bool numbers;
  double low, high;

  Tensor operator()(const Tensor& x) const {
    if (!numbers) return unary(op, x);
    return op == UnaryOp::clamp ? unary(op, x, {0.7, 1.3}) : unary(op, x, {0.7});
  }
};
const UnaryCase unary_cases[] = {
#define HEED_UNARY(name, y, saved, dydx, low, high) {UnaryOp::name, #name, false, low, high},
#define HEED_PARAMETRIC(name, y, saved, dydx, low, high) {UnaryOp::name, #name, true, low, high},
#include "heed/core/elementwise.def"
};

struct BinaryCase {
  BinaryOp op;
  const char* name;
  bool integers_too;
};
const BinaryCase binary_cases[] = {
#define HEED_BINARY(name, types, ...) {BinaryOp::name, #name, std::string_view(#types) == "ANY"},
#include "heed/core/elementwise.def"
};

using Lists = std::vector<Doubles>;

/// Of an op on operands that are parameters: its values, and what it passes back to each.
template <class Op>
Lists passed(const Op& op, std::vector<Tensor> operands) {
  for (Tensor& x : operands) x = parameter(x);
  const Tensor y = op(operands);
  const Tensor weights = uniform(y.shape(), 0.5, 1.5, {7, 0, 0}, DType::f64);
  backward(y, cast(weights, y.dtype()));
  Lists all{y.to_doubles()};
  for (const Tensor& x : operands) all.push_back(gradient(x).to_doubles());
  return all;
}

/// The numbers in f64, without gaps.
std::vector<Tensor> plain_and_wide(std::vector<Tensor> operands) {
  for (Tensor& x : operands) x = Tensor::from(x.to_doubles(), x.shape());
  return operands;
}

template <class T, class Op>
void check_layout(const Op& op, const std::vector<Tensor>& operands) {
  const Lists found = passed(op, operands), expected = passed(op, plain_and_wide(operands));
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(worst_error(found[i], expected[i]) <= (sizeof(T) == 4 ? 3e-6 : 1e-14));
}

}  // namespace

TEST_CASE_TEMPLATE("cpu elementwise kernels: f32 gives what f64 does, and any layout what a copy does", T,
                   float, double) {
  for (const UnaryCase& one : unary_cases) {
    CAPTURE(one.name);
    for (std::int64_t columns : {1, 7, 130})
      for (const Tensor& x : layouts_of<T>(9, columns, one.low, one.high))
        check_layout<T>([&](const std::vector<Tensor>& of) { return one(of[0]); }, {x});
  }
  for (const BinaryCase& one : binary_cases) {
    CAPTURE(one.name);
    const auto op = [&](const std::vector<Tensor>& of) { return binary(one.op, of[0], of[1]); };
    for (std::int64_t columns : {3, 130})
      for (const Tensor& a : layouts_of<T>(11, columns, 0.2, 3))
        for (const Tensor& b : layouts_of<T>(11, columns, 0.2, 3)) check_layout<T>(op, {a, b});
  }
}

TEST_CASE("cpu binary kernels: whole numbers give what they give in f64, in any layout") {
  for (const BinaryCase& one : binary_cases) {
    if (!one.integers_too) continue;
    CAPTURE(one.name);
    for (const Tensor& a : layouts_of<std::int32_t>(11, 130, -50, 50))
      for (const Tensor& b : layouts_of<std::int32_t>(11, 130, -50, 50)) {
        const std::vector<Tensor> wide = plain_and_wide({a, b});
        CHECK(binary(one.op, a, b).to_doubles() == binary(one.op, wide[0], wide[1]).to_doubles());
      }
  }
}

TEST_CASE("cpu f32 functions over their whole range") {
  struct Range {
    UnaryOp op;
    double (*reference)(double);
    double low, high, absolute, relative;
  };
  const Range ranges[] = {
      {UnaryOp::exp, std::exp, -86, 88.7, 0, 2e-7},     {UnaryOp::log, std::log, 1e-30, 1e-20, 0, 3e-7},
      {UnaryOp::log, std::log, 0.5, 2, 1e-8, 3e-7},     {UnaryOp::log, std::log, 1, 3e38, 0, 3e-7},
      {UnaryOp::tanh, std::tanh, -10, 10, 0, 4e-7},     {UnaryOp::tanh, std::tanh, -1e-3, 1e-3, 0, 4e-7},
      {UnaryOp::erf, std::erf, -5, 5, 2.5e-7, 0},       {UnaryOp::erf, std::erf, -1e-3, 1e-3, 0, 5e-7},
      {UnaryOp::sin, std::sin, -50, 50, 1e-7, 0},       {UnaryOp::sqrt, std::sqrt, 0, 1e10, 0, 1e-7},
      {UnaryOp::expm1, std::expm1, -90, 88, 0, 8e-7},   {UnaryOp::expm1, std::expm1, -1e-3, 1e-3, 0, 8e-7},
      {UnaryOp::log1p, std::log1p, -0.999, 2, 0, 8e-7}, {UnaryOp::log1p, std::log1p, -1e-6, 1e-6, 0, 8e-7},
      {UnaryOp::log1p, std::log1p, 1, 3e38, 0, 4e-7},   {UnaryOp::floor, std::floor, -1e7, 1e7, 0, 0},
      {UnaryOp::ceil, std::ceil, -40, 40, 0, 0},        {UnaryOp::round, std::rint, -9e6, 9e6, 0, 0},
  };
  for (const Range& range : ranges) {
    CAPTURE_ALL(name_of(range.op), range.low);
    const Tensor x = random_tensor<float>({20001}, range.low, range.high, 3);
    const Tensor y = Tensor::empty(x.shape());
    cpu_backend.unary(range.op, {}, x, y);
    double worst = 0;
    for (int i = 0; i < 20001; ++i) {
      const double expected = range.reference(x.data<float>()[i]);
      const double error = std::abs(y.data<float>()[i] - expected);
      if (error > 0) worst = std::max(worst, error / (range.absolute + range.relative * std::abs(expected)));
    }
    CHECK(worst <= 1);
  }
}

TEST_CASE("cpu f32 functions at special values") {
  using enum UnaryOp;
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  struct Value {
    UnaryOp op;
    float x, y;
  };
  std::vector<Value> values{{exp, inf, inf},       {exp, 89, inf},
                            {exp, -inf, 0},        {exp, 0, 1},
                            {log, 0, -inf},        {log, inf, inf},
                            {log, 1, 0},           {log, -1, nan},
                            {tanh, inf, 1},        {tanh, -inf, -1},
                            {erf, inf, 1},         {erf, -inf, -1},
                            {sigmoid, -200, 0},    {sigmoid, 200, 1},
                            {expm1, inf, inf},     {expm1, -inf, -1},
                            {expm1, 89, inf},      {expm1, 1e-30f, 1e-30f},
                            {expm1, -0.0f, -0.0f}, {log1p, inf, inf},
                            {log1p, -1, -inf},     {log1p, -2, nan},
                            {log1p, -inf, nan},    {log1p, 1e-30f, 1e-30f},
                            {log1p, -0.0f, -0.0f}, {ceil, -0.5f, -0.0f},
                            {floor, -0.5f, -1},    {round, 0.5f, 0},
                            {round, 1.5f, 2},      {round, -2.5f, -2},
                            {sign, -inf, -1},      {sign, 1e-40f, 1},
                            {sign, -0.0f, -0.0f},  {log, 1e-40f, std::log(1e-40f)}};
  for (const UnaryOp op : {floor, ceil, round})
    for (const float x : {inf, -inf, 8388609.0f, -3e9f, 3.0f, -0.0f}) values.push_back({op, x, x});
  for (const UnaryOp op : {exp, log, tanh, erf, relu, clamp, gelu, sigmoid, softplus, elu, silu, expm1, log1p,
                           floor, ceil, round, sign})
    values.push_back({op, nan, nan});
  for (const Value& value : values) {
    CAPTURE_ALL(std::string(name_of(value.op)), value.x);
    const Tensor in = Tensor::from(Floats(21, value.x), {21}), out = Tensor::empty({21});
    cpu_backend.unary(value.op, {0.5, 2}, in, out);
    const float found = out.data<float>()[0];
    for (int i = 1; i < 21; ++i)  // full vectors and the remainder agree
      CHECK(std::memcmp(out.data<float>(), out.data<float>() + i, sizeof(float)) == 0);
    if (std::isnan(value.y))
      CHECK(std::isnan(found));
    else if (value.y == 0)
      CHECK((found == 0 && (std::signbit(found) || !std::signbit(value.y))));
    else
      CHECK((found == value.y || (value.op == log && std::abs(found / value.y - 1) < 1e-5)));
  }
}

TEST_CASE("cpu maximum and minimum keep NaN from either side") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = Tensor::from<float>({nan, 1, nan, 1, 2}, {5}),
               b = Tensor::from<float>({1, nan, nan, 2, 1}, {5});
  const Tensor out = Tensor::empty({5});
  for (const auto& [op, expected] : {std::pair(BinaryOp::maximum, 2), {BinaryOp::minimum, 1}}) {
    cpu_backend.binary(op, a, b, out);
    for (int i = 0; i < 5; ++i)
      CHECK((i < 3 ? std::isnan(out.data<float>()[i]) : out.data<float>()[i] == expected));
  }
}

namespace {

/// What f32 cannot give: where numbers of different size are subtracted, an error of so many of their last
/// places is left of a small difference. And where the table's expression leaves the range of f32 though its
/// result does not, any answer is taken.
struct Limit {
  const char* name;
  double (*lost)(double a, double b);
  bool (*beyond)(double a, double b) = nullptr;
};
const Limit limits[] = {
    // 1 - y^2 and y (1 - y) of the y that is kept, 1 + erf(x), sigmoid(a) - b; angles near a zero
    {"tanh", [](double, double) { return 1.0; }},
    {"sigmoid", [](double, double) { return 1.0; }},
    {"gelu", [](double x, double) { return std::abs(x) + 1; }},
    {"geglu", [](double a, double b) { return (std::abs(a) + 1) * (std::abs(b) + 1); }},
    {"binary_cross_entropy_with_logits", [](double, double) { return 1.0; }},
    {"sin", [](double, double) { return 1.0; }},
    {"cos", [](double, double) { return 1.0; }},
    // x^3: the modules in shaders/kept hold this line, and no glslang of Debian 12 can make them again
    {"gelu_tanh", [](double x, double) { return std::abs(x) + 1; },
     [](double x, double) { return std::abs(x) > 1e12; }},
    // a b and e^-a where the gate closes; in another order every model with the op would have other bits
    {"swiglu", [](double, double) { return 0.0; },
     [](double a, double b) { return a < -80 || (a < 0 && std::abs(a * b) > 1e37); }},
    // b - 1 is rounded, and a number below 0 has powers of whole exponents only
    {"pow", [](double, double) { return 0.0; },
     [](double a, double b) { return a < 0 && (std::abs(b) < 1 || std::abs(b) > 1e6); }},
};

const Limit* limit_of(std::string_view name) {
  for (const Limit& limit : limits)
    if (name == limit.name) return &limit;
  return nullptr;
}

/// f32 `found` beside the f64 `expected` for operands a and b.
bool is_right(const Limit* limit, double a, double b, double found, double expected) {
  constexpr double largest = std::numeric_limits<float>::max(), smallest = 4e-38, relative = 2e-5;
  if (limit && limit->beyond && limit->beyond(a, b)) return true;
  if (std::isnan(expected)) return std::isnan(found);
  if (std::abs(expected) > largest / 2) return std::abs(found) > largest / 4 && (found > 0) == (expected > 0);
  return std::abs(found - expected) <=
         relative * (std::abs(expected) + (limit ? limit->lost(a, b) : 0)) + smallest;
}

/// 0, and of both signs 1e-38, 1e-37, ... 1e38 as f32.
Doubles magnitudes() {
  Doubles all{0};
  for (int power = -38; power <= 38; ++power)
    for (const double sign : {1.0, -1.0}) all.push_back(static_cast<float>(sign * std::pow(10.0, power)));
  return all;
}

}  // namespace

TEST_CASE("cpu kernels in f32 give what f64 does at every magnitude, and so do their derivatives") {
  const Doubles sizes = magnitudes();
  const auto n = static_cast<std::int64_t>(sizes.size());
  const auto check_all = [&](const char* name, const auto& op, const std::vector<Tensor>& of) {
    CAPTURE(std::string(name));
    const Limit* limit = limit_of(name);
    std::vector<Tensor> narrow, wide;
    for (const Tensor& x : of) {
      narrow.push_back(parameter(cast(x, DType::f32)));
      wide.push_back(parameter(x));
    }
    const Tensor found = op(narrow), expected = op(wide);
    backward(found, Tensor::ones(found.shape()));
    backward(expected, Tensor::ones(expected.shape(), DType::f64));
    const Doubles a = of.front().to_doubles(), b = of.back().to_doubles();
    const auto check_right = [&](const char* what, const Tensor& x, const Tensor& right) {
      const Doubles got = x.to_doubles(), wanted = right.to_doubles();
      for (std::size_t i = 0; i < got.size(); ++i)
        CHECK_MESSAGE(is_right(limit, a[i], b[i], got[i], wanted[i]), what, " at ", a[i], " and ", b[i], ": ",
                      got[i], " for ", wanted[i]);
    };
    check_right("value", found, expected);
    for (std::size_t i = 0; i < of.size(); ++i) check_right("slope", gradient(narrow[i]), gradient(wide[i]));
  };
  const Tensor x = Tensor::from(sizes, {n});
  for (const UnaryCase& one : unary_cases)
    check_all(one.name, [&](const std::vector<Tensor>& of) { return one(of[0]); }, {x});
  const Tensor rows = contiguous(expand(reshape(x, {n, 1}), {n, n})), columns = contiguous(expand(x, {n, n}));
  for (const BinaryCase& one : binary_cases)
    check_all(one.name, [&](const std::vector<Tensor>& of) { return binary(one.op, of[0], of[1]); },
              {rows, columns});
}

TEST_CASE("cpu binary kernels may overwrite a contiguous operand") {
  const Tensor a = random_tensor<float>({37, 91}, -1, 1, 1), row = random_tensor<float>({91}, -1, 1, 2);
  const Doubles before = elements<float>(a), b = elements<float>(row);
  cpu_backend.binary(BinaryOp::sub, row.view({37, 91}, {0, 1}, 0), a, a);
  const Doubles after = elements<float>(a);
  for (std::size_t i = 0; i < after.size(); ++i) check_close(after[i], b[i % 91] - before[i], 1e-6);
}

TEST_CASE("cpu compare and where") {
  const auto check_type = [&](auto zero) {
    using T = decltype(zero);
    for (const Tensor& a : layouts_of<T>(6, 70, -2.5, 2.5)) {
      const Tensor b = random_tensor<T>(a.shape(), -2.5, 2.5, 21);
      const Tensor less = Tensor::empty(a.shape(), DType::i32), out = Tensor::empty(a.shape(), a.dtype());
      cpu_backend.compare(CompareOp::less, a, b, less);
      cpu_backend.where(less, a, b, out);
      const Doubles x = elements<T>(a), y = elements<T>(b), got = elements<T>(out);
      for (std::size_t i = 0; i < x.size(); ++i) {
        CHECK(less.data<std::int32_t>()[i] == (x[i] < y[i] ? 1 : 0));
        CHECK(got[i] == std::min(x[i], y[i]));
      }
      const Tensor equal = Tensor::empty(a.shape(), DType::i32);
      cpu_backend.compare(CompareOp::equal, a, a, equal);
      CHECK(elements<std::int32_t>(equal) == Doubles(x.size(), 1.0));
    }
  };
  check_type(float());
  check_type(double());
  check_type(std::int32_t());
}

TEST_CASE("cpu copy between any layouts and dtypes") {
  const auto check_types = [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    const DType dtype = dtype_of<To>;
    for (const Tensor& x : layouts_of<From>(35, 51, -9, 9)) {
      const Tensor outs[] = {Tensor::empty(x.shape(), dtype), transposed(Tensor::empty({51, 35}, dtype)),
                             Tensor::zeros({35, 120}, dtype).view({35, 51}, {120, 2}, 4)};
      for (const Tensor& out : outs) {
        cpu_backend.copy(x, out);
        Doubles expected = elements<From>(x);
        for (double& value : expected) value = static_cast<double>(static_cast<To>(static_cast<From>(value)));
        CHECK(elements<To>(out) == expected);
      }
    }
  };
  check_types(float(), float());
  check_types(float(), double());
  check_types(double(), float());
  check_types(double(), std::int32_t());
  check_types(std::int32_t(), float());
  check_types(std::int32_t(), std::int32_t());
}

TEST_CASE("cpu copy of permuted axes") {
  const Tensor x = random_tensor<float>({3, 40, 5, 33}, -1, 1, 1);
  int order[] = {0, 1, 2, 3};
  do {
    Shape shape, strides;
    for (int axis : order) {
      shape.push_back(x.size(axis));
      strides.push_back(x.stride(axis));
    }
    const Tensor view = x.view(shape, strides, 0), out = Tensor::empty(shape);
    cpu_backend.copy(view, out);
    CHECK(elements<float>(out) == elements<float>(view));
  } while (std::next_permutation(order, order + 4));
}

TEST_CASE("cpu conversion to i32 truncates and stays in range") {
  const Tensor x = Tensor::from<float>({1.9f, -1.9f, 3e9f, -3e9f, std::nanf("")}, {5});
  const Tensor out = Tensor::empty({5}, DType::i32);
  cpu_backend.copy(x, out);
  CHECK(out.to_vector<std::int32_t>() == Ints{1, -1, 2147483647, -2147483647 - 1, 0});
}

TEST_CASE("cpu fill leaves the gaps of a strided view alone") {
  const Tensor x = Tensor::full({4, 6}, 1.0);
  cpu_backend.fill(2.5, x.view({4, 3}, {6, 2}, 1));
  for (int i = 0; i < 24; ++i) CHECK(x.data<float>()[i] == (i % 2 ? 2.5f : 1.0f));
}

namespace {

/// c = a b + beta c + bias, the definition.
template <class T>
Doubles product(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, const Tensor& c) {
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1),
                     batch = c.count() / std::max<std::int64_t>(1, m * n);
  const Doubles x = elements<T>(a), y = elements<T>(b), z = elements<T>(c);
  Doubles result;
  for (std::int64_t item = 0; item < batch; ++item)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = bias.defined() ? static_cast<double>(bias.data<T>()[j]) : 0;
        if (beta != 0) sum += z[static_cast<std::size_t>((item * m + i) * n + j)];
        for (std::int64_t l = 0; l < k; ++l)
          sum += x[static_cast<std::size_t>((item * m + i) * k + l)] *
                 y[static_cast<std::size_t>((item * k + l) * n + j)];
        result.push_back(sum);
      }
  return result;
}

template <class T>
Tensor matrix(const Shape& shape, bool transpose, unsigned seed) {
  if (!transpose) return random_tensor<T>(shape, -1, 1, seed);
  Shape swapped = shape;
  std::swap(swapped[shape.rank() - 1], swapped[shape.rank() - 2]);
  return transposed(random_tensor<T>(swapped, -1, 1, seed));
}

template <class T>
void check_matmul(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b) {
  CAPTURE_ALL(m, n, k);
  const Tensor a = matrix<T>({m, k}, transpose_a, 1), b = matrix<T>({k, n}, transpose_b, 2);
  for (const Tensor& bias : {Tensor(), random_tensor<T>({n}, -1, 1, 3)}) {
    for (double beta : {0.0, 1.0}) {
      const Tensor out = random_tensor<T>({m, n}, -1, 1, 4);
      const Doubles expected = product<T>(a, b, bias, beta, out);
      if (beta == 0) cpu_backend.fill(std::nan(""), out);  // the old content is ignored
      cpu_backend.matmul(a, b, bias, beta, out);
      check_all_close(elements<T>(out), expected,
                      (std::is_same_v<T, float> ? 2e-6 : 1e-14) * std::sqrt(static_cast<double>(k) + 10));
    }
  }
}

}  // namespace

TEST_CASE("cpu matmul of ragged sizes, transposed operands, bias and beta") {
  const std::int64_t sizes[][3] = {{1, 1, 1},       {1, 300, 70},   {300, 1, 70}, {5, 7, 0},
                                   {17, 33, 65},    {257, 3, 31},   {3, 523, 20}, {65, 64, 700},
                                   {130, 260, 129}, {40, 30, 2500}, {1, 1, 500}};
  for (const auto& [m, n, k] : sizes) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      check_matmul<float>(m, n, k, transposes & 1, transposes & 2);
      check_matmul<double>(m, n, k, transposes & 1, transposes & 2);
    }
  }
}

TEST_CASE("cpu matmul of batches: heads of a projection, broadcast operands, strided output") {
  // [batch, length, heads * width] seen as [batch, heads, length, width]
  const auto heads = [](const Tensor& x) { return x.view({2, 3, 20, 8}, {20 * 24, 8, 24, 1}, 0); };
  const Tensor q = heads(random_tensor<float>({2, 20, 24}, -1, 1, 1)),
               k = heads(random_tensor<float>({2, 20, 24}, -1, 1, 2));
  const Tensor scores = Tensor::empty({2, 3, 20, 20});
  cpu_backend.matmul(q, transposed(k), {}, 0, scores);
  check_all_close(elements<float>(scores), product<float>(q, transposed(k), {}, 0, scores), 1e-5);

  const Tensor out = heads(Tensor::empty({2, 20, 24}));
  cpu_backend.matmul(scores, k, {}, 0, out);
  check_all_close(elements<float>(out), product<float>(scores, k, {}, 0, out), 1e-5);

  const Tensor shared = random_tensor<float>({8, 11}, -1, 1, 3).view({2, 3, 8, 11}, {0, 0, 11, 1}, 0);
  const Tensor projected = Tensor::empty({2, 3, 20, 11});
  cpu_backend.matmul(q, shared, {}, 0, projected);
  check_all_close(elements<float>(projected), product<float>(q, shared, {}, 0, projected), 1e-5);
}

TEST_CASE("cpu matmul of a batch with one shared matrix and a bias") {
  const Tensor weight = random_tensor<float>({8, 11}, -1, 1, 3), bias = random_tensor<float>({11}, -1, 1, 5);
  const Tensor shared = weight.view({2, 3, 8, 11}, {0, 0, 11, 1}, 0);
  const Tensor wide = random_tensor<float>({2, 3, 20, 10}, -1, 1, 1);
  const Tensor inputs[] = {
      wide.view({2, 3, 20, 8}, {600, 200, 10, 1}, 1),  // rows evenly spaced over the whole batch
      wide.view({2, 3, 10, 8}, {600, 200, 20, 1}, 1),  // also with longer gaps
      wide.view({2, 3, 9, 8}, {600, 200, 20, 1}, 1),   // not evenly: rows are skipped between the matrices
      wide.view({2, 3, 1, 8}, {600, 200, 10, 1}, 1),   // one row a matrix
  };
  for (const Tensor& x : inputs) {
    const Tensor out = random_tensor<float>({2, 3, x.size(-2), 11}, -1, 1, 6);
    const Doubles expected = product<float>(x, shared, bias, 1, out);
    cpu_backend.matmul(x, shared, bias, 1, out);
    check_all_close(elements<float>(out), expected, 1e-5);
  }
}

TEST_CASE("cpu kernels give the same bits for any number of threads") {
  const std::int64_t sizes[][3] = {{700, 300, 90}, {128, 1024, 2000}, {64, 32, 5000}, {1, 3000, 200}};
  for (const auto& [m, n, k] : sizes) {
    for (bool transpose : {false, true}) {
      const Tensor a = matrix<float>({m, k}, transpose, 1), b = matrix<float>({k, n}, !transpose, 2);
      const Tensor bias = random_tensor<float>({n}, -1, 1, 3), row = bias.view({m, n}, {0, 1}, 0);
      check_thread_identity([&, m = m, n = n]() -> std::vector<Tensor> {
        const Tensor out = Tensor::empty({m, n}), sum = Tensor::empty({m, n});
        cpu_backend.matmul(a, b, bias, 0, out);
        cpu_backend.binary(BinaryOp::mul, out, row, sum);
        cpu_backend.unary(UnaryOp::gelu, {}, sum, sum);
        return {out, sum};
      });
    }
  }
}

TEST_CASE("cpu info names what the bits of a result depend on") {
  CHECK(cpu_info().threads == cpu_threads());
  CHECK(cpu_info().processors >= 1);
  CHECK_FALSE(cpu_info().simd_target.empty());
  CHECK_FALSE(blas_core_name().empty());
}

}  // namespace heed
