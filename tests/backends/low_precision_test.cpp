// Numbers of 8 and 16 bits: in files, in products, as weights, and in a training loop.

#include <bit>

#include "heed/core/backend.h"
#include "heed/core/low_precision.h"
#include "heed/models/decoding.h"
#include "heed/models/language_model.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/tests/kernel_check.h"
#include "heed/tests/model_support.h"
#include "heed/text/safetensors.h"
#include "heed/training/checkpoint.h"
#include "heed/training/precision.h"

TEST_CASE("half: every number of 16 bits comes back as it was") {
  std::size_t wrong = 0, numbers = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float f16 = f16_to_float(half), bf16 = bf16_to_float(half);
    numbers += std::isnan(f16) ? 0 : 1;
    wrong += std::isnan(f16) ? !std::isnan(f16_to_float(float_to_f16(f16))) : float_to_f16(f16) != half;
    wrong += std::isnan(bf16) ? !std::isnan(bf16_to_float(float_to_bf16(bf16))) : float_to_bf16(bf16) != half;
  }
  CHECK(wrong == 0);
  CHECK(numbers == 0x10000 - 2 * 1023);
}

TEST_CASE("half: other numbers are rounded to the nearest, ties to even") {
  const auto as_f16 = [](float value) { return f16_to_float(float_to_f16(value)); };
  const auto as_bf16 = [](float value) { return bf16_to_float(float_to_bf16(value)); };
  CHECK(as_f16(1 + 0x1p-11F) == 1);
  CHECK(as_f16(1 + 0x1.8p-10F) == 1 + 0x1p-9F);
  CHECK(as_f16(1 + 0x1.004p-11F) == 1 + 0x1p-10F);
  CHECK(as_f16(65504) == 65504);
  CHECK(as_f16(65519) == 65504);
  CHECK(as_f16(65520) == std::numeric_limits<float>::infinity());
  CHECK(as_f16(-0x1p-24F) == -0x1p-24F);
  CHECK(as_f16(0x1p-25F) == 0);
  CHECK(as_f16(0x1.8p-24F) == 0x1p-23F);
  CHECK(as_f16(0x1.ffep-15F) == 0x1p-14F);
  CHECK(as_bf16(1 + 0x1p-8F) == 1);
  CHECK(as_bf16(1 + 0x1.8p-7F) == 1 + 0x1p-6F);
  CHECK(as_bf16(std::numeric_limits<float>::max()) == std::numeric_limits<float>::infinity());
}

TEST_CASE("half: files round, and refuse what f16 has no room for") {
  const TensorFile file{{{"a", Tensor::from(Floats{0.1F, -70000}, {2})}}, {}};
  CHECK_ERROR(safetensors_text(file, StoredFloat::f16), "bf16 has room");
  const TensorFile read = parse_safetensors(safetensors_text(file, StoredFloat::bf16), "bytes");
  CHECK(read.tensors.at("a").to_vector<float>() == Floats{0x1.9ap-4F, -0x1.12p16F});
}

// --- Products in bf16 on the CPU: each against sums in f64 of the same rounded numbers, and what they
// must not change.

namespace {

/// To the nearest bf16, ties to even.
float rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

Tensor rounded(const Tensor& x) {
  Floats values = contiguous(x).to_vector<float>();
  for (float& value : values) value = rounded(value);
  return Tensor::from(values, x.shape());
}

Tensor in_bf16(const Tensor& a, const Tensor& b, MatmulPrecision precision = MatmulPrecision::medium) {
  const WithMatmulPrecision products(precision);
  return matmul(a, b);
}

/// The largest difference of a product from the exact one of the same numbers, over what rounding sums of k
/// terms to f32 allows.
double worst(const Tensor& a, const Tensor& b, const Tensor& found) {
  const Tensor exact = matmul(a.to(DType::f64), b.to(DType::f64));
  return test::worst_difference(found.to(DType::f64), exact) /
         (1e-6 * std::sqrt(static_cast<double>(a.size(-1)) + 1) + 1e-30);
}

}  // namespace

