#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include "heed/backends/cpu/operands.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/sort.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The first position i in [from, count) where x[i] <= bound is false: x[i] is larger, or either is NaN;
/// `count` if there is none. Checks four vectors at a time, because nearly all contain no match.
template <class T>
std::int64_t find_above(const T* HWY_RESTRICT x, std::int64_t from, std::int64_t count, T bound) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, bound);
  std::int64_t i = from;
  const auto above = [&](std::int64_t at) HWY_ATTR {
    const auto v = hn::LoadU(d, x + at);
    if constexpr (hwy::IsFloat<T>())
      return hn::Not(hn::Le(v, limit));
    else
      return hn::Gt(v, limit);
  };
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto some = hn::Or(above(i), above(i + lanes)),
               more = hn::Or(above(i + 2 * lanes), above(i + 3 * lanes));
    if (!hn::AllFalse(d, hn::Or(some, more))) break;
  }
  for (; i < count; ++i)
    if (!(x[i] <= bound)) return i;
  return count;
}

auto find_above_of_types() {
  return std::make_tuple(find_above<float>, find_above<double>, find_above<std::int32_t>);
}

constexpr std::int64_t task_size = 32768;  // elements worth a task of their own
constexpr std::int64_t tile_width = 512;   // columns processed at once

/// Whether `x` replaces `best`; NaN counts as the largest, as in the max reduction.
template <class T>
HWY_INLINE bool beats(T x, T best) {
  return x > best || (x != x && best == best);
}

/// Processes one tile of columns; x [n, stride], out [width].
template <class T>
void argmax_columns(const T* x, std::int64_t n, std::int64_t stride, std::int64_t width, std::int32_t* out) {
  T best[tile_width];
  std::copy_n(x, width, best);
  std::fill_n(out, width, 0);
  for (std::int64_t row = 1; row < n; ++row) {
    for (std::int64_t j = 0; j < width; ++j) {
      const T value = x[row * stride + j];
      const bool better = beats(value, best[j]);
      best[j] = better ? value : best[j];
      out[j] = better ? static_cast<std::int32_t>(row) : out[j];
    }
  }
}

/// The first position in [0, n) where condition(vector), a mask of lanes, holds; n if there is none.
template <class D, class Condition>
HWY_INLINE std::int64_t find_first(D d, const hn::TFromD<D>* x, std::int64_t n, Condition condition) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const std::intptr_t at = hn::FindFirstTrue(d, condition(hn::LoadU(d, x + i)));
    if (at >= 0) return i + at;
  }
  if (i == n) return n;
  const std::intptr_t at = hn::FindFirstTrue(d, condition(load_n(d, x + i, n - i)));
  return at < 0 ? n : std::min(n, i + at);  // lanes beyond the end may match, but come after all real ones
}

/// Finds the largest value of the row, then its first position: the second pass reads from cache.
template <class T>
std::int64_t argmax_row(const T* x, std::int64_t n) {
  const hn::ScalableTag<T> d;
  auto best = hn::Set(d, x[0]);
  [[maybe_unused]] auto unordered = hn::FirstN(d, 0);
  for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
    const auto v = part.fill_tail(d, part.load(d, x + i), x[0]);
    if constexpr (std::is_floating_point_v<T>) unordered = hn::Or(unordered, hn::IsNaN(v));
    best = hn::Max(best, v);
  });
  if constexpr (std::is_floating_point_v<T>) {
    if (!hn::AllFalse(d, unordered))
      return find_first(d, x, n, [&](auto v) HWY_ATTR { return hn::IsNaN(v); });
  }
  const auto largest = hn::MaxOfLanes(d, best);
  return find_first(d, x, n, [&](auto v) HWY_ATTR { return hn::Eq(v, largest); });
}

