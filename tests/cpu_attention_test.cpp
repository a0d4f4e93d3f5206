// The attention kernels of the CPU backend against a naive loop in double, and against finite differences.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "heed/core/backend.h"
#include "heed/core/device.h"
#include "heed/core/random.h"
#include "heed/tests/attention_cases.h"

using namespace heed;
using namespace heed::test;
using namespace heed::test::attention_cases;

namespace {

/// Row-major values: out [B, H, N, dv], log_sum_exp [B, H, N], dquery, dkey, dvalue [B, H, ., .], dbias as
/// the bias.
struct Results {
  std::vector<double> out, log_sum_exp, dquery, dkey, dvalue, dbias;
};

std::size_t at(const Case& c, std::int64_t rows, std::int64_t width, std::int64_t b, std::int64_t h,
               std::int64_t i, std::int64_t j) {
  return static_cast<std::size_t>(((b * c.heads + h) * rows + i) * width + j);
}

/// One row of weights before dropout, by the definition.
template <class T>
std::vector<double> naive_weights(const Case& c, const Inputs& in, std::int64_t b, std::int64_t h,
                                  std::int64_t i, double& log_sum_exp) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> weights(static_cast<std::size_t>(c.keys), -infinity);
  double maximum = -infinity, sum = 0;
  for (std::int64_t j = 0; j < c.keys; ++j) {
    if (element<std::int32_t>(in.allowed, b, h, i, j) == 0) continue;
    double score = 0;
    for (std::int64_t e = 0; e < c.key_width; ++e) {
      score += element<T>(in.args.query, b, h, i, e) * element<T>(in.args.key, b, h, j, e);
    }
    score *= in.args.scale;
    if (in.args.slopes.defined()) {
      const auto slope = static_cast<double>(in.args.slopes.data<T>()[h]);
      score -= slope * std::abs(static_cast<double>(i + c.keys - c.queries - j));
    }
    if (in.args.bias.defined()) score += bias_value(in.args.bias, b, h, i, j);
    weights[static_cast<std::size_t>(j)] = score;
    maximum = std::max(maximum, score);
  }
  for (double& weight : weights) sum += weight = weight == -infinity ? 0 : std::exp(weight - maximum);
  for (double& weight : weights) weight = sum > 0 ? weight / sum : 0;
  log_sum_exp = sum > 0 ? maximum + std::log(sum) : -infinity;
  return weights;
}

template <class T>
Results naive(const Case& c, const Inputs& in) {
  Results r;
  const auto size = [&](std::int64_t rows, std::int64_t width) {
    return static_cast<std::size_t>(c.batch * c.heads * rows * width);
  };
  r.out.resize(size(c.queries, c.value_width));
  r.dquery.resize(size(c.queries, c.key_width));
  r.dkey.resize(size(c.keys, c.key_width));
  r.dvalue.resize(size(c.keys, c.value_width));
  if (c.bias) r.dbias.resize(static_cast<std::size_t>(in.args.bias.count()));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < c.queries; ++i) {
        double log_sum_exp = 0, mean = 0;
        const std::vector<double> weights = naive_weights<T>(c, in, b, h, i, log_sum_exp);
        r.log_sum_exp.push_back(log_sum_exp);
        std::vector<double> factor(weights.size()), slope(weights.size());
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const auto n = static_cast<std::size_t>(j);
          const std::uint64_t index = at(c, c.queries, c.keys, b, h, i, j);
          const bool kept = unit_interval(random_word(in.args.dropout_key, index)) >= c.dropout;
          factor[n] = kept ? 1 / (1 - c.dropout) : 0;
          for (std::int64_t e = 0; e < c.value_width; ++e) {
            const double value = element<T>(in.args.value, b, h, j, e), g = element<T>(in.grad, b, h, i, e);
            r.out[at(c, c.queries, c.value_width, b, h, i, e)] += weights[n] * factor[n] * value;
            r.dvalue[at(c, c.keys, c.value_width, b, h, j, e)] += weights[n] * factor[n] * g;
            slope[n] += g * value * factor[n];
          }
          mean += weights[n] * slope[n];
        }
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const auto n = static_cast<std::size_t>(j);
          const double dlogit = weights[n] * (slope[n] - mean), dscore = dlogit * in.args.scale;
          if (c.bias) {
            const std::int64_t matrix =
                (c.bias_batches > 1 ? b : 0) * c.bias_heads + (c.bias_heads > 1 ? h : 0);
            r.dbias[static_cast<std::size_t>((matrix * c.queries + i) * c.keys + j)] += dlogit;
          }
          for (std::int64_t e = 0; e < c.key_width; ++e) {
            r.dquery[at(c, c.queries, c.key_width, b, h, i, e)] +=
                dscore * element<T>(in.args.key, b, h, j, e);
            r.dkey[at(c, c.keys, c.key_width, b, h, j, e)] += dscore * element<T>(in.args.query, b, h, i, e);
          }
        }
      }
    }
  }
  return r;
}

