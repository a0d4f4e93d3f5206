// The attention kernels of the CPU backend against single ops in f64.

#include "heed/tests/attention_large_logits.h"

using namespace heed::test::attention_cases;

namespace {

using Lists = std::vector<Doubles>;

bool same_bits(const Doubles& a, const Doubles& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

template <class T>
void check_case(const Case& c, const Inputs& in) {
  CAPTURE(c.name);
  check_composed(c, in, cpu_results<T>(c, in), sizeof(T) == 4 ? 2e-5 : 1e-12);
}

}  // namespace

TEST_CASE_TEMPLATE("attention: kernels agree with single ops in f64", T, float, double) {
  for (const Case& c : cases()) {
    Inputs in;
    make_inputs(c, dtype_of<T>, in);
    check_case<T>(c, in);
  }
  for (const Case& c : {Case{.name = "no queries", .queries = 0, .keys = 4},
                        Case{.name = "no keys", .queries = 4, .keys = 0}}) {
    Inputs in;
    make_inputs(c, dtype_of<T>, in);
    check_case<T>(c, in);
  }
}

TEST_CASE("attention: the same bits for any number of threads") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    Lists one;
    for (int threads : {1, 2, 3, 8}) {
      CAPTURE(threads);
      const WithThreads scope(threads);
      const Lists found = cpu_results<float>(c, in);
      if (threads == 1) one = found;
      for (std::size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], found[i]));
    }
  }
}

TEST_CASE("attention: gradients that nobody wants change no bit of the others") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    const Lists whole = cpu_results<float>(c, in);
    const Tensor out = random_panels(c, 9, c.queries, c.value_width, DType::f32),
                 sums = Tensor::empty({c.batch, c.heads, c.queries, 2});
    cpu_backend.attention.forward(in.args, out, sums);
    for (const bool with_bias : {false, true}) {
      const Tensor dvalue = random_panels(c, 9, c.keys, c.value_width, DType::f32);
      const Tensor dbias = c.bias && with_bias ? Tensor::empty(in.args.bias.shape()) : Tensor();
      cpu_backend.attention.backward(in.args, out, sums, in.grad, {}, {}, {}, dvalue, dbias);
      CHECK(same_bits(dvalue.to_doubles(), whole[3]));
      if (dbias.defined()) CHECK(same_bits(dbias.to_doubles(), whole[4]));
    }
  }
}

TEST_CASE("attention: padding may hold anything finite, keys beyond the last real one anything at all") {
  const Case c{.name = "padding", .batch = 1, .queries = 6, .keys = 9, .key_mask = padded_ends};
  Inputs in;
  make_inputs(c, DType::f32, in);
  const Lists clean = cpu_results<float>(c, in);
  for (std::int64_t h = 0; h < c.heads; ++h) {
    in.args.key.data<float>()[h * in.args.key.stride(1) + 8 * in.args.key.stride(2)] =
        std::numeric_limits<float>::quiet_NaN();
  }
  const Lists dirty = cpu_results<float>(c, in);
  CHECK(clean[0] == dirty[0]);
  CHECK(clean[2] == dirty[2]);
}

TEST_CASE("attention: NaN in a query reaches its output and no other") {
  const Case c{.name = "nan", .batch = 1, .heads = 1, .queries = 6, .keys = 9};
  Inputs in;
  make_inputs(c, DType::f32, in);
  in.args.query.data<float>()[2 * in.args.query.stride(2)] = std::numeric_limits<float>::quiet_NaN();
  const Doubles out = cpu_results<float>(c, in)[0];
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(std::isnan(out[i * static_cast<std::size_t>(c.value_width)]) == (i == 2));
}

TEST_CASE("attention: repeated query rows and keys shared by all heads") {
  const Case c{.name = "expanded", .queries = 6, .keys = 9};
  Inputs in;
  make_inputs(c, DType::f64, in);
  const std::int64_t d = c.key_width;
  in.args.query = in.args.query.view(in.args.query.shape(), {c.heads * 6 * d, 6 * d, 0, 1}, 0);
  in.args.key = in.args.key.view(in.args.key.shape(), {c.heads * 9 * d, 0, d, 1}, 0);
  check_case<double>(c, in);
}

TEST_CASE("attention: a bias whose rows lie apart, or are one row") {
  Case c{.name = "strided", .queries = 6, .keys = 9, .bias = some_bias, .bias_heads = 3};
  Inputs in;
  make_inputs(c, DType::f64, in);
  const Tensor memory =
      tensor_of(some_bias({.name = "memory", .queries = 10, .keys = 100}), {1000}, DType::f64);
  for (const Shape& strides : {Shape{0, 200, 11, 1}, Shape{0, 9, 0, 1}, Shape{0, 0, 13, 1}}) {
    in.args.bias = memory.view({1, 3, 6, 9}, strides, 7);
    check_case<double>(c, in);
  }
}

TEST_CASE("attention: a bias of zeros and slopes of zeros change no bit") {
  for (const Case& plain : plain_cases()) {
    if (plain.queries * plain.keys > 2000) continue;
    CAPTURE(plain.name);
    Case biased = plain;
    biased.slopes = true;
    biased.bias = [](const Case& c) { return Doubles(static_cast<std::size_t>(c.queries * c.keys), 0.0); };
    Inputs without, with;
    make_inputs(plain, DType::f32, without);
    make_inputs(biased, DType::f32, with);
    std::fill_n(with.args.slopes.data<float>(), plain.heads, 0.0F);
    const Lists expected = cpu_results<float>(plain, without), found = cpu_results<float>(biased, with);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == expected[i]);  // 0 and -0 are equal
  }
}

TEST_CASE("attention: a block pattern that does not fit is refused") {
  const Case c{.name = "pattern", .queries = 30, .keys = 30, .pattern = pattern_of(8, false)};
  Inputs in;
  make_inputs(c, DType::f32, in);
  in.pattern.columns.data<std::int32_t>()[0] = 4;
  CHECK_THROWS_WITH_AS(cpu_results<float>(c, in),
                       "attention: block 0 of the pattern has column 4; there are 4", Error);
}
