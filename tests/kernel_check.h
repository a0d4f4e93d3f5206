#pragma once

#include "heed/core/backend.h"
#include "heed/tests/support.h"

// Helpers for tests that call kernels of the CPU backend directly.

namespace heed::test {

/// Returns reproducible numbers, uniform in [low, high).
inline Doubles numbers(std::int64_t count, double low = -1, double high = 1, std::uint32_t stream = 0) {
  Doubles values(static_cast<std::size_t>(count));
  const RandomKey key{20240607, 0, stream};
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * unit_interval(random_word(key, i));
  return values;
}

/// Returns reproducible numbers, uniform in [-1, 1); each stream has others.
inline Tensor random_floats(const Shape& shape, std::uint32_t stream) {
  return uniform(shape, -1, 1, {7, 0, stream});
}

/// Makes a tensor of T of host values, rounded if necessary.
template <class T>
Tensor tensor_of(const Doubles& values, const Shape& shape) {
  return Tensor::from(std::vector<T>(values.begin(), values.end()), shape);
}
/// Returns the elements of a tensor of T in double.
template <class T>
Doubles values_of(const Tensor& tensor) {
  const std::vector<T> values = tensor.to_vector<T>();
  return {values.begin(), values.end()};
}

/// Returns the largest |a - b| / max(1, |b|); infinite when only one side has a NaN or infinity.
inline double worst_error(const Doubles& a, const Doubles& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    const double error = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i]));
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  return worst;
}

/// The relative error allowed to a kernel of T.
template <class T>
constexpr double tolerance = sizeof(T) == 4 ? 3e-6 : 1e-12;

inline std::vector<unsigned char> bits_of(const Tensor& tensor) {
  std::vector<unsigned char> bits(static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype()));
  if (!bits.empty()) cpu_backend.download(tensor, bits.data());
  return bits;
}

/// Checks that `compute` returns tensors with the same bits with 1, 2, 3 and 8 threads.
inline void check_thread_identity(const std::function<std::vector<Tensor>()>& compute) {
  std::vector<std::vector<unsigned char>> expected;
  for (int threads : {1, 2, 3, 8}) {
    const WithThreads scope(threads);
    const std::vector<Tensor> results = compute();
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (threads == 1) expected.push_back(bits_of(results[i]));
      CHECK_MESSAGE(bits_of(results[i]) == expected[i], "result ", i, " differs with ", threads, " threads");
    }
  }
}

}  // namespace heed::test