template <class T>
std::vector<double> panel_values(const Tensor& x) {
  std::vector<double> values;
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (std::int64_t h = 0; h < x.size(1); ++h) {
      for (std::int64_t i = 0; i < x.size(2); ++i) {
        for (std::int64_t j = 0; j < x.size(3); ++j) values.push_back(element<T>(x, b, h, i, j));
      }
    }
  }
  return values;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

/// The kernels; outputs in the case's layout and full of NaN before.
template <class T>
Results kernels(const Case& c, const Inputs& in) {
  const auto output = [&](std::int64_t rows, std::int64_t width) {
    const Tensor x = random_panels(c, 9, rows, width, dtype_of<T>);
    T* data = x.data<T>();
    std::fill_n(data, c.batch * c.heads * rows * width, std::numeric_limits<T>::quiet_NaN());
    return x;
  };
  const Tensor out = output(c.queries, c.value_width), dquery = output(c.queries, c.key_width);
  const Tensor dkey = output(c.keys, c.key_width), dvalue = output(c.keys, c.value_width);
  const Tensor sums = Tensor::empty({c.batch, c.heads, c.queries, 2}, dtype_of<T>);
  Tensor dbias;
  if (c.bias) {
    dbias = Tensor::empty(in.args.bias.shape(), dtype_of<T>);
    std::fill_n(dbias.data<T>(), dbias.count(), std::numeric_limits<T>::quiet_NaN());
  }
  cpu_backend.attention.forward(in.args, out, sums);
  cpu_backend.attention.backward(in.args, out, sums, in.grad, {}, dquery, dkey, dvalue, dbias);
  // What is not wanted changes no bit of the rest.
  for (const Tensor& of_bias : {dbias, Tensor()}) {
    const Tensor value_alone = output(c.keys, c.value_width);
    const Tensor bias_alone = of_bias.defined() ? Tensor::empty(of_bias.shape(), dtype_of<T>) : Tensor();
    cpu_backend.attention.backward(in.args, out, sums, in.grad, {}, {}, {}, value_alone, bias_alone);
    CHECK(same_bits(panel_values<T>(value_alone), panel_values<T>(dvalue)));
    if (of_bias.defined()) CHECK(same_bits(panel_values<T>(bias_alone), panel_values<T>(dbias)));
  }
  const std::vector<T> pairs = sums.to_vector<T>();
  std::vector<double> log_sum_exp;
  for (std::size_t n = 0; n < pairs.size(); n += 2) log_sum_exp.push_back(pairs[n] + std::log(pairs[n + 1]));
  return {panel_values<T>(out),    log_sum_exp,
          panel_values<T>(dquery), panel_values<T>(dkey),
          panel_values<T>(dvalue), c.bias ? panel_values<T>(dbias) : std::vector<double>()};
}

void check_close(const char* what, const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance) {
  REQUIRE(actual.size() == expected.size());
  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities too
    const double error = std::abs(actual[i] - expected[i]) / std::max(1.0, std::abs(expected[i]));
    if (!(error <= worst)) worst = error, where = i;
    if (std::isnan(error)) break;
  }
  CHECK_MESSAGE(worst <= tolerance, what, " differs at ", where, ": ", actual[where], " against ",
                expected[where]);
}

