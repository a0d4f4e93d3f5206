#include "heed/backends/kernels.h"
#include "heed/tests/kernel_check.h"

namespace {

const RandomKey key{0x123456789abcdef0, 77, 5};

template <class T>
Tensor drawn_uniform(const RandomKey& key, double low, double high, std::int64_t count) {
  const Tensor out = Tensor::empty({count}, dtype_of<T>);
  cpu_backend.uniform(key, low, high, out);
  return out;
}

template <class T>
Tensor normal(const RandomKey& key, double mean, double deviation, std::int64_t count) {
  const Tensor out = Tensor::empty({count}, dtype_of<T>);
  cpu_backend.normal(key, mean, deviation, out);
  return out;
}

template <class T>
Tensor dropout(const Tensor& x, const Tensor& residual, double p) {
  const Tensor out = Tensor::empty(x.shape(), dtype_of<T>);
  cpu_backend.dropout(x, residual, p, key, out);
  return out;
}

}  // namespace

TEST_CASE("Philox gives the known answers of the Random123 distribution") {
  using Block = std::array<std::uint32_t, 4>;
  CHECK(philox({}, 0) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0ull, ~0u, ~0u}, ~0ull) == Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Counter and key from the digits of pi: {243f6a88 85a308d3 13198a2e 03707344}, {a4093822 299f31d0}.
  CHECK(philox({0x299f31d0a4093822, 0x03707344, 0x13198a2e}, 0x85a308d3243f6a88) ==
        Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("bulk Philox equals the scalar one at any start and length") {
  for (std::uint64_t start :
       {0ull, 1ull, 2ull, 3ull, 5ull, 1000ull, (1ull << 34) - 7, (1ull << 34) - 64, ~0ull - 300}) {
    for (std::int64_t count : {0, 1, 2, 3, 4, 5, 15, 16, 31, 32, 33, 64, 97, 200}) {
      std::vector<std::uint32_t> words(static_cast<std::size_t>(count) + 1, 42);
      cpu::philox_fill(key, start, count, words.data());
      bool equal = words.back() == 42;
      for (std::int64_t i = 0; i < count; ++i) {
        equal &=
            words[static_cast<std::size_t>(i)] == random_word(key, start + static_cast<std::uint64_t>(i));
      }
      CHECK_MESSAGE(equal, "start ", start, ", count ", count);
    }
  }
}

TEST_CASE("the rule of dropout is the comparison with unit_interval") {
  for (double p : {0.0, 1e-9, 0x1p-24, 0.1, 0.25, 0.5, 0.9, 1 - 0x1p-24, 1 - 1e-12}) {
    const DropoutRule rule(p);
    CAPTURE(p);
    for (std::uint64_t near :
         {std::uint64_t{0}, static_cast<std::uint64_t>(p * 0x1p32), std::uint64_t{0xffffff00}}) {
      for (std::int64_t shift = -600; shift <= 600; ++shift) {
        const auto word = static_cast<std::uint32_t>(near + static_cast<std::uint64_t>(shift));
        REQUIRE((word >= rule.first_kept) == (unit_interval(word) >= p));
      }
    }
    CHECK((rule.first_kept == 0) == (p == 0));
    CHECK((rule.first_kept > 0xffffffff) == (p > 1 - 0x1p-24));
  }
}

TEST_CASE_TEMPLATE("uniform numbers are the words of the stream", T, float, double) {
  for (std::int64_t count : {0, 1, 7, 16, 33, 70001}) {
    const Doubles values = values_of<T>(drawn_uniform<T>(key, -2, 3, count));
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst, std::abs(values[i] - (-2 + 5 * unit_interval(random_word(key, i)))));
    CHECK(worst <= tolerance<T>);
  }
}

