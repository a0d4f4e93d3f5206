// Gather, scatter-add and sorting kernels of the CPU backend.

#include "heed/core/backend.h"
#include "heed/tests/support.h"

namespace {

Ints random_indices(std::size_t count, std::uint32_t n) {
  Ints index(count);
  for (std::size_t i = 0; i < count; ++i)
    index[i] = static_cast<std::int32_t>(random_word({1, 2, 3}, i) % (n + 1)) - 1;
  return index;
}

template <class T>
std::vector<T> random_values(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(random_word({4, 5, 6}, i) % 4096) / 16 - 100;
  return values;
}

template <class T>
void check_gather(std::int64_t batch, std::int64_t n, std::int64_t m, std::int64_t width) {
  const auto x = random_values<T>(static_cast<std::size_t>(batch * n * width));
  const auto index = random_indices(static_cast<std::size_t>(batch * m), static_cast<std::uint32_t>(n));
  const Tensor out = Tensor::empty({batch, m, width}, dtype_of<T>);
  cpu_backend.gather_rows(Tensor::from(x, {batch, n, width}), Tensor::from(index, {batch, m}), out);
  const std::vector<T> actual = out.to_vector<T>();
  std::vector<T> expected;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t row = index[static_cast<std::size_t>(b * m + i)];
      for (std::int64_t c = 0; c < width; ++c)
        expected.push_back(row < 0 ? T{0} : x[static_cast<std::size_t>((b * n + row) * width + c)]);
    }
  }
  CHECK(actual == expected);
}

/// The sum in the order of i, which the kernel must follow to the last bit.
template <class T>
void check_scatter(std::int64_t batch, std::int64_t n, std::int64_t m, std::int64_t width) {
  auto x = random_values<T>(static_cast<std::size_t>(batch * m * width));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= static_cast<T>(1.0 / 3);
  const auto index = random_indices(static_cast<std::size_t>(batch * m), static_cast<std::uint32_t>(n));
  std::vector<T> expected(static_cast<std::size_t>(batch * n * width), T{0.1f});
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t row = index[static_cast<std::size_t>(b * m + i)];
      if (row < 0) continue;
      for (std::int64_t c = 0; c < width; ++c) {
        expected[static_cast<std::size_t>((b * n + row) * width + c)] +=
            x[static_cast<std::size_t>((b * m + i) * width + c)];
      }
    }
  }
  for (int threads : {1, 2, 3, 8}) {
    const test::WithThreads scope(threads);
    const Tensor out = Tensor::from(std::vector<T>(expected.size(), T{0.1f}), {batch, n, width});
    cpu_backend.scatter_add_rows(Tensor::from(x, {batch, m, width}), Tensor::from(index, {batch, m}), out);
    CHECK(out.to_vector<T>() == expected);
  }
}

/// a before b, by the contract.
template <class T>
bool before(T a, T b, bool descending) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return descending && !std::isnan(b);
    if (std::isnan(b)) return !descending;
  }
  return descending ? a > b : a < b;
}

template <class T>
Ints stable_order(const std::vector<T>& x, std::size_t first, std::int64_t n, bool descending) {
  Ints order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return before(x[first + static_cast<std::size_t>(a)], x[first + static_cast<std::size_t>(b)], descending);
  });
  return order;
}

template <class T>
std::vector<T> awkward_values(std::int64_t rows, std::int64_t n) {
  std::vector<T> x = random_values<T>(static_cast<std::size_t>(rows * n));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
      const T special[] = {T{0}, -T{0}, infinity, -infinity, nan, -nan, T{1e-30f}, -T{1e30f}};
      if (const std::uint32_t k = random_word({7, 7, 7}, i) % 16; k < 8) x[i] = special[k];
    } else {
      if (i % 5 == 0) x[i] = std::numeric_limits<T>::min();
      if (i % 5 == 1) x[i] = std::numeric_limits<T>::max();
    }
  }
  return x;
}

template <class T>
void check_sorts(std::int64_t rows, std::int64_t n) {
  CAPTURE(n);
  const std::vector<T> x = awkward_values<T>(rows, n);
  const Tensor tensor = Tensor::from(x, {rows, n});
  /// The first k of every row.
  const auto expected = [&](bool descending, std::int64_t k) {
    Ints all;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto order = stable_order(x, static_cast<std::size_t>(r * n), n, descending);
      all.insert(all.end(), order.begin(), order.begin() + k);
    }
    return all;
  };
  for (bool descending : {false, true}) {
    const Tensor out = Tensor::empty({rows, n}, DType::i32);
    cpu_backend.argsort(tensor, descending, out);
    CHECK(out.to_vector<std::int32_t>() == expected(descending, n));
  }
  for (std::int64_t k : {std::int64_t{1}, std::min<std::int64_t>(n, 4), n / 2, n}) {
    CAPTURE(k);
    const Tensor out = Tensor::empty({rows, k}, DType::i32);
    cpu_backend.top_k(tensor, out);
    CHECK(out.to_vector<std::int32_t>() == expected(true, k));
  }
}

}  // namespace

TEST_CASE("gather_rows copies rows of any dtype, and zeros for -1") {
  check_gather<float>(1, 10, 40, 256);
  check_gather<float>(3, 7, 5, 1);
  check_gather<double>(2, 9, 300, 33);
  check_gather<std::int32_t>(2, 4, 9, 6);
  check_gather<float>(1, 3, 0, 6);
  check_gather<float>(2, 3, 4, 0);
}

TEST_CASE("scatter_add_rows adds in the order of the rows, for any number of threads") {
  check_scatter<float>(1, 50, 400, 256);
  check_scatter<float>(1, 3, 400, 200);
  check_scatter<float>(40, 5, 30, 7);
  check_scatter<double>(2, 9, 100, 130);
  check_scatter<double>(3, 9, 0, 5);
}

TEST_CASE("an index out of range is named with its position and the extent") {
  const Tensor x = Tensor::from(random_values<float>(24), {2, 3, 4});
  const Tensor out = Tensor::from(random_values<float>(16), {2, 2, 4});
  CHECK_THROWS_WITH_AS(cpu_backend.gather_rows(x, Tensor::from<std::int32_t>({0, -1, 3, 0}, {2, 2}), out),
                       "gather_rows: index 3 at position [1, 0] is outside [0, 3) and is not -1", Error);
  const Floats old = out.to_vector<float>();
  CHECK_THROWS_WITH_AS(
      cpu_backend.scatter_add_rows(x, Tensor::from<std::int32_t>({0, 1, 1, 0, 1, -2}, {2, 3}), out),
      "scatter_add_rows: index -2 at position [1, 2] is outside [0, 2) and is not -1", Error);
  CHECK(out.to_vector<float>() == old);
}

TEST_CASE("argsort and top_k are stable, with NaN as the largest") {
  for (std::int64_t n : {1, 2, 7, 100, 128, 1000, 5000}) {
    check_sorts<float>(3, n);
    check_sorts<double>(2, n);
    check_sorts<std::int32_t>(2, n);
  }
}