void check_close(const Results& actual, const Results& expected, double tolerance) {
  check_close("out", actual.out, expected.out, tolerance);
  check_close("log_sum_exp", actual.log_sum_exp, expected.log_sum_exp, tolerance);
  check_close("dquery", actual.dquery, expected.dquery, tolerance);
  check_close("dkey", actual.dkey, expected.dkey, tolerance);
  check_close("dvalue", actual.dvalue, expected.dvalue, tolerance);
  check_close("dbias", actual.dbias, expected.dbias, tolerance);
}

}  // namespace

TEST_CASE("attention: f64 kernels agree with the definition") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f64, in);
    check_close(kernels<double>(c, in), naive<double>(c, in), 1e-12);
  }
}

TEST_CASE("attention: f32 kernels agree with the definition") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    check_close(kernels<float>(c, in), naive<float>(c, in), 2e-5);
  }
}

TEST_CASE("attention: gradients agree with finite differences") {
  for (const Case& c : cases()) {
    if (c.queries * c.keys > 2000) continue;
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f64, in);
    const Results analytic = kernels<double>(c, in);
    const Tensor out = Tensor::empty({c.batch, c.heads, c.queries, c.value_width}, DType::f64);
    const Tensor sums = Tensor::empty({c.batch, c.heads, c.queries, 2}, DType::f64);
    const auto loss = [&] {
      cpu_backend.attention.forward(in.args, out, sums);
      const std::vector<double> y = panel_values<double>(out), g = panel_values<double>(in.grad);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * g[i];
      return sum;
    };
    const auto compare = [&](const Tensor& x, const std::vector<double>& gradient) {
      for (const std::int64_t n : {std::int64_t{0}, x.count() / 3, x.count() / 2, x.count() - 1}) {
        std::int64_t rest = n, index[4];
        for (int axis = 3; axis >= 0; --axis) {
          index[axis] = rest % x.size(axis);
          rest /= x.size(axis);
        }
        double* place = x.data<double>();
        for (int axis = 0; axis < 4; ++axis) place += index[axis] * x.stride(axis);
        if (std::isinf(*place)) continue;
        const double old = *place, step = 1e-5;
        *place = old + step;
        const double above = loss();
        *place = old - step;
        const double below = loss();
        *place = old;
        CHECK((above - below) / (2 * step) ==
              doctest::Approx(gradient[static_cast<std::size_t>(n)]).epsilon(1e-6));
      }
    };
    compare(in.args.query, analytic.dquery);
    compare(in.args.key, analytic.dkey);
    compare(in.args.value, analytic.dvalue);
    if (c.bias) compare(in.args.bias, analytic.dbias);
  }
}

TEST_CASE("attention: the same bits for any number of threads") {
  const int before = cpu_threads();
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    set_cpu_threads(1);
    const Results one = kernels<float>(c, in);
    for (int threads : {2, 3, 8}) {
      CAPTURE(threads);
      set_cpu_threads(threads);
      const Results more = kernels<float>(c, in);
      CHECK(same_bits(one.out, more.out));
      CHECK(same_bits(one.log_sum_exp, more.log_sum_exp));
      CHECK(same_bits(one.dquery, more.dquery));
      CHECK(same_bits(one.dkey, more.dkey));
      CHECK(same_bits(one.dvalue, more.dvalue));
      CHECK(same_bits(one.dbias, more.dbias));
    }
  }
  set_cpu_threads(before);
}

TEST_CASE("attention: padding may hold anything finite, keys beyond the last real one anything at all") {
  const Case c{.name = "padding", .batch = 1, .queries = 6, .keys = 9, .key_mask = padded_ends};
  Inputs in;
  make_inputs(c, DType::f32, in);
  const Results clean = kernels<float>(c, in);
  for (std::int64_t h = 0; h < c.heads; ++h) {
    in.args.key.data<float>()[h * in.args.key.stride(1) + 8 * in.args.key.stride(2)] =
        std::numeric_limits<float>::quiet_NaN();
  }
  const Results dirty = kernels<float>(c, in);
  CHECK(clean.out == dirty.out);
  CHECK(clean.dkey == dirty.dkey);
}