TEST_CASE("uniform numbers stay below the upper bound when they are rounded") {
  const auto largest = [](double low, double high) {
    const Doubles values = values_of<float>(drawn_uniform<float>(key, low, high, 1 << 22));
    return *std::max_element(values.begin(), values.end());
  };
  CHECK(largest(16, 17) == std::nextafter(17.0F, 0.0F));
  CHECK(largest(-17, -16) == std::nextafter(-16.0F, -17.0F));
  CHECK(largest(1, 1) == 1);
  CHECK(last_below(0, 1, DType::f32) == std::nextafter(1.0F, 0.0F));
  CHECK(last_below(0, 1, DType::f64) == std::nextafter(1.0, 0.0));
  CHECK(last_below(0, 1, DType::f16) == 1 - 0x1p-11);
  CHECK(last_below(-2, -1, DType::f32) == std::nextafter(-1.0F, -2.0F));
  CHECK(last_below(0, 1.5, DType::bf16) == 1.5 - 0x1p-7);
  CHECK(last_below(0, 0.1, DType::f32) == std::nextafter(0.1F, 0.0F));  // 0.1F lies above 0.1
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Doubles values = heed::uniform({1000}, -1, 0, key, dtype).to_doubles();
    CHECK(*std::min_element(values.begin(), values.end()) < -0.9);
    CHECK(*std::max_element(values.begin(), values.end()) > -0.1);
    CHECK(*std::max_element(values.begin(), values.end()) < 0);
  }
  CHECK(last_below(-1, 0, DType::f32) == -std::numeric_limits<float>::denorm_min());
  CHECK(last_below(-1, 0, DType::f64) == -std::numeric_limits<double>::denorm_min());
  CHECK(last_below(0, 0x1p-147, DType::f32) == 3 * 0x1p-149);
  CHECK(last_below(0, 0x1p-1073, DType::f64) == 0x1p-1074);
}

TEST_CASE("uniform and normal refuse what is not an interval or a deviation") {
  CHECK_THROWS_WITH_AS(heed::uniform({3}, 2, 1, key), "uniform: [2, 1) is not an interval of f32", Error);
  CHECK_THROWS_AS(heed::uniform({3}, 0, std::nan(""), key), Error);
  CHECK_THROWS_AS(heed::uniform({3}, -infinity, 0, key), Error);
  CHECK_THROWS_AS(heed::uniform({3}, -3e38, 3e38, key), Error);
  CHECK_THROWS_AS(heed::uniform({3}, 1e39, 1e39, key), Error);
  CHECK_THROWS_AS(heed::normal({3}, 0, -1, key), Error);
  CHECK_THROWS_AS(heed::normal({3}, 0, infinity, key), Error);
}

TEST_CASE_TEMPLATE("normal numbers follow Box and Muller on pairs", T, float, double) {
  for (std::int64_t count : {0, 1, 7, 16, 33, 70001}) {
    const Doubles values = values_of<T>(normal<T>(key, 1, 2, count));
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double u = 1 - unit_interval(random_word(key, i / 2 * 2));
      const double angle = 2 * std::acos(-1.0) * unit_interval(random_word(key, i / 2 * 2 + 1));
      const double z = std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
      worst = std::max(worst, std::abs(values[i] - (1 + 2 * z)));
    }
    CHECK(worst <= (sizeof(T) == 4 ? 2e-5 : 1e-12));
  }
}

TEST_CASE_TEMPLATE("dropout keeps, scales and adds the residual", T, float, double) {
  for (std::int64_t count : {1, 15, 16, 33, 40003}) {
    for (double p : {0.0, 0.1, 0.5, 0.999}) {
      CAPTURE_ALL(count, p);
      const Tensor x = tensor_of<T>(numbers(count), {count});
      const Tensor residual = tensor_of<T>(numbers(count, -1, 1, 1), {count});
      const Doubles values = values_of<T>(x), added = values_of<T>(residual);
      Doubles expected(values.size()), with_residual(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        expected[i] = unit_interval(random_word(key, i)) >= p ? values[i] / (1 - p) : 0;
        with_residual[i] = added[i] + expected[i];
      }
      CHECK(worst_error(values_of<T>(dropout<T>(x, {}, p)), expected) <= tolerance<T>);
      CHECK(worst_error(values_of<T>(dropout<T>(x, residual, p)), with_residual) <= tolerance<T>);
      cpu_backend.dropout(x, residual, p, key, residual);  // in place on the residual
      CHECK(worst_error(values_of<T>(residual), with_residual) <= tolerance<T>);
      cpu_backend.dropout(x, {}, p, key, x);
      CHECK(worst_error(values_of<T>(x), expected) <= tolerance<T>);
    }
  }
}

TEST_CASE("random kernels have the same bits for any number of threads") {
  const std::int64_t count = 300'007;
  const Tensor x = tensor_of<float>(numbers(count), {count});
  check_thread_identity([&]() -> std::vector<Tensor> {
    return {drawn_uniform<float>(key, 0, 1, count), normal<float>(key, 0, 1, count),
            dropout<float>(x, x, 0.1)};
  });
}
