#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "heed/backends/cpu/find_above.h"
#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/backends/cpu/thread_scratch.h"
#include "heed/core/profile.h"

namespace heed::cpu {
namespace {

template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

/// An unsigned number that orders as the value does (reversed when descending); NaN is
/// the largest either way.
template <class T>
KeyOf<T> sort_key(T value, bool descending) {
  using Key = KeyOf<T>;
  constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1);
  Key key;
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return std::numeric_limits<Key>::max();
    // Adding 0 makes -0 equal to 0. Negative numbers are ordered backwards by their bits.
    const Key bits = std::bit_cast<Key>(value + T{0});
    key = bits & sign ? ~bits : bits | sign;
  } else {
    key = static_cast<Key>(value) ^ sign;
  }
  return descending ? ~key : key;
}

template <class Key>
struct Entry {
  Key key;
  std::int32_t position;
  friend auto operator<=>(const Entry&, const Entry&) = default;
};

/// Least significant digit first, which is stable; digits that all keys share are skipped.
template <class Key>
void radix_sort(Entry<Key>*& entries, Entry<Key>*& other, std::int64_t count) {
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(Key)); shift += 8) {
    std::array<std::int64_t, 257> start{};
    const auto digit = [shift](const Entry<Key>& entry) {
      return static_cast<std::size_t>(entry.key >> shift & 255);
    };
    for (std::int64_t i = 0; i < count; ++i) ++start[digit(entries[i]) + 1];
    if (start[digit(entries[0]) + 1] == count) continue;
    for (std::size_t d = 1; d < start.size(); ++d) start[d] += start[d - 1];
    for (std::int64_t i = 0; i < count; ++i) other[start[digit(entries[i])]++] = entries[i];
    std::swap(entries, other);
  }
}

/// The entries of a row in order, in scratch memory of the thread.
template <class T>
Entry<KeyOf<T>>* sorted_entries(const T* x, std::int64_t count, bool descending) {
  using E = Entry<KeyOf<T>>;
  auto* entries = thread_scratch<E>(0, static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    entries[i] = {sort_key(x[i], descending), static_cast<std::int32_t>(i)};
  constexpr std::int64_t radix_from = 128;
  if (count < radix_from) {
    std::sort(entries, entries + count);
  } else {
    auto* other = thread_scratch<E>(1, static_cast<std::size_t>(count));
    radix_sort(entries, other, count);
  }
  return entries;
}

template <class T>
void argsort_row(const T* x, std::int64_t count, bool descending, std::int64_t wanted, std::int32_t* out) {
  const auto* entries = sorted_entries(x, count, descending);
  for (std::int64_t i = 0; i < wanted; ++i) out[i] = entries[i].position;
}

/// Keeps the best k so far in a heap whose front is the worst of them; most values fail the first comparison.
template <class T>
void top_k_row(const T* x, std::int64_t count, std::int64_t k, std::int32_t* out) {
  using E = Entry<KeyOf<T>>;
  auto* best = thread_scratch<E>(0, static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < k; ++i) best[i] = {sort_key(x[i], true), static_cast<std::int32_t>(i)};
  std::make_heap(best, best + k);
  T worst = x[best[0].position];
  // What is not above the worst is surely no better; a tie loses to the lower position.
  for (std::int64_t i = find_above(x, k, count, worst); i < count; i = find_above(x, i + 1, count, worst)) {
    const E entry{sort_key(x[i], true), static_cast<std::int32_t>(i)};
    if (entry.key >= best[0].key) continue;
    std::pop_heap(best, best + k);
    best[k - 1] = entry;
    std::push_heap(best, best + k);
    worst = x[best[0].position];
  }
  std::sort_heap(best, best + k);
  for (std::int64_t i = 0; i < k; ++i) out[i] = best[i].position;
}

template <class T>
void argsort_rows(const Tensor& x, bool descending, const Tensor& out) {
  const std::int64_t rows = x.size(0), count = x.size(1);
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, count));
  parallel_ranges(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      argsort_row(x.data<T>() + r * count, count, descending, count, out.data<std::int32_t>() + r * count);
    }
  });
}

template <class T>
void top_k_rows(const Tensor& x, const Tensor& out) {
  const std::int64_t rows = x.size(0), count = x.size(1), k = out.size(1);
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, count));
  parallel_ranges(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x.data<T>() + r * count;
      std::int32_t* to = out.data<std::int32_t>() + r * k;
      // A heap pays while few values enter it.
      if (k * 16 <= count) {
        top_k_row(row, count, k, to);
      } else {
        argsort_row(row, count, true, k, to);
      }
    }
  });
}

}  // namespace

void argsort(const Tensor& x, bool descending, const Tensor& out) {
  const ProfileScope profile("argsort", 0, static_cast<double>(x.count()) * (size_of(x.dtype()) + 4.0));
  if (x.count() == 0) return;
  switch (x.dtype()) {
    case DType::f32:
      return argsort_rows<float>(x, descending, out);
    case DType::f64:
      return argsort_rows<double>(x, descending, out);
    case DType::i32:
      return argsort_rows<std::int32_t>(x, descending, out);
    case DType::f16:  // not on the CPU: Tensor::empty refuses
    case DType::bf16:
      break;
  }
}

void top_k(const Tensor& x, const Tensor& out) {
  const ProfileScope profile("top_k", 0,
                             static_cast<double>(x.count()) * static_cast<double>(size_of(x.dtype())));
  check(out.size(1) <= x.size(1), "top_k: k = ", out.size(1), " exceeds the ", x.size(1), " values of a row");
  if (out.count() == 0) return;
  switch (x.dtype()) {
    case DType::f32:
      return top_k_rows<float>(x, out);
    case DType::f64:
      return top_k_rows<double>(x, out);
    case DType::i32:
      return top_k_rows<std::int32_t>(x, out);
    case DType::f16:  // not on the CPU: Tensor::empty refuses
    case DType::bf16:
      break;
  }
}

}  // namespace heed::cpu
