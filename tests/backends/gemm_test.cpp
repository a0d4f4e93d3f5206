// Products by heed's own kernels, in f32 and, where the processor can, in bf16: layouts, and bits that
// depend on nothing but the sums.

#include "heed/backends/cpu/gemm.h"

#include <bit>
#include <iostream>

#include "heed/backends/cpu/blas.h"
#include "heed/core/backend.h"
#include "heed/core/low_precision.h"
#include "heed/tests/child_process.h"
#include "heed/tests/kernel_check.h"
#include "heed/tests/model_support.h"

namespace {

/// A matrix [rows, columns], stored by columns if transposed, with `gap` elements between what is stored;
/// of bf16 numbers if asked.
struct Operand {
  Tensor stored;
  cpu::MatrixView view;

  Operand(std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t gap, std::uint32_t stream,
          bool rounded = false)
      : stored(random_floats(transposed ? Shape{columns, rows + gap} : Shape{rows, columns + gap}, stream)),
        view{stored.data<float>(), stored.size(1), transposed} {
    for (std::int64_t i = 0; i < stored.count() && rounded; ++i)
      stored.data<float>()[i] = bf16_to_float(float_to_bf16(stored.data<float>()[i]));
    values = slice(transposed ? transpose(stored, 0, 1) : stored, transposed ? 0 : 1, 0,
                   transposed ? rows : columns)
                 .to(DType::f64);
  }
  Tensor values;
};

std::vector<cpu::ProductKernel> kernels() {
  std::vector<cpu::ProductKernel> out{cpu::f32_kernel()};
  for (const auto kind : {cpu::Bf16Kernel::vectors, cpu::Bf16Kernel::tiles, cpu::Bf16Kernel::split_tiles})
    if (const auto kernel = cpu::bf16_kernel(kind)) out.push_back(*kernel);
  return out;
}

Tensor own_product(const Operand& a, const Operand& b, const cpu::ProductKernel& kernel = cpu::f32_kernel()) {
  const std::int64_t m = a.values.size(0), n = b.values.size(1);
  Tensor c = Tensor::full({m, n}, std::nan(""));
  cpu::own_gemm(kernel, a.view, b.view, m, n, a.values.size(1), 1, false, c.data<float>(), n);
  return c;
}

TEST_CASE("own products in every layout, with remainders of every size") {
  struct Sizes {
    std::int64_t m, n, k;
  };
  std::vector<Sizes> cases = {{300, 1100, 40}, {130, 70, 600}, {14, 32, 256}, {15, 33, 257}, {28, 64, 513}};
  for (std::int64_t size = 1; size < 36; ++size) cases.push_back({size, 36 - size, 3 * size % 37 + 1});
  for (const cpu::ProductKernel& kernel : kernels())
    for (const Sizes& sizes : cases) {
      const std::int64_t m = sizes.m, n = sizes.n, k = sizes.k;
      const bool rounds = kernel.panel_rows > 1;
      for (int layout = 0; layout < 4; ++layout) {
        CAPTURE_ALL(rounds, m, n, k, layout);
        const Operand a(m, k, layout & 1, m % 3, 1, rounds), b(k, n, layout & 2, n % 3, 2, rounds);
        const Tensor expected = matmul(a.values, b.values), c = own_product(a, b, kernel);
        CHECK(test::worst_difference(c.to(DType::f64), expected) <
              1e-6 * std::sqrt(static_cast<double>(k) + 10));
        // Into a wider matrix, whose other columns stay as they are, scaled and added.
        const Tensor wide = random_floats({m, n + 3}, 3), before = wide * 1;
        cpu::own_gemm(kernel, a.view, b.view, m, n, k, -0.5f, true, wide.data<float>(), n + 3);
        CHECK(test::worst_difference(slice(wide, 1, 0, n).to(DType::f64),
                                     slice(before, 1, 0, n).to(DType::f64) - expected * 0.5) <
              1e-6 * std::sqrt(static_cast<double>(k) + 10));
        CHECK(slice(wide, 1, n, n + 3).to_vector<float>() == slice(before, 1, n, n + 3).to_vector<float>());
      }
    }
}

TEST_CASE("an element of an own product has the same bits however the product is cut") {
  const std::int64_t m = 300, n = 140, k = 700;
  for (const cpu::ProductKernel& kernel : kernels())
    for (int layout = 0; layout < 4; ++layout) {
      const Operand a(m, k, layout & 1, 0, 1), b(k, n, layout & 2, 0, 2);
      const Floats expected = own_product(a, b, kernel).to_vector<float>();
      Tensor pieces = Tensor::full({m, n}, std::nan(""));
      for (const auto& [row, rows] : {std::pair{0, 1}, {1, 125}, {126, 127}, {253, 47}})
        for (const auto& [column, columns] : {std::pair{0, 37}, {37, 2}, {39, 101}})
          cpu::own_gemm(kernel, a.view.from(row, 0), b.view.from(0, column), rows, columns, k, 1, false,
                        pieces.data<float>() + row * n + column, n);
      CHECK(pieces.to_vector<float>() == expected);
      for (const std::int64_t slice_rows : {256, 512, 1024}) {
        const Tensor bias = random_floats({n}, 4), packed = Tensor::full({m, n}, std::nan(""));
        cpu::PackedMatrix right(kernel, b.view, k, n, slice_rows);
        for (std::int64_t s = 0; s < right.slices(); ++s) {
          for (std::int64_t task = right.tasks(s) - 1; task >= 0; --task) right.pack(s, task);
          const std::int64_t row = s * slice_rows, depth = std::min(slice_rows, k - row);
          for (const auto& [column, columns] : {std::pair{0, 96}, {96, 44}}) {
            float* const to = packed.data<float>() + column;
            const cpu::Base base = s > 0 ? cpu::Base{to, n} : cpu::Base{bias.data<float>() + column, 0};
            right.multiply(a.view.from(0, row), row, column, m, columns, depth, base, to, n);
          }
        }
        Tensor biased = Tensor::full({m, n}, 0) + bias;
        cpu::own_gemm(kernel, a.view, b.view, m, n, k, 1, true, biased.data<float>(), n);
        CHECK(packed.to_vector<float>() == biased.to_vector<float>());
      }
    }
}

TEST_CASE("own products of numbers that are none, and of infinities, stay where they belong") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Operand a(20, 30, false, 0, 1), b(30, 40, true, 0, 2);
  a.stored.data<float>()[3 * 30 + 5] = nan;  // row 3
  b.stored.data<float>()[7 * 30 + 2] = inf;  // column 7
  for (const cpu::ProductKernel& kernel : kernels()) {
    const Floats c = own_product(a, b, kernel).to_vector<float>();
    for (std::size_t i = 0; i < 20; ++i)
      for (std::size_t j = 0; j < 40; ++j) {
        CAPTURE_ALL(i, j);
        CHECK(std::isnan(c[i * 40 + j]) == (i == 3));
        if (i != 3) CHECK(std::isinf(c[i * 40 + j]) == (j == 7));
      }
  }
}