template <class T>
void argmax_as(const Tensor& x, const Tensor& out) {
  const std::int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const T* from = x.data<T>();
  std::int32_t* to = out.data<std::int32_t>();
  const std::int64_t width = std::min(inner, tile_width), tiles = ceil_div(inner, tile_width);
  parallel_ranges(outer * tiles, pieces_per_task(task_size, n * width),
                  [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
                    for (std::int64_t task = begin; task < end; ++task) {
                      const std::int64_t o = task / tiles, left = task % tiles * tile_width;
                      const T* values = from + o * n * inner + left;
                      if (inner == 1)
                        to[o] = static_cast<std::int32_t>(argmax_row(values, n));
                      else
                        argmax_columns(values, n, inner, std::min(tile_width, inner - left),
                                       to + o * inner + left);
                    }
                  });
}

void argmax_tensor(const Tensor& x, const Tensor& out) {
  with_element_type(x.dtype(), [&]<class T>(T) { argmax_as<T>(x, out); });
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(find_above_of_types);
HWY_EXPORT(argmax_tensor);

namespace {

template <class T>
using FindAbove = std::int64_t (*)(const T* x, std::int64_t from, std::int64_t count, T bound);

template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

/// An unsigned key that sorts like the value (reversed if descending). NaN is the largest value, as for max.
template <class T>
KeyOf<T> sort_key(T value, bool descending) {
  using Key = KeyOf<T>;
  constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1);
  Key key;
  if constexpr (std::is_floating_point_v<T>) {
    // Adding 0 makes -0 equal to 0. The bits of negative numbers sort backwards.
    const Key bits = std::bit_cast<Key>(value + T{0});
    key = std::isnan(value) ? std::numeric_limits<Key>::max() : bits & sign ? ~bits : bits | sign;
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

/// Sorts by the least significant digit first, which is stable; skips digits that all keys share.
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

/// The entries of a row in sorted order, in scratch memory of the thread.
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
void top_k_row(FindAbove<T> find_above, const T* x, std::int64_t count, std::int64_t k, std::int32_t* out) {
  using E = Entry<KeyOf<T>>;
  auto* best = thread_scratch<E>(0, static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < k; ++i) best[i] = {sort_key(x[i], true), static_cast<std::int32_t>(i)};
  std::make_heap(best, best + k);
  T worst = x[best[0].position];
  // A value not above the worst is certainly no better; ties go to the lower position.
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
  parallel_ranges(rows, pieces_per_task(4096, count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      argsort_row(x.data<T>() + r * count, count, descending, count, out.data<std::int32_t>() + r * count);
  });
}

template <class T>
void top_k_rows(const Tensor& x, const Tensor& out) {
  const std::int64_t rows = x.size(0), count = x.size(1), k = out.size(1);
  const auto find_above = std::get<FindAbove<T>>(HWY_DYNAMIC_DISPATCH(find_above_of_types)());
  parallel_ranges(rows, pieces_per_task(16384, count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x.data<T>() + r * count;
      std::int32_t* to = out.data<std::int32_t>() + r * k;
      // A heap only pays off while few values enter it.
      if (k * 16 <= count)
        top_k_row(find_above, row, count, k, to);
      else
        argsort_row(row, count, true, k, to);
    }
  });
}

}  // namespace

void argsort(const Tensor& x, bool descending, const Tensor& out) {
  const ProfileScope profile("argsort", 0, bytes_of(x) + bytes_of(out));
  if (x.count() == 0) return;
  with_element_type(x.dtype(), [&]<class T>(T) { argsort_rows<T>(x, descending, out); });
}

void top_k(const Tensor& x, const Tensor& out) {
  const ProfileScope profile("top_k", 0, bytes_of(x));
  if (out.count() == 0) return;
  with_element_type(x.dtype(), [&]<class T>(T) { top_k_rows<T>(x, out); });
}

void argmax(const Tensor& x, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("argmax", 0, bytes_of(x));
  HWY_DYNAMIC_DISPATCH(argmax_tensor)(x, out);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