TEST_CASE("attention: NaN in a query reaches its output and no other") {
  const Case c{.name = "nan", .batch = 1, .heads = 1, .queries = 6, .keys = 9};
  Inputs in;
  make_inputs(c, DType::f32, in);
  in.args.query.data<float>()[2 * in.args.query.stride(2)] = std::numeric_limits<float>::quiet_NaN();
  const Results r = kernels<float>(c, in);
  for (std::int64_t i = 0; i < c.queries; ++i)
    CHECK(std::isnan(r.out[at(c, 6, c.value_width, 0, 0, i, 0)]) == (i == 2));
}

TEST_CASE("attention: repeated query rows and keys shared by all heads") {
  const Case c{.name = "expanded", .queries = 6, .keys = 9};
  Inputs in;
  make_inputs(c, DType::f64, in);
  const std::int64_t d = c.key_width;
  in.args.query = in.args.query.view(in.args.query.shape(), {c.heads * 6 * d, 6 * d, 0, 1}, 0);
  in.args.key = in.args.key.view(in.args.key.shape(), {c.heads * 9 * d, 0, d, 1}, 0);
  check_close(kernels<double>(c, in), naive<double>(c, in), 1e-12);
}

TEST_CASE("attention: a bias whose rows lie apart, or are one row") {
  Case c{.name = "strided", .queries = 6, .keys = 9, .bias = some_bias, .bias_heads = 3};
  Inputs in;
  make_inputs(c, DType::f64, in);
  const Tensor memory =
      tensor_of(some_bias({.name = "memory", .queries = 10, .keys = 100}), {1000}, DType::f64);
  for (const Shape& strides : {Shape{0, 200, 11, 1}, Shape{0, 9, 0, 1}, Shape{0, 0, 13, 1}}) {
    in.args.bias = memory.view({1, 3, 6, 9}, strides, 7);
    check_close(kernels<double>(c, in), naive<double>(c, in), 1e-12);
  }
}

TEST_CASE("attention: a bias of zeros and slopes of zeros change no bit") {
  for (const Case& plain : plain_cases()) {
    if (plain.queries * plain.keys > 2000) continue;
    CAPTURE(plain.name);
    Case biased = plain;
    biased.slopes = true;
    biased.bias = [](const Case& c) {
      return std::vector<double>(static_cast<std::size_t>(c.queries * c.keys), 0.0);
    };
    Inputs without, with;
    make_inputs(plain, DType::f32, without);
    make_inputs(biased, DType::f32, with);
    std::fill_n(with.args.slopes.data<float>(), plain.heads, 0.0F);
    const Results a = kernels<float>(plain, without), b = kernels<float>(biased, with);
    CHECK(a.out == b.out);
    CHECK(a.log_sum_exp == b.log_sum_exp);
    CHECK(a.dquery == b.dquery);
    CHECK(a.dkey == b.dkey);
    CHECK(a.dvalue == b.dvalue);
  }
}

TEST_CASE("attention: no queries, no keys") {
  const Case no_queries{.name = "no queries", .queries = 0, .keys = 4};
  Inputs a;
  make_inputs(no_queries, DType::f32, a);
  check_close(kernels<float>(no_queries, a), naive<float>(no_queries, a), 0);
  const Case no_keys{.name = "no keys", .queries = 4, .keys = 0};
  Inputs b;
  make_inputs(no_keys, DType::f32, b);
  check_close(kernels<float>(no_keys, b), naive<float>(no_keys, b), 0);
}

TEST_CASE("attention: a block pattern that does not fit is refused") {
  const Case c{.name = "pattern", .queries = 30, .keys = 30, .pattern = pattern_of(8, false)};
  Inputs in;
  make_inputs(c, DType::f32, in);
  in.pattern.keys = 31;
  CHECK_THROWS_WITH_AS(kernels<float>(c, in),
                       "attention: the block pattern is for 30 queries and 31 keys, but there are 30 and 30",
                       Error);
  in.pattern.keys = 30;
  in.pattern.columns.data<std::int32_t>()[0] = 4;
  CHECK_THROWS_WITH_AS(kernels<float>(c, in), "attention: block 0 of the pattern has column 4; there are 4",
                       Error);
}
