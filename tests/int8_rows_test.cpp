// Weights in 8 bits: what rounding does to them, and that few rows and many compute with the same numbers.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/device.h"
#include "heed/core/low_precision.h"
#include "heed/models/decoding.h"
#include "heed/models/language_model.h"
#include "model_support.h"

using namespace heed;

namespace {
Tensor random(const Shape& shape, std::uint32_t stream) {
  return uniform(shape, -1, 1, {9, 0, stream});
}
}  // namespace

TEST_CASE("int8 rows: each row is rounded to 127 steps of its largest element") {
  const Tensor x = Tensor::from<float>({{127, 1.4F, -126.6F, 2.5F}, {0, 0, 0, 0}, {-1e-3F, 5e-4F, 0, 1e-3F}});
  round_to_int8(x);
  const Int8Rows* rows = x.storage()->int8_rows();
  REQUIRE(rows);
  CHECK(rows->columns == 4);
  CHECK(rows->scales == std::vector<float>{1, 0, 1e-3F / 127});
  const std::vector<std::int8_t> values{127, 1, -127, 2, 0, 0, 0, 0, -127, 64, 0, 127};
  CHECK(std::vector<std::int8_t>(rows->values(), rows->values() + 12) == values);
  const std::vector<float> found = x.to_vector<float>();
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == static_cast<float>(values[i]) * rows->scales[i / 4]);
  // What is rounded stays.
  round_to_int8(x);
  CHECK(x.to_vector<float>() == found);
  x.assign<float>(found);
  CHECK(x.storage()->int8_rows() == nullptr);  // it was overwritten
}

TEST_CASE("int8 rows: linear maps of few rows give what the rounded weights give") {
  const int before = cpu_threads();
  for (const std::int64_t rows : {1, 2, 5, 6, 7})
    for (const Shape& sizes :
         {Shape{1, 7}, Shape{16, 16}, Shape{33, 8}, Shape{100, 300}, Shape{768, 600}, Shape{5000, 40}}) {
      const std::int64_t in = sizes[0], out = sizes[1];
      CAPTURE(rows);
      CAPTURE(in);
      CAPTURE(out);
      const Tensor x = random({rows, in}, 1), bias = random({out}, 2), weight = random({out, in}, 3);
      const std::vector<float> exact = linear(x, weight, bias).to_vector<float>();
      round_to_int8(weight);
      const Tensor expected =
          linear(x.to(DType::f64), Tensor::from(weight.to_vector<float>(), weight.shape()).to(DType::f64),
                 bias.to(DType::f64));
      std::vector<float> first;
      for (const int threads : {1, 3}) {
        set_cpu_threads(threads);
        const Tensor found = linear(x, weight, bias);
        CHECK(test::worst_difference(found.to(DType::f64), expected) <
              2e-6 * std::sqrt(static_cast<double>(in)) + 1e-6);
        if (first.empty()) first = found.to_vector<float>();
        CHECK(found.to_vector<float>() == first);
      }
      if (in > 1) CHECK(first != exact);
      // A part of the rows, as a view.
      if (out < 16) continue;
      const Tensor part = weight.view({out - 9, in}, {in, 1}, 5 * in);
      const std::vector<float> of_part = linear(x, part).to_vector<float>(),
                               whole = linear(x, weight).to_vector<float>();
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < out - 9; ++j)
          CHECK(of_part[static_cast<std::size_t>(r * (out - 9) + j)] ==
                doctest::Approx(whole[static_cast<std::size_t>(r * out + j + 5)]).epsilon(1e-4));
    }
  set_cpu_threads(before);
}

TEST_CASE("int8 rows: a model that writes token by token agrees with itself reading the whole text") {
  TransformerConfig config = test::tiny_config();
  config.width = 32;
  config.feed_forward = 64;
  LanguageModel model(config);
  const NoGrad no_grad;
  model.round_to_int8();
  for (const NamedTensor& named : model.parameters())
    CHECK((named.tensor->storage()->int8_rows() != nullptr) == (named.tensor->rank() == 2));
  const std::vector<std::int32_t> text{3, 7, 1, 9, 4, 2, 8, 5};
  // A step is given the last token of the prompt again: all others are read at once.
  LanguageModelSteps whole(model, text, 1, 12), steps(model, std::vector<std::int32_t>{text[0]}, 1, 12);
  Tensor last;
  for (const std::int32_t token : text) last = steps.step(Tensor::from({token}, {1}));
  CHECK(test::worst_difference(last, whole.step(Tensor::from({text.back()}, {1}))) < 1e-4);
}

TEST_CASE("int8 rows: a view of other rows than the matrix' own is computed in f32") {
  const Tensor weight = random({6, 8}, 1), x = random({1, 8}, 2);
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
  const Tensor x = random({4, 6}, 1);
  CHECK_THROWS_WITH_AS(round_to_int8(transpose(x, 0, 1)), doctest::Contains("contiguous"), Error);
  CHECK_THROWS_WITH_AS(round_to_int8(x.to(DType::f64)), doctest::Contains("f32"), Error);
  CHECK_THROWS_WITH_AS(round_to_int8(x.view({2, 6}, {6, 1}, 12)), doctest::Contains("whole"), Error);
  CHECK_THROWS_WITH_AS(round_to_int8(slice(x, 0, 0, 2)), doctest::Contains("whole"), Error);
  CHECK_THROWS_WITH_AS(round_to_int8({}), doctest::Contains("contiguous"), Error);
  x.data<float>()[7] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH_AS(round_to_int8(x), doctest::Contains("(1, 1) is inf"), Error);
  CHECK(max(abs(slice(x, 0, 0, 1) - slice(random({4, 6}, 1), 0, 0, 1))).item() == 0);  // as it was
  LanguageModel model(test::tiny_config());
  model.to(DType::f64, {});
  CHECK_THROWS_WITH_AS(model.round_to_int8(), doctest::Contains("f64"), Error);
}