TEST_CASE("split products keep most bits of f32, at every magnitude that has them") {
  const auto kernel = cpu::bf16_kernel(cpu::Bf16Kernel::split_tiles);
  if (!kernel) return;
  const auto error = [&](double left, double right) {
    Operand a(70, 300, false, 0, 1), b(300, 90, true, 0, 2);
    for (float& x : std::span(a.stored.data<float>(), 70 * 300)) x = static_cast<float>(x * left);
    for (float& x : std::span(b.stored.data<float>(), 300 * 90)) x = static_cast<float>(x * right);
    const Tensor expected = matmul(a.stored.to(DType::f64), transpose(b.stored.to(DType::f64), 0, 1));
    const Tensor off = own_product(a, b, *kernel).to(DType::f64) - expected;
    return std::sqrt(sum(off / left / right * (off / left / right)).item() /
                     sum(expected / left / right * (expected / left / right)).item());
  };
  CHECK(error(1, 1) < 1e-5);
  CHECK(error(1e30, 1e-30) < 1e-5);
  CHECK(error(1e-25, 1e25) < 1e-5);
  CHECK(error(1e-35, 1e35) < 1e-2);  // some rests are below 2^-126
  // The largest numbers, which bf16 has not.
  const float largest = std::numeric_limits<float>::max();
  const Operand a(1, 1, false, 0, 1), b(1, 1, false, 0, 2);
  for (const float factor : {1.0F, 0.5F, -1.0F}) {
    *a.stored.data<float>() = largest, *b.stored.data<float>() = factor;
    CHECK(own_product(a, b, *kernel).item() == doctest::Approx(largest * factor).epsilon(2e-5));
  }
}

/// The sum of an element in the order in which AMX makes it: within a chunk of 32, those of even and of odd
/// numbers in turn.
float tile_sum(const Floats& a, const Floats& b, bool split) {
  const auto high = [](float x) { return bf16_to_float(float_to_bf16(x)); };
  const auto low = [&](float x) { return high(x - high(x)); };
  float total = 0;
  for (std::size_t begin = 0; begin < a.size(); begin += 32) {
    const auto add = [&](auto left, auto right) {
      float sums[2] = {0, 0};
      for (std::size_t k = begin; k < std::min<std::size_t>(a.size(), begin + 32); ++k)
        sums[k % 2] = std::fma(left(a[k]), right(b[k]), sums[k % 2]);
      total += sums[0] + sums[1];
    };
    if (split) add(low, high);
    add(high, high);
    if (split) add(high, low);
  }
  return total;
}

