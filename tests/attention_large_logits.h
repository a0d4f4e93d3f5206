#pragma once

#include "heed/tests/attention_cases.h"
#include "heed/tests/kernel_check.h"

// Attention whose logits are so large that one bit of a score changes the weight: checks for any
// backend.

namespace heed::test::attention_cases {

/// Replaces the elements: x[b, h, i, j] = value(x[b, h, i, j], b, h, i, j).
template <class T>
void change_panels(const Tensor& x, const std::function<double(double, std::int64_t[4])>& value) {
  std::int64_t at[4];
  for (at[0] = 0; at[0] < x.size(0); ++at[0])
    for (at[1] = 0; at[1] < x.size(1); ++at[1])
      for (at[2] = 0; at[2] < x.size(2); ++at[2])
        for (at[3] = 0; at[3] < x.size(3); ++at[3]) {
          std::int64_t place = 0;
          for (int axis = 0; axis < 4; ++axis) place += at[axis] * x.stride(axis);
          T& element = x.data<T>()[place];
          element = static_cast<T>(value(static_cast<double>(element), at));
        }
}

/// Makes inputs with logits of about `logits`; slopes and biases grow with them. Query i's gradient
/// is 1 in column i mod dv, so that the gradients of the values are the weights of the queries,
/// added up.
template <class T>
void make_large_inputs(const Case& c, double logits, Inputs& in) {
  make_inputs(c, dtype_of<T>, in);
  in.args.scale = logits;
  if (in.args.slopes.defined())
    for (std::int64_t h = 0; h < c.heads; ++h) in.args.slopes.data<T>()[h] *= static_cast<T>(logits);
  if (in.args.bias.defined())
    change_panels<T>(in.args.bias, [&](double x, const std::int64_t*) { return x * logits; });
  change_panels<T>(
      in.grad, [&](double, const std::int64_t* at) { return at[2] % c.value_width == at[3] ? 1.0 : 0.0; });
}

/// Makes inputs whose logits are exact in any order of additions, many of them equal.
template <class T>
void make_exact_inputs(const Case& c, double logits, Inputs& in) {
  make_inputs(c, dtype_of<T>, in);
  const auto whole = [](double x, const std::int64_t*) { return std::round(2 * x); };
  change_panels<T>(in.args.query, whole);
  change_panels<T>(in.args.key, whole);
  in.args.scale = logits;
  if (in.args.slopes.defined())
    for (std::int64_t h = 0; h < c.heads; ++h)
      in.args.slopes.data<T>()[h] = static_cast<T>(std::ldexp(logits, -static_cast<int>(h)));
  if (in.args.bias.defined())
    change_panels<T>(in.args.bias, [&](double x, const std::int64_t*) { return std::round(2 * x) * logits; });
}

/// Returns whether query i sees a key.
inline bool sees_any(const Case& c, const Inputs& in, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int32_t* row = in.allowed.data<std::int32_t>() + ((b * c.heads + h) * c.queries + i) * c.keys;
  return std::any_of(row, row + c.keys, [](std::int32_t x) { return x != 0; });
}

/// Returns the largest |sum - n| / n over the gradients of the values [B, H, M, dv] of
/// make_large_inputs(), where n queries that see a key share a column. Without dropout.
inline double row_sum_error(const Case& c, const Inputs& in, const Doubles& dvalue) {
  double worst = 0;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t e = 0; e < std::min(c.value_width, c.queries); ++e) {
        long double sum = 0;
        for (std::int64_t j = 0; j < c.keys; ++j)
          sum += dvalue[static_cast<std::size_t>(((b * c.heads + h) * c.keys + j) * c.value_width + e)];
        std::int64_t count = 0;
        for (std::int64_t i = e; i < c.queries; i += c.value_width) count += sees_any(c, in, b, h, i);
        const double error = static_cast<double>(std::abs(sum - static_cast<long double>(count))) /
                             static_cast<double>(std::max<std::int64_t>(count, 1));
        if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
      }
  return worst;
}

/// Computes out, dquery / scale, dkey / scale, dvalue, and dbias if there is a bias, in f64 from
/// single ops.
inline std::vector<Doubles> composed_results(const Case& c, const Inputs& in) {
  const auto wide = [](const Tensor& x) {
    return x.defined() ? Tensor::from(x.to_doubles(), x.shape()) : Tensor();
  };
  const Tensor query = parameter(wide(in.args.query)), key = parameter(wide(in.args.key)),
               value = parameter(wide(in.args.value));
  AttentionOptions options;
  options.scale = in.args.scale;
  options.causal = in.args.causal;
  options.key_mask = in.args.key_mask;
  options.mask = in.args.mask;
  if (in.args.pattern) options.pattern = std::make_shared<const BlockPattern>(in.pattern);
  options.slopes = wide(in.args.slopes);
  if (in.args.bias.defined()) options.bias = parameter(wide(in.args.bias));
  options.dropout = in.args.dropout;
  options.dropout_key = in.args.dropout_key;
  const ComposeOnly composed;
  const Tensor out = heed::attention(query, key, value, options);
  backward(sum(out * wide(in.grad)));
  std::vector<Doubles> all{out.to_doubles()};
  for (const Tensor* x : {&query, &key, &value}) all.push_back(gradient(*x).to_doubles());
  if (c.bias) all.push_back(gradient(options.bias).to_doubles());
  for (const std::size_t i : {1U, 2U})
    for (double& x : all[i]) x /= in.args.scale;
  return all;
}

/// Returns out, dquery, dkey, dvalue and dbias by the CPU's kernels, row by row, from outputs in the
/// layout of the case that were full of NaN.
template <class T>
std::vector<Doubles> cpu_results(const Case& c, const Inputs& in) {
  const auto output = [&](std::int64_t rows, std::int64_t width) {
    const Tensor x = random_panels(c, 9, rows, width, dtype_of<T>);
    cpu_backend.fill(not_a_number, x);
    return x;
  };
  const Tensor out = output(c.queries, in.args.value.size(3)), dquery = output(c.queries, c.key_width),
               dkey = output(c.keys, c.key_width), dvalue = output(c.keys, in.args.value.size(3));
  const Tensor sums = Tensor::empty({c.batch, c.heads, c.queries, 2}, dtype_of<T>);
  const Tensor dbias = c.bias ? Tensor::full(in.args.bias.shape(), not_a_number, dtype_of<T>) : Tensor();
  cpu_backend.attention.forward(in.args, out, sums);
  cpu_backend.attention.backward(in.args, out, sums, in.grad, {}, dquery, dkey, dvalue, dbias);
  std::vector<Doubles> all;
  for (const Tensor* x : {&out, &dquery, &dkey, &dvalue}) all.push_back(x->to_doubles());
  if (c.bias) all.push_back(dbias.to_doubles());
  return all;
}

/// Checks a kernel's out, dquery, dkey, dvalue and dbias against composed_results().
inline void check_composed(const Case& c, const Inputs& in, std::vector<Doubles> found, double tolerance) {
  const char* const names[] = {"out", "dquery", "dkey", "dvalue", "dbias"};
  const auto expected = composed_results(c, in);
  for (const std::size_t i : {1U, 2U})
    for (double& x : found[i]) x /= in.args.scale;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(names[i]);
    CHECK(worst_error(found[i], expected[i]) <= tolerance);
  }
}

}  // namespace heed::test::attention_cases
