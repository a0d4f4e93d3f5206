// The attention kernels of the CPU backend against a naive loop in double, and against finite differences.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "heed/core/backend.h"
#include "heed/core/cpu_threads.h"
#include "heed/core/random.h"

using namespace heed;

namespace {

struct Case {
  std::string name;
  std::int64_t batch = 2, heads = 3, queries = 7, keys = 7, key_width = 5, value_width = 4;
  bool causal = false;
  double dropout = 0;
  bool heads_inside = false;  ///< views of [B, N, H, d] memory
  std::function<Tensor(const Case&)> key_mask = {}, mask = {};
  std::function<BlockPattern(const Case&)> pattern = {};
};

double random_value(std::uint32_t stream, std::uint64_t i) {
  return 2 * unit_interval(random_word({11, 0, stream}, i)) - 1;
}

/// Random values in [-1, 1), as [B, H, rows, width] of the case's layout.
Tensor random_panels(const Case& c, std::uint32_t stream, std::int64_t rows, std::int64_t width,
                     DType dtype) {
  const Shape shape =
      c.heads_inside ? Shape{c.batch, rows, c.heads, width} : Shape{c.batch, c.heads, rows, width};
  std::vector<double> values(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_value(stream, i);
  const Tensor memory = dtype == DType::f64
                            ? Tensor::from(values, shape)
                            : Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
  if (!c.heads_inside) return memory;
  return memory.view({c.batch, c.heads, rows, width}, {rows * c.heads * width, width, c.heads * width, 1}, 0);
}

template <class T>
double element(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Shape& s = x.strides();
  return static_cast<double>(x.data<T>()[b * s[0] + h * s[1] + i * s[2] + j * s[3]]);
}

struct Inputs {
  AttentionArgs args;
  Tensor grad, allowed;  // allowed: dense i32 [B, H, N, M]
  BlockPattern pattern;
};

Tensor dense_mask(const Case& c, const Inputs& in) {
  std::vector<std::int32_t> allowed;
  const std::vector<std::int32_t> blocks =
      in.args.pattern ? in.pattern.dense().to_vector<std::int32_t>() : std::vector<std::int32_t>{};
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < c.queries; ++i) {
        for (std::int64_t j = 0; j < c.keys; ++j) {
          bool exists = !c.causal || j <= i + c.keys - c.queries;
          if (in.args.key_mask.defined()) {
            const Shape& s = in.args.key_mask.strides();
            exists = exists && in.args.key_mask.data<std::int32_t>()[b * s[0] + j * s[1]] != 0;
          }
          if (in.args.mask.defined()) exists = exists && element<std::int32_t>(in.args.mask, b, h, i, j) != 0;
          if (in.args.pattern) {
            const std::int64_t head = in.pattern.heads == 1 ? 0 : h;
            exists = exists && blocks[static_cast<std::size_t>((head * c.queries + i) * c.keys + j)] != 0;
          }
          allowed.push_back(exists);
        }
      }
    }
  }
  return Tensor::from(allowed, {c.batch, c.heads, c.queries, c.keys});
}

void make_inputs(const Case& c, DType dtype, Inputs& in) {
  in.args.query = random_panels(c, 1, c.queries, c.key_width, dtype);
  in.args.key = random_panels(c, 2, c.keys, c.key_width, dtype);
  in.args.value = random_panels(c, 3, c.keys, c.value_width, dtype);
  in.grad = random_panels(c, 4, c.queries, c.value_width, dtype);
  in.args.scale = 0.8;
  in.args.causal = c.causal;
  in.args.dropout = c.dropout;
  in.args.key_of_dropout = {5, 6, 7};
  if (c.key_mask) in.args.key_mask = c.key_mask(c);
  if (c.mask) in.args.mask = c.mask(c);
  if (c.pattern) {
    in.pattern = c.pattern(c);
    in.args.pattern = &in.pattern;
  }
  in.allowed = dense_mask(c, in);
}

