// Attention's gradients where logits are large: backward has to see the very scores of forward.

#include "heed/tests/attention_large_logits.h"

#include "heed/core/backend.h"
#include "heed/core/low_precision.h"
#include "heed/tests/kernel_check.h"

using namespace heed::test::attention_cases;

namespace {

constexpr double largest_logits[] = {1, 3e3, 2e6, 3e10, 1e30};

Tensor panels(const Case& c, std::int64_t rows, std::int64_t width, DType dtype) {
  return random_panels(c, 9, rows, width, dtype);
}

/// The weights [B, H, N, M] that forward multiplies the values by.
template <class T>
Doubles weights_of(Case c, const Inputs& in) {
  c.value_width = c.keys;
  AttentionArgs args = in.args;
  args.value = panels(c, c.keys, c.keys, dtype_of<T>);
  change_panels<T>(args.value, [](double, const std::int64_t* at) { return at[2] == at[3] ? 1.0 : 0.0; });
  const Tensor out = panels(c, c.queries, c.keys, dtype_of<T>);
  cpu_backend.attention.forward(args, out, Tensor::empty({c.batch, c.heads, c.queries, 2}, dtype_of<T>));
  return out.to_doubles();
}

/// A case whose values are as wide as it has queries, so that the gradients of the values are the weights
/// themselves.
template <class T>
void check_weights(Case c, double largest) {
  CAPTURE_ALL(c.name, c.queries, c.keys, largest, dtype_of<T>);
  c.value_width = std::max<std::int64_t>(c.queries, 1);
  Inputs in;
  make_large_inputs<T>(c, largest, in);
  const Doubles dvalue = cpu_results<T>(c, in)[3];
  const double ulp = std::numeric_limits<T>::epsilon();
  if (c.dropout == 0) CHECK(row_sum_error(c, in, dvalue) <= (c.keys <= 130 ? 4 : 16) * ulp);
  const Doubles weights = weights_of<T>(c, in);
  double worst = 0;
  for (std::int64_t head = 0; head < c.batch * c.heads; ++head)
    for (std::int64_t i = 0; i < c.queries; ++i)
      for (std::int64_t j = 0; j < c.keys; ++j) {
        const double forward = weights[static_cast<std::size_t>((head * c.queries + i) * c.keys + j)],
                     backward = dvalue[static_cast<std::size_t>((head * c.keys + j) * c.queries + i)];
        const double error = std::abs(forward - backward);
        if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
      }
  CHECK(worst <= 8 * ulp / (1 - c.dropout));
}

}  // namespace

TEST_CASE("attention at large logits: the weights of backward are those of forward, and sum up to 1") {
  for (const Case& c : cases()) {
    const bool large = c.queries * c.keys >= 40000;
    for (const double largest : largest_logits) {
      if (large && largest != 2e6) continue;
      check_weights<float>(c, largest);
      check_weights<double>(c, largest);
    }
  }
}

TEST_CASE("attention at large logits: all sizes from 1 to 130") {
  for (std::int64_t n = 1; n <= 130; ++n) {
    Case c{.name = "size", .batch = 1, .heads = 2, .queries = n, .keys = n, .key_width = 4};
    for (const double largest : largest_logits) {
      check_weights<float>(c, largest);
      check_weights<double>(c, largest);
    }
    c.key_width = 1 + n % 70;
    c.keys = 131 - n;
    c.causal = c.heads_inside = n % 2 == 0;
    check_weights<float>(c, 1e10);
    check_weights<double>(c, 1e30);
  }
}

TEST_CASE("attention at large logits: products in bf16") {
  const WithMatmulPrecision rounded(MatmulPrecision::medium);
  for (const std::int64_t n : {1, 5, 7, 33, 64, 100}) {
    CAPTURE(n);
    Case c{.name = "bf16", .batch = 1, .heads = 2, .queries = n, .keys = n, .value_width = n};
    Inputs in;
    make_large_inputs<float>(c, 1e10, in);
    CHECK(row_sum_error(c, in, cpu_results<float>(c, in)[3]) <= 0x1p-8);
  }
}

TEST_CASE("attention at large logits: values and gradients agree with f64 out of single ops") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    for (const double largest : {1.0, 0x1p21, 0x1p100}) {
      CAPTURE(largest);
      Inputs in, wide;
      make_exact_inputs<float>(c, largest, in);
      check_composed(c, in, cpu_results<float>(c, in), 2e-5);
      make_exact_inputs<double>(c, largest, wide);
      check_composed(c, wide, cpu_results<double>(c, wide), 1e-12);
    }
  }
}