TEST_CASE("bf16 products: every shape and layout against f64") {
  std::uint32_t stream = 0;
  for (const std::int64_t m : {1, 2, 7, 14, 15, 31, 70, 260})
    for (const std::int64_t n : {1, 2, 16, 17, 33, 96})
      for (const std::int64_t k : {1, 2, 3, 16, 31, 32, 65, 257, 511, 514, 1030}) {
        CAPTURE_ALL(m, n, k);
        const Tensor a = rounded(random_floats({m, k}, ++stream)),
                     b = rounded(random_floats({k, n}, ++stream));
        const Tensor a_turned = transpose(contiguous(transpose(a, 0, 1)), 0, 1),
                     b_turned = transpose(contiguous(transpose(b, 0, 1)), 0, 1);
        CHECK(worst(a, b, in_bf16(a, b)) < 1);
        CHECK(worst(a, b, in_bf16(a, b_turned)) < 1);
        CHECK(worst(a, b, in_bf16(a_turned, b)) < 1);
        CHECK(worst(a, b, in_bf16(a_turned, b_turned)) < 1);
      }
  const Tensor a = rounded(random_floats({3, 1, 40, 24}, 1)), b = rounded(random_floats({5, 24, 20}, 2));
  CHECK(worst(a, b, in_bf16(a, b)) < 1);
}

TEST_CASE("bf16 products: operands are rounded to the nearest even, and nothing else is") {
  const Tensor a = random_floats({64, 48}, 1), b = random_floats({48, 40}, 2);
  const Floats found = in_bf16(a, b).to_vector<float>();
  CHECK((found != matmul(a, b).to_vector<float>()) == is_fast(MatmulPrecision::medium));
  if (!is_fast(MatmulPrecision::medium)) return;
  CHECK(found == in_bf16(rounded(a), rounded(b)).to_vector<float>());
  // One column each of 1 + 2^-8, which is a tie, 1 + 3 * 2^-8, too, and of numbers at the ends of the range.
  const float infinity = std::numeric_limits<float>::infinity();
  const Floats row{1 + 0x1p-8F, 1 + 3 * 0x1p-8F,  1 + 0x1.1p-8F,
                   0x1p-126F,   0x1.fffffcp-128F, infinity,
                   -infinity,   std::nanf(""),    std::numeric_limits<float>::max(),
                   -1e-30F};
  const auto count = static_cast<std::int64_t>(row.size());
  const Tensor column = Tensor::from(Floats(16, 1), {16, 1});
  const Floats ends = in_bf16(column, Tensor::from(row, {1, count})).to_vector<float>();
  const Floats expected{1,        1 + 0x1p-6F, 1 + 0x1p-7F, 0x1p-126F, 0,
                        infinity, -infinity,   0,           infinity,  rounded(-1e-30F)};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    if (i == 7)
      CHECK(std::isnan(ends[i]));
    else
      CHECK(ends[i] == expected[i]);
  }
}

TEST_CASE("bf16 products: the same bits for any number of threads, for this thread's f32 alone") {
  const Tensor a = random_floats({300, 520}, 1), b = random_floats({520, 200}, 2), exact = matmul(a, b);
  const Floats first = in_bf16(a, b).to_vector<float>(),
               high = in_bf16(a, b, MatmulPrecision::high).to_vector<float>();
  for (const int threads : {1, 2, 5}) {
    const WithThreads scope(threads);
    CHECK(in_bf16(a, b).to_vector<float>() == first);
    CHECK(in_bf16(a, b, MatmulPrecision::high).to_vector<float>() == high);
    CHECK(matmul(a, b).to_vector<float>() == exact.to_vector<float>());  // no worker keeps it
  }
  const WithMatmulPrecision products(MatmulPrecision::medium);
  std::thread([&] { CHECK(matmul(a, b).to_vector<float>() == exact.to_vector<float>()); }).join();
  {
    const WithMatmulPrecision exactly(MatmulPrecision::highest);
    CHECK(matmul(a, b).to_vector<float>() == exact.to_vector<float>());
  }
  CHECK(matmul(a, b).to_vector<float>() == first);
  const Tensor a64 = a.to(DType::f64), b64 = b.to(DType::f64);
  CHECK(test::worst_difference(matmul(a64, b64), exact.to(DType::f64)) < 1e-4);
  CHECK((test::worst_difference(matmul(a64, b64).to(DType::f32), matmul(a, b)) > 1e-4) ==
        is_fast(MatmulPrecision::medium));
}