TEST_CASE("products in tiles have the bits of sums in the documented order") {
  for (const bool split : {false, true}) {
    const auto kernel = cpu::bf16_kernel(split ? cpu::Bf16Kernel::split_tiles : cpu::Bf16Kernel::tiles);
    if (!kernel) {
      MESSAGE("skipped: this processor has no AMX");
      return;
    }
    for (const std::int64_t k : {1, 2, 31, 32, 33, 256, 257, 600}) {
      CAPTURE_ALL(split, k);
      const Operand a(37, k, true, 0, 1), b(k, 50, false, 0, 2);
      const Tensor c = own_product(a, b, *kernel);
      std::size_t wrong = 0;
      for (std::int64_t i = 0; i < 37; ++i)
        for (std::int64_t j = 0; j < 50; ++j) {
          Floats row, column;
          for (std::int64_t l = 0; l < k; ++l)
            row.push_back(*a.view.at(i, l)), column.push_back(*b.view.at(l, j));
          wrong += c.data<float>()[i * 50 + j] != tile_sum(row, column, split);
        }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("child: multiplies with the instructions of the environment" * doctest::skip()) {
  const Tensor a = random_floats({97, 600}, 1), b = random_floats({600, 75}, 2);
  std::uint64_t hash = 1469598103934665603u;  // FNV-1a
  for (const float x : matmul(a, b).to_vector<float>())
    hash = (hash ^ std::bit_cast<std::uint32_t>(x)) * 1099511628211u;
  const CpuInfo cpu = cpu_info();
  std::cout << (cpu.own_products ? "with " : "OpenBLAS with ") << cpu.simd_target << ": " << hash << '\n';
}

TEST_CASE("own products have the same bits with AVX2 and AVX-512; HEED_SIMD and HEED_PRODUCTS are checked") {
  const auto run = [](const char* name, const char* value) {
    return run_in_child("child: multiplies with the instructions of the environment",
                        {.environment = {{name, value}}});
  };
  const ChildResult without = run("HEED_SIMD", "");  // the tests themselves may run with a limit
  INFO(without.text());
  REQUIRE(without.status == 0);
  const std::size_t begin = without.output.find("with ") + 5, colon = without.output.find(": ", begin);
  REQUIRE(colon != std::string::npos);
  const std::string best = without.output.substr(begin, colon - begin),
                    hash = without.output.substr(colon + 2, 12);
  if (best.starts_with("AVX3")) {
    const ChildResult limited = run("HEED_SIMD", "AVX2");
    INFO(limited.text());
    CHECK(limited.status == 0);
    CHECK(limited.output.find("with AVX2: " + hash) != std::string::npos);
  }
  const ChildResult unknown = run("HEED_SIMD", "MMX");
  CHECK(unknown.status != 0);
  CHECK(unknown.output.find("HEED_SIMD is MMX; this processor and build have " + best) != std::string::npos);
  const ChildResult openblas = run("HEED_PRODUCTS", "openblas");
  CHECK(openblas.status == 0);
  CHECK(contains(openblas.output, "OpenBLAS with "));
  const ChildResult other = run("HEED_PRODUCTS", "mkl");
  CHECK(other.status != 0);
  CHECK(contains(other.output, "HEED_PRODUCTS is mkl; it must be own or openblas"));
}

TEST_CASE(
    "products whose right operand is packed in slices, against f64, to the same bits with more threads") {
  const Tensor a = random_floats({700, 3000}, 1), b = random_floats({3000, 1600}, 2),
               bias = random_floats({1600}, 3);
  REQUIRE(cpu::MatmulPlan(1, 700, 1600, 3000, true, cpu::f32_kernel().nanoseconds_per_flop).slice_depth ==
          512);
  const Tensor expected = matmul(a.to(DType::f64), b.to(DType::f64)) + bias.to(DType::f64);
  Floats first;
  for (const int threads : {1, 2, 3, 8}) {
    const WithThreads scope(threads);
    const Tensor out = Tensor::empty({700, 1600});
    cpu_backend.matmul(a, b, bias, 0, out);
    if (threads == 1) first = out.to_vector<float>();
    CHECK(out.to_vector<float>() == first);
    CHECK(test::worst_difference(out.to(DType::f64), expected) < 1e-4);
  }
}

}  // namespace
