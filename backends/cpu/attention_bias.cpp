#include "heed/backends/cpu/attention_bias.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/attention_bias.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, once per target:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void SubtractDistances(T* scores, std::int64_t stride, std::int64_t rows, const KeyTile& keys, T slope,
                       std::int64_t position) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, slope), counted = hn::Iota(d, T{0});
  for (const Segment& segment : keys.segments) {
    for (std::int64_t r = 0; r < rows; ++r) {
      T* HWY_RESTRICT row = scores + r * stride + segment.column;
      const std::int64_t ahead = segment.key - position - r;  // of the first key, seen from the query
      std::int64_t c = 0;
      for (; c + lanes <= segment.count; c += lanes) {
        const auto distance = hn::Abs(hn::Add(hn::Set(d, static_cast<T>(ahead + c)), counted));
        hn::StoreU(hn::NegMulAdd(factor, distance, hn::LoadU(d, row + c)), d, row + c);
      }
      for (; c < segment.count; ++c) {
        const std::int64_t distance = ahead + c < 0 ? -(ahead + c) : ahead + c;
        row[c] -= slope * static_cast<T>(distance);
      }
    }
  }
}

template <class T>
void AddRows(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t rows,
             std::int64_t columns) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r) {
    T* HWY_RESTRICT sum = to + r * to_stride;
    const T* HWY_RESTRICT row = from + r * from_stride;
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, sum + c), hn::LoadU(d, row + c)), d, sum + c);
    for (; c < columns; ++c) sum[c] += row[c];
  }
}

// HWY_EXPORT makes one table per function name, so each instance gets a name.
void distances_f32(float* scores, std::int64_t stride, std::int64_t rows, const KeyTile& keys, float slope,
                   std::int64_t position) {
  SubtractDistances(scores, stride, rows, keys, slope, position);
}
void distances_f64(double* scores, std::int64_t stride, std::int64_t rows, const KeyTile& keys, double slope,
                   std::int64_t position) {
  SubtractDistances(scores, stride, rows, keys, slope, position);
}
void add_rows_f32(float* to, std::int64_t to_stride, const float* from, std::int64_t from_stride,
                  std::int64_t rows, std::int64_t columns) {
  AddRows(to, to_stride, from, from_stride, rows, columns);
}
void add_rows_f64(double* to, std::int64_t to_stride, const double* from, std::int64_t from_stride,
                  std::int64_t rows, std::int64_t columns) {
  AddRows(to, to_stride, from, from_stride, rows, columns);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(distances_f32);
HWY_EXPORT(distances_f64);
HWY_EXPORT(add_rows_f32);
HWY_EXPORT(add_rows_f64);

template <>
void subtract_distances(float* scores, std::int64_t stride, std::int64_t rows, const KeyTile& keys,
                        float slope, std::int64_t position) {
  HWY_DYNAMIC_DISPATCH(distances_f32)(scores, stride, rows, keys, slope, position);
}
template <>
void subtract_distances(double* scores, std::int64_t stride, std::int64_t rows, const KeyTile& keys,
                        double slope, std::int64_t position) {
  HWY_DYNAMIC_DISPATCH(distances_f64)(scores, stride, rows, keys, slope, position);
}
template <>
void add_rows(float* to, std::int64_t to_stride, const float* from, std::int64_t from_stride,
              std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(add_rows_f32)(to, to_stride, from, from_stride, rows, columns);
}
template <>
void add_rows(double* to, std::int64_t to_stride, const double* from, std::int64_t from_stride,
              std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(add_rows_f64)(to, to_stride, from, from_stride, rows, columns);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