TEST_CASE("bf16 products: attention and linear maps, forward and backward, beside f32") {
  const auto compute = [&](bool rounds, bool fused) {
    const WithMatmulPrecision products(rounds ? MatmulPrecision::medium : MatmulPrecision::highest);
    std::optional<ComposeOnly> composed;
    if (!fused) composed.emplace();
    const Tensor x = parameter(random_floats({2, 40, 32}, 1)), weight = parameter(random_floats({32, 32}, 2));
    const Tensor heads = transpose(reshape(linear(x, weight), {2, 40, 2, 16}), 1, 2);
    const Tensor found = attention(heads, heads, heads);
    backward(sum(found * random_floats({2, 2, 40, 16}, 3)));
    return std::vector<Tensor>{found.detach(), gradient(x), gradient(weight)};
  };
  const std::vector<Tensor> exact = compute(false, true), fused = compute(true, true),
                            composed = compute(true, false);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    const double size = max(abs(exact[i])).item();
    CHECK(test::worst_difference(fused[i], exact[i]) < 0.02 * size);
    CHECK((test::worst_difference(fused[i], exact[i]) > 1e-5 * size) == is_fast(MatmulPrecision::medium));
    CHECK(test::worst_difference(fused[i], composed[i]) < 0.02 * size);
  }
}

TEST_CASE("bf16 products: the gradients of few queries are as near the exact ones as those of many") {
  // Large scores: weights that backward computes from other scores than forward would not add up to 1.
  const auto error_of = [](std::int64_t queries) {
    const auto gradients = [&](bool rounds) {
      const WithMatmulPrecision products(rounds ? MatmulPrecision::medium : MatmulPrecision::highest);
      const Tensor query = parameter(random_floats({1, 1, queries, 64}, 1) * 4),
                   key = parameter(random_floats({1, 1, 200, 64}, 2) * 4),
                   value = random_floats({1, 1, 200, 64}, 3);
      backward(sum(attention(query, key, value) * random_floats({1, 1, queries, 64}, 4)));
      return std::vector<Tensor>{gradient(query), gradient(key)};
    };
    const std::vector<Tensor> exact = gradients(false), rounded = gradients(true);
    double worst = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const Tensor off = rounded[i] - exact[i];
      worst = std::max(worst, std::sqrt(sum(off * off).item() / sum(exact[i] * exact[i]).item()));
    }
    return worst;
  };
  const double of_many = error_of(16);
  for (const std::int64_t queries : {1, 3, 8}) {
    CAPTURE(queries);
    CHECK(error_of(queries) <= 2 * of_many);
  }
}

TEST_CASE(
    "bf16 products: Autocast on the CPU has tensors of f32, and gradients near the exact ones that add up") {
  Initialiser initialiser(3);
  Linear layer(24, 18, true, initialiser);
  const auto loss = [&] { return mean(square(layer(random_floats({20, 24}, 1)) - 1)); };
  backward(loss());
  const Tensor exact = gradient(layer.weight) * 1.0;
  zero_gradient(layer.weight);
  Autocast autocast(layer, Precision::bf16);
  CHECK(autocast.dtype() == DType::f32);
  autocast.backward(loss);
  CHECK_FALSE(WithMatmulPrecision::is_lower());
  const Tensor once = gradient(layer.weight) * 1.0;
  CHECK(test::worst_difference(once, exact) < 1e-2);
  CHECK((test::worst_difference(once, exact) > 1e-7) == is_fast(MatmulPrecision::medium));
  autocast.backward(loss);
  CHECK(test::worst_difference(gradient(layer.weight), once * 2) < 1e-6);
}