/// Row-major values: out [B, H, N, dv], log_sum_exp [B, H, N], dquery, dkey, dvalue [B, H, ., .].
struct Results {
  std::vector<double> out, log_sum_exp, dquery, dkey, dvalue;
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
    weights[static_cast<std::size_t>(j)] = score * in.args.scale;
    maximum = std::max(maximum, score * in.args.scale);
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
          const bool kept = unit_interval(random_word(in.args.key_of_dropout, index)) >= c.dropout;
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
          const double dscore = weights[n] * (slope[n] - mean) * in.args.scale;
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
std::vector<double> values_of(const Tensor& x) {
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
  const Tensor log_sum_exp = Tensor::empty({c.batch, c.heads, c.queries}, dtype_of<T>);
  cpu_backend().attention.forward(in.args, out, log_sum_exp);
  cpu_backend().attention.backward(in.args, out, log_sum_exp, in.grad, {}, dquery, dkey, dvalue);
  const std::vector<T> lse = log_sum_exp.to_vector<T>();
  return {values_of<T>(out),
          {lse.begin(), lse.end()},
          values_of<T>(dquery),
          values_of<T>(dkey),
          values_of<T>(dvalue)};
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
}

/// The last b + 1 keys of batch entry b are padding.
Tensor padded_ends(const Case& c) {
  std::vector<std::int32_t> mask;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t j = 0; j < c.keys; ++j) mask.push_back(j < c.keys - 1 - b);
  }
  return Tensor::from(mask, {c.batch, c.keys});
}

/// Every third key is padding, and batch entry 1 has no real key at all.
Tensor scattered_padding(const Case& c) {
  std::vector<std::int32_t> mask;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t j = 0; j < c.keys; ++j) mask.push_back(b != 1 && j % 3 != 0);
  }
  return Tensor::from(mask, {c.batch, c.keys});
}

/// [1, 1, N, M] expanded; query 2 sees nothing.
Tensor shared_mask(const Case& c) {
  std::vector<std::int32_t> mask;
  for (std::int64_t i = 0; i < c.queries; ++i) {
    for (std::int64_t j = 0; j < c.keys; ++j) mask.push_back(i != 2 && (i * 7 + j * 5) % 4 != 0);
  }
  return Tensor::from(mask, {c.queries, c.keys})
      .view({c.batch, c.heads, c.queries, c.keys}, {0, 0, c.keys, 1}, 0);
}

/// [1, H, N, 1] expanded: whole rows are masked, the last stride is 0.
Tensor row_mask(const Case& c) {
  std::vector<std::int32_t> mask;
  for (std::int64_t h = 0; h < c.heads; ++h) {
    for (std::int64_t i = 0; i < c.queries; ++i) mask.push_back((h + i) % 2);
  }
  return Tensor::from(mask, {c.heads, c.queries})
      .view({c.batch, c.heads, c.queries, c.keys}, {0, c.queries, 1, 0}, 0);
}

/// A random pattern: absent, full and partial blocks; head 0 and band 1 see nothing.
BlockPattern random_pattern(const Case& c, std::int64_t block, std::int64_t heads) {
  BlockPattern p{.block = block,
                 .queries = c.queries,
                 .keys = c.keys,
                 .heads = heads,
                 .offsets = {},
                 .columns = {},
                 .mask_ids = {},
                 .masks = {}};
  const std::int64_t rows = (c.queries + block - 1) / block, columns = (c.keys + block - 1) / block;
  std::vector<std::int32_t> offsets{0}, column, id, masks;
  std::uint64_t n = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::uint32_t kind = random_word({3, 0, 0}, n++) % 4;
        if (kind == 0 || (h == 0 && r == 1)) continue;
        column.push_back(static_cast<std::int32_t>(k));
        id.push_back(kind == 1 ? -1 : static_cast<std::int32_t>(kind - 2));
      }
      offsets.push_back(static_cast<std::int32_t>(column.size()));
    }
  }
  for (std::uint64_t i = 0; i < 2 * static_cast<std::uint64_t>(block * block); ++i) {
    masks.push_back(static_cast<std::int32_t>(random_word({4, 0, 0}, i) & 1));
  }
  p.offsets = Tensor::from(offsets, {static_cast<std::int64_t>(offsets.size())});
  p.columns = Tensor::from(column, {static_cast<std::int64_t>(column.size())});
  p.mask_ids = Tensor::from(id, {static_cast<std::int64_t>(id.size())});
  p.masks = Tensor::from(masks, {2, block, block});
  return p;
}

std::function<BlockPattern(const Case&)> pattern_of(std::int64_t block, bool per_head) {
  return [=](const Case& c) { return random_pattern(c, block, per_head ? c.heads : 1); };
}

