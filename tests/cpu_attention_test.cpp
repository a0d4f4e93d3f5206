// The attention kernels of the CPU backend against a naive loop in double.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "heed/tests/attention_cases.h"
#include "heed/tests/kernel_check.h"
#include "heed/tests/support.h"

using namespace heed;
using namespace heed::test;
using namespace heed::test::attention_cases;

namespace {

/// Row-major values: out [B, H, N, dv], log_sum_exp [B, H, N], dquery, dkey, dvalue [B, H, ., .], dbias as
/// the bias.
struct Results {
  std::vector<double> out, log_sum_exp, dquery, dkey, dvalue, dbias;

  std::vector<std::pair<const char*, const std::vector<double>*>> all() const {
    return {{"out", &out},   {"log_sum_exp", &log_sum_exp}, {"dquery", &dquery},
            {"dkey", &dkey}, {"dvalue", &dvalue},           {"dbias", &dbias}};
  }
};

std::size_t at(const Case& c, std::int64_t rows, std::int64_t width, std::int64_t b, std::int64_t h,
               std::int64_t i, std::int64_t j) {
  return static_cast<std::size_t>(((b * c.heads + h) * rows + i) * width + j);
}

/// One row of weights before dropout, by the definition.
template <class T>
std::vector<double> naive_weights(const Case& c, const Inputs& in, std::int64_t b, std::int64_t h,
                                  std::int64_t i, double& log_sum_exp) {
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

void check_same_bits(const Results& a, const Results& b) {
  for (std::size_t i = 0; i < a.all().size(); ++i)
    CHECK_MESSAGE(same_bits(*a.all()[i].second, *b.all()[i].second), a.all()[i].first);
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

void check_close(const Results& actual, const Results& expected, double tolerance) {
  for (std::size_t i = 0; i < actual.all().size(); ++i)
    CHECK_MESSAGE(worst_error(*actual.all()[i].second, *expected.all()[i].second) <= tolerance,
                  actual.all()[i].first);
}

/// The kernels against the definition.
template <class T>
void check_naive(const Case& c, const Inputs& in, double tolerance = 1e-12) {
  check_close(kernels<T>(c, in), naive<T>(c, in), tolerance);
}

}  // namespace

TEST_CASE_TEMPLATE("attention: kernels agree with the definition", T, float, double) {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, dtype_of<T>, in);
    check_naive<T>(c, in, sizeof(T) == 4 ? 2e-5 : 1e-12);
  }
}

TEST_CASE("attention: the same bits for any number of threads") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    std::optional<Results> one;
    for (int threads : {1, 2, 3, 8}) {
      CAPTURE(threads);
      const WithThreads scope(threads);
      const Results found = kernels<float>(c, in);
      if (!one) one = found;
      check_same_bits(*one, found);
    }
  }
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
  check_naive<double>(c, in);
}

TEST_CASE("attention: a bias whose rows lie apart, or are one row") {
  Case c{.name = "strided", .queries = 6, .keys = 9, .bias = some_bias, .bias_heads = 3};
  Inputs in;
  make_inputs(c, DType::f64, in);
  const Tensor memory =
      tensor_of(some_bias({.name = "memory", .queries = 10, .keys = 100}), {1000}, DType::f64);
  for (const Shape& strides : {Shape{0, 200, 11, 1}, Shape{0, 9, 0, 1}, Shape{0, 0, 13, 1}}) {
    in.args.bias = memory.view({1, 3, 6, 9}, strides, 7);
    check_naive<double>(c, in);
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
    Results expected = kernels<float>(plain, without), found = kernels<float>(biased, with);
    found.dbias = expected.dbias;
    check_close(found, expected, 0);  // 0 and -0 are equal
  }
}

TEST_CASE("attention: no queries, no keys") {
  for (const Case& c : {Case{.name = "no queries", .queries = 0, .keys = 4},
                        Case{.name = "no keys", .queries = 4, .keys = 0}}) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    check_naive<float>(c, in, 0);
  }
}

TEST_CASE("attention: a block pattern that does not fit is refused") {
  const Case c{.name = "pattern", .queries = 30, .keys = 30, .pattern = pattern_of(8, false)};
  Inputs in;
  make_inputs(c, DType::f32, in);
  in.pattern.columns.data<std::int32_t>()[0] = 4;
  CHECK_THROWS_WITH_AS(kernels<float>(c, in), "attention: block 0 of the pattern has column 4; there are 4",
                       Error);
}