TEST_CASE("precisions of products: each where it is faster than f32, and a remark where it is not") {
  CHECK(is_fast(MatmulPrecision::highest));
  CHECK(matmul_instructions(MatmulPrecision::highest).empty());
  CHECK_FALSE(WithMatmulPrecision::is_lower());
  for (const Precision precision : {Precision::f32, Precision::high, Precision::medium, Precision::bf16}) {
    const MatmulPrecision products = matmul_precision_in(precision);
    CAPTURE(name_of(precision));
    CHECK(precision_remark(precision, Device{}).empty() == is_fast(products));
    CHECK(contains(platform_name(Device{}, precision), matmul_instructions(products)));
    const WithMatmulPrecision scope(products);
    CHECK((WithMatmulPrecision::active() == products) == is_fast(products));
  }
}

// --- Narrow weights, in 8 bits or bf16: what rounding does to them, and that few rows and many compute
// with the same numbers.

TEST_CASE("int8 rows: each row is rounded to 127 steps of its largest element") {
  const Tensor x = Tensor::from<float>({{127, 1.4F, -126.6F, 2.5F}, {0, 0, 0, 0}, {-1e-3F, 5e-4F, 0, 1e-3F}});
  round_to_int8(x);
  const NarrowRows* rows = NarrowRows::kept(*x.storage());
  REQUIRE(rows);
  CHECK(rows->columns == 4);
  CHECK(rows->scales == Floats{1, 0, 1e-3F / 127});
  const std::vector<std::int8_t> values{127, 1, -127, 2, 0, 0, 0, 0, -127, 64, 0, 127};
  CHECK(std::vector<std::int8_t>(rows->values<std::int8_t>(), rows->values<std::int8_t>() + 12) == values);
  const Floats found = x.to_vector<float>();
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == static_cast<float>(values[i]) * rows->scales[i / 4]);
  // What is rounded stays.
  round_to_int8(x);
  CHECK(x.to_vector<float>() == found);
  x.assign<float>(found);
  CHECK(NarrowRows::kept(*x.storage()) == nullptr);  // it was overwritten
}

TEST_CASE("bf16 rows: each element is rounded to the nearest number of 8 bits, ties to even") {
  const float largest = std::numeric_limits<float>::max(), step = 0x1p-7F;
  const Tensor x = Tensor::from<float>(
      {{1, 1 + 0.75F * step, 1 + 0.5F * step, 1 + 1.5F * step}, {-3, -0.0F, 0x1p-140F, -largest}});
  round_to_bf16(x);
  CHECK(x.to_vector<float>() == Floats{1, 1 + step, 1, 1 + 2 * step, -3, 0, 0, -0x1.FEp127F});
}

/// Rounds to int8 or to bf16.
using Round = void (*)(const Tensor&);