std::vector<Case> cases() {
  return {
      {.name = "plain"},
      {.name = "one of each",
       .batch = 1,
       .heads = 1,
       .queries = 1,
       .keys = 1,
       .key_width = 1,
       .value_width = 1},
      {.name = "heads inside",
       .queries = 24,
       .keys = 24,
       .key_width = 16,
       .value_width = 16,
       .heads_inside = true},
      {.name = "one query", .queries = 1, .keys = 37, .heads_inside = true},
      {.name = "more keys", .queries = 5, .keys = 19},
      {.name = "causal", .queries = 33, .keys = 33, .causal = true},
      {.name = "causal, more keys", .queries = 9, .keys = 21, .causal = true},
      {.name = "causal, two queries: one entry is missing", .queries = 2, .keys = 2, .causal = true},
      {.name = "causal, more queries: the first see nothing", .queries = 21, .keys = 9, .causal = true},
      {.name = "causal, one query", .queries = 1, .keys = 21, .causal = true},
      {.name = "padded ends", .queries = 17, .keys = 17, .key_mask = padded_ends},
      {.name = "scattered padding", .queries = 17, .keys = 20, .key_mask = scattered_padding},
      {.name = "scattered padding, causal",
       .queries = 17,
       .keys = 17,
       .causal = true,
       .key_mask = scattered_padding},
      {.name = "mask", .queries = 18, .keys = 35, .mask = shared_mask},
      {.name = "mask of rows", .queries = 18, .keys = 35, .mask = row_mask},
      {.name = "mask, padding, causal",
       .queries = 18,
       .keys = 18,
       .causal = true,
       .dropout = 0.25,
       .key_mask = scattered_padding,
       .mask = shared_mask},
      {.name = "dropout", .queries = 19, .keys = 23, .dropout = 0.3},
      {.name = "dropout, causal",
       .queries = 40,
       .keys = 40,
       .causal = true,
       .dropout = 0.1,
       .heads_inside = true},
      {.name = "dropout of nearly all", .queries = 6, .keys = 70, .dropout = 0.97},
      {.name = "pattern", .queries = 30, .keys = 30, .pattern = pattern_of(8, false)},
      {.name = "pattern per head",
       .queries = 30,
       .keys = 45,
       .heads_inside = true,
       .pattern = pattern_of(7, true)},
      {.name = "pattern, causal, padding, mask, dropout",
       .queries = 29,
       .keys = 29,
       .causal = true,
       .dropout = 0.2,
       .key_mask = padded_ends,
       .mask = shared_mask,
       .pattern = pattern_of(4, true)},
      {.name = "pattern of large blocks",
       .batch = 1,
       .heads = 2,
       .queries = 300,
       .keys = 700,
       .pattern = pattern_of(190, true)},
      {.name = "pattern, many blocks per tile",
       .batch = 1,
       .heads = 2,
       .queries = 40,
       .keys = 900,
       .dropout = 0.1,
       .pattern = pattern_of(16, true)},
      {.name = "many tiles",
       .batch = 1,
       .heads = 2,
       .queries = 270,
       .keys = 1100,
       .dropout = 0.1,
       .key_mask = scattered_padding},
      {.name = "many tiles, causal", .batch = 1, .heads = 2, .queries = 600, .keys = 600, .causal = true},
      {.name = "few heads, cut along keys",
       .batch = 1,
       .heads = 1,
       .queries = 250,
       .keys = 1100,
       .dropout = 0.1,
       .mask = shared_mask},
      {.name = "few heads, cut along keys, causal, pattern",
       .batch = 1,
       .heads = 1,
       .queries = 400,
       .keys = 1300,
       .causal = true,
       .dropout = 0.1,
       .pattern = pattern_of(100, false)},
  };
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
    const Tensor log_sum_exp = Tensor::empty({c.batch, c.heads, c.queries}, DType::f64);
    const auto loss = [&] {
      cpu_backend().attention.forward(in.args, out, log_sum_exp);
      const std::vector<double> y = values_of<double>(out), g = values_of<double>(in.grad);
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
      const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
        return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
      };
      CHECK(same(one.out, more.out));
      CHECK(same(one.log_sum_exp, more.log_sum_exp));
      CHECK(same(one.dquery, more.dquery));
      CHECK(same(one.dkey, more.dkey));
      CHECK(same(one.dvalue, more.dvalue));
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