TEST_CASE("narrow rows: linear maps of few rows give what the rounded weights give") {
  for (const Round round : {Round(round_to_int8), Round(round_to_bf16)})
    for (const std::int64_t rows : {1, 2, 5, 6, 7})
      for (const Shape& sizes :
           {Shape{1, 7}, Shape{16, 16}, Shape{33, 8}, Shape{100, 300}, Shape{768, 600}, Shape{5000, 40}}) {
        const std::int64_t in = sizes[0], out = sizes[1];
        CAPTURE_ALL(rows, in, out);
        const Tensor x = random_floats({rows, in}, 1), bias = random_floats({out}, 2),
                     weight = random_floats({out, in}, 3);
        const Floats exact = linear(x, weight, bias).to_vector<float>();
        round(weight);
        REQUIRE(NarrowRows::kept(*weight.storage()));
        const Tensor expected =
            linear(x.to(DType::f64), Tensor::from(weight.to_vector<float>(), weight.shape()).to(DType::f64),
                   bias.to(DType::f64));
        Floats first;
        for (const int threads : {1, 3}) {
          const WithThreads scope(threads);
          const Tensor found = linear(x, weight, bias);
          CHECK(test::worst_difference(found.to(DType::f64), expected) <
                2e-6 * std::sqrt(static_cast<double>(in)) + 1e-6);
          if (first.empty()) first = found.to_vector<float>();
          CHECK(found.to_vector<float>() == first);
        }
        if (in > 1) CHECK(first != exact);
        for (std::int64_t r = 0; r < rows && rows <= 6 && in > 1 && in < 5000;
             ++r) {  // alone it has the same bits
          const Floats alone = linear(slice(x, 0, r, r + 1), weight, bias).to_vector<float>();
          CHECK(std::equal(alone.begin(), alone.end(), first.begin() + r * out));
        }
        // A part of the rows, as a view.
        if (out < 16) continue;
        const Tensor part = weight.view({out - 9, in}, {in, 1}, 5 * in);
        const Floats of_part = linear(x, part).to_vector<float>(),
                     whole = linear(x, weight).to_vector<float>();
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t j = 0; j < out - 9; ++j)
            CHECK(of_part[static_cast<std::size_t>(r * (out - 9) + j)] ==
                  doctest::Approx(whole[static_cast<std::size_t>(r * out + j + 5)]).epsilon(1e-4));
      }
}

TEST_CASE("narrow rows: a model that writes token by token agrees with itself reading the whole text") {
  for (const bool int8 : {true, false}) {
    TransformerConfig config = test::tiny_config();
    config.width = 32;
    config.feed_forward = 64;
    LanguageModel model(config);
    const NoGrad no_grad;
    int8 ? model.round_to_int8() : model.round_to_bf16();
    for (const NamedTensor& named : model.parameters())
      CHECK((NarrowRows::kept(*named.tensor->storage()) != nullptr) == (named.tensor->rank() == 2));
    const Ints text{3, 7, 1, 9, 4, 2, 8, 5};
    // A step is given the last token of the prompt again: all others are read at once.
    LanguageModelSteps whole(model, text, 1, 12), steps(model, Ints{text[0]}, 1, 12);
    Tensor last;
    for (const std::int32_t token : text) last = steps.step(Tensor::from({token}, {1}));
    CHECK(test::worst_difference(last, whole.step(Tensor::from({text.back()}, {1}))) < 1e-4);
  }
}

TEST_CASE("int8 rows: a view of other rows than the matrix' own is computed in f32") {
  const Tensor weight = random_floats({6, 8}, 1), x = random_floats({1, 8}, 2);
  round_to_int8(weight);
  const Tensor copy = weight + 0;
  // Rows of the same length that begin within those of the matrix.
  const auto shifted = [](const Tensor& w) { return reshape(slice(reshape(w, {48}), 0, 4, 44), {5, 8}); };
  CHECK(test::worst_difference(linear(x, shifted(weight)), linear(x, shifted(copy))) < 1e-6);
  // Pieces of rows, and every second row.
  const Tensor part = slice(x, 1, 0, 5);
  CHECK(test::worst_difference(linear(part, slice(weight, 1, 2, 7)), linear(part, slice(copy, 1, 2, 7))) <
        1e-6);
  const auto second = [](const Tensor& w) { return w.view({3, 8}, {16, 1}, 8); };
  CHECK(test::worst_difference(linear(x, second(weight)), linear(x, second(copy))) < 1e-6);
}

TEST_CASE("int8 rows: the largest numbers there are stay finite") {
  const float largest = std::numeric_limits<float>::max();
  const Tensor x = Tensor::from<float>({{largest, -largest, 1}});
  round_to_int8(x);
  for (const double value : x.to_doubles()) CHECK(std::isfinite(value));
}

TEST_CASE("int8 rows: what cannot be rounded is an error") {
  const Tensor x = random_floats({4, 6}, 1);
  CHECK_ERROR(round_to_int8(transpose(x, 0, 1)), "contiguous");
  CHECK_ERROR(round_to_int8(x.to(DType::f64)), "f32");
  CHECK_ERROR(round_to_int8(x.view({2, 6}, {6, 1}, 12)), "whole");
  CHECK_ERROR(round_to_int8(slice(x, 0, 0, 2)), "whole");
  CHECK_ERROR(round_to_int8({}), "contiguous");
  x.data<float>()[7] = std::numeric_limits<float>::infinity();
  CHECK_ERROR(round_to_int8(x), "(1, 1) is inf");
  CHECK(max(abs(slice(x, 0, 0, 1) - slice(random_floats({4, 6}, 1), 0, 0, 1))).item() == 0);  // as it was
  LanguageModel model(test::tiny_config());
  model.to(DType::f64, {});
  CHECK_ERROR(model.round_to_int8(), "f64");
  CHECK_ERROR(model.round_to_bf16(), "weights in bf16");
}

// --- Mixed precision in loops of one's own, on the CPU: in f32 it changes nothing, and what cannot be is
// refused.

namespace {

Tensor inputs() {
  return uniform({6, 4}, -1, 1, {1, 0, 0});
}
Tensor loss_of(const Linear& layer) {
  return mean(square(layer(inputs()) - 1));
}

}  // namespace

TEST_CASE("autocast: in f32 a loop gets the same bits as without") {
  Initialiser one(3), other(3);
  Linear plain(4, 2, true, one), cast(4, 2, true, other);
  Optimizer plain_adam(plain.parameters(), {}), cast_adam(cast.parameters(), {});
  Autocast autocast(cast, Precision::f32);
  CHECK(autocast.dtype() == DType::f32);
  CHECK(autocast.loss_scale() == nullptr);
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = loss_of(plain);
    backward(loss);
    plain_adam.clip(0.5);
    plain_adam.step(0.1);
    plain_adam.zero_gradients();
    CHECK(autocast.backward([&] { return loss_of(cast); }).item() == loss.item());
    cast_adam.clip(0.5);
    autocast.step(cast_adam, 0.1);
  }
  CHECK(cast.weight.to_vector<float>() == plain.weight.to_vector<float>());
  CHECK(cast.bias.to_vector<float>() == plain.bias.to_vector<float>());
  CHECK_FALSE(gradient(cast.weight).defined());
}

TEST_CASE("autocast: impossible requests are errors, and the model stays as it was") {
  Initialiser initialiser(3);
  Linear layer(4, 2, true, initialiser);
  Optimizer adam(layer.parameters(), {});
  CHECK_ERROR(Autocast(layer, Precision::f16), "needs a Vulkan device");
  Autocast autocast(layer, Precision::f32);
  CHECK_ERROR(autocast.loss_scale_state(), "only f16 has a loss scale");
  CHECK_ERROR(autocast.backward([&] { return layer(inputs()); }), "[6, 2]");
  CHECK_ERROR(autocast.backward([] { return Tensor(); }), "there is none");
  CHECK_ERROR(autocast.backward([&] { return autocast.backward([&] { return loss_of(layer); }); }),
              "within backward()");
  CHECK_ERROR(autocast.backward([&] {
    autocast.step(adam, 0.1);
    return loss_of(layer);
  }),
              "within backward()");
  CHECK_FALSE(gradient(layer.weight).defined());
  CHECK_ERROR(autocast.step(adam, 0.1), "no parameter has a gradient");
  autocast.backward([&] { return loss_of(layer); });
  CHECK(gradient(layer.weight).defined());
}
