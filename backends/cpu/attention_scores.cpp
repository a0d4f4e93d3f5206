#include "heed/backends/cpu/attention.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "heed/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/attention_scores.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, once per target:
#include "heed/backends/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Returns which of entries c, c + 1, ... of a mask row are not 0. The row has `count` entries;
/// lanes past its end count as 0.
template <class D>
HWY_INLINE hn::Mask<D> allowed_lanes(D d, const std::int32_t* row, std::int64_t c, std::int64_t count) {
  const hn::Rebind<std::int32_t, D> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  return nonzero_lanes(d,
                       count - c >= lanes ? hn::LoadU(narrow, row + c) : load_n(narrow, row + c, count - c));
}

/// Dropout's decisions, for one row of a tile at a time.
template <class D>
class KeptLanes {
 public:
  KeptLanes(D, const TileDropout& dropout, std::int64_t stride)
      : dropout_(dropout),
        stream_(dropout.key),
        words_(thread_scratch<std::uint32_t>(word_slot, static_cast<std::size_t>(stride))),
        // Words are compared as (word >> 8), which is not negative as a signed number either.
        last_dropped_(hn::Set(hn::RebindToSigned<D>(),
                              static_cast<Signed>(DropoutRule(dropout.p).first_kept >> 8) - 1)) {}

  bool active() const { return dropout_.p > 0; }

  /// Draws the words of columns [0, count) of a row.
  HWY_INLINE void draw(std::int64_t row, std::int64_t count) {
    const std::uint64_t first = dropout_.first + static_cast<std::uint64_t>(row * dropout_.keys);
    for (const Segment& segment : *dropout_.segments) {
      const std::int64_t words = std::min(segment.count, count - segment.column);
      if (words <= 0) break;
      stream_.fill(first + static_cast<std::uint64_t>(segment.key), words, words_ + segment.column);
    }
  }

  HWY_INLINE hn::Mask<D> operator()(D d, std::int64_t c) const {
    const auto words = hn::BitCast(hn::RebindToSigned<D>(), load_words(words_ + c));
    return hn::RebindMask(d, hn::Gt(words, last_dropped_));
  }

 private:
  using Signed = hn::TFromD<hn::RebindToSigned<D>>;

  static HWY_INLINE auto load_words(const std::uint32_t* from) {
    const hn::RebindToUnsigned<D> du;
    if constexpr (sizeof(hn::TFromD<D>) == 8) {
      return hn::ShiftRight<8>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<std::uint32_t, D>(), from)));
    } else {
      return hn::ShiftRight<8>(hn::LoadU(du, from));
    }
  }

  const TileDropout& dropout_;
  PhiloxStream stream_;
  std::uint32_t* words_;
  hn::Vec<hn::RebindToSigned<D>> last_dropped_;
};

inline std::int64_t round_up(std::int64_t count, std::int64_t lanes) {
  return (count + lanes - 1) / lanes * lanes;
}

/// The number of columns of row r that the causal mask leaves.
template <class T>
std::int64_t columns_of_row(const ScoreTile<T>& tile, std::int64_t r) {
  return std::clamp<std::int64_t>(tile.mask.limit + r, 0, tile.columns);
}

/// Sets missing entries of a row to -infinity, up to a whole vector, and returns the largest score.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE T mask_and_maximum(D d, T* HWY_RESTRICT row, const std::int32_t* allowed, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto nothing = hn::Set(d, -std::numeric_limits<T>::infinity());
  if (const std::int64_t whole = count / lanes * lanes; whole < count) {
    const auto inside = hn::FirstN(d, static_cast<std::size_t>(count - whole));
    hn::Store(hn::IfThenElse(inside, hn::Load(d, row + whole), nothing), d, row + whole);
  }
  auto maximum = nothing;
  if (allowed) {
    for (std::int64_t c = 0; c < count; c += lanes) {
      const auto scores = hn::IfThenElse(allowed_lanes(d, allowed, c, count), hn::Load(d, row + c), nothing);
      hn::Store(scores, d, row + c);
      maximum = hn::Max(maximum, scores);
    }
  } else {
    for (std::int64_t c = 0; c < count; c += lanes) maximum = hn::Max(maximum, hn::Load(d, row + c));
  }
  return lane_max(d, maximum);
}

template <class T>
void softmax_tile(const ScoreTile<T>& tile, const TileDropout& dropout, T* maximum, T* sum, T* rescale) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr T infinity = std::numeric_limits<T>::infinity();
  KeptLanes kept(d, dropout, tile.stride);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    T* HWY_RESTRICT row = tile.scores + r * tile.stride;
    const std::int64_t count = columns_of_row(tile, r), padded = round_up(count, lanes);
    const std::int32_t* allowed = tile.mask.allowed ? tile.mask.allowed + r * tile.mask.stride : nullptr;
    const T before = maximum[r], now = std::max(before, mask_and_maximum(d, row, allowed, count));
    // If nothing has been allowed so far, shift by 0: exp(-infinity - 0) = 0, as needed.
    const auto shift = hn::Set(d, now == -infinity ? T{0} : now);
    auto total = hn::Zero(d);
    if (kept.active()) {
      kept.draw(r, count);
      for (std::int64_t c = 0; c < padded; c += lanes) {
        const auto weights = exp(d, hn::Sub(hn::Load(d, row + c), shift));
        total = hn::Add(total, weights);
        hn::Store(hn::IfThenElseZero(kept(d, c), weights), d, row + c);
      }
    } else {
      for (std::int64_t c = 0; c < padded; c += lanes) {
        const auto weights = exp(d, hn::Sub(hn::Load(d, row + c), shift));
        total = hn::Add(total, weights);
        hn::Store(weights, d, row + c);
      }
    }
    std::fill(row + std::min(padded, tile.columns), row + tile.columns, T{0});
    maximum[r] = now;
    rescale[r] = now == before ? T{1} : hn::GetLane(exp(d, hn::Set(d, before - now)));
    sum[r] = sum[r] * rescale[r] + lane_sum(d, total);
  }
}

template <class T>
void softmax_tile_backward(const ScoreTile<T>& tile, const TileDropout& dropout, T* gradients,
                           const SoftmaxRows<T>& rows) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, dropout.p < 1 ? static_cast<T>(1 / (1 - dropout.p)) : T{0});
  KeptLanes kept(d, dropout, tile.stride);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    T* HWY_RESTRICT row = tile.scores + r * tile.stride;
    T* HWY_RESTRICT dscores = gradients ? gradients + r * tile.stride : nullptr;
    const std::int64_t count = rows.inverse_sum[r] == T{0} ? 0 : columns_of_row(tile, r);
    const std::int64_t padded = round_up(count, lanes);
    const std::int32_t* allowed = tile.mask.allowed ? tile.mask.allowed + r * tile.mask.stride : nullptr;
    const auto shift = hn::Set(d, rows.largest[r]), share = hn::Set(d, rows.inverse_sum[r]);
    const auto mean = hn::Set(d, dscores ? rows.delta[r] : T{0});
    if (kept.active()) kept.draw(r, count);
    for (std::int64_t c = 0; c < padded; c += lanes) {
      const auto weights = hn::Mul(exp(d, hn::Sub(hn::Load(d, row + c), shift)), share);
      auto dropped = weights, dscore = dscores ? hn::Load(d, dscores + c) : hn::Zero(d);
      if (kept.active()) {
        const auto factor = hn::IfThenElseZero(kept(d, c), scale);
        dropped = hn::Mul(weights, factor);
        dscore = hn::Mul(dscore, factor);
      }
      dscore = hn::Mul(weights, hn::Sub(dscore, mean));
      if (allowed) {
        const auto exists = allowed_lanes(d, allowed, c, count);
        dropped = hn::IfThenElseZero(exists, dropped);
        dscore = hn::IfThenElseZero(exists, dscore);
      }
      hn::Store(dropped, d, row + c);
      if (dscores) hn::Store(dscore, d, dscores + c);
    }
    std::fill(row + count, row + tile.columns, T{0});
    if (dscores) std::fill(dscores + count, dscores + tile.columns, T{0});
  }
}

template <class T>
void scale_rows(T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, const T* factors) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r) {
    T* HWY_RESTRICT row = x + r * stride;
    if (factors[r] == T{0}) {
      std::fill_n(row, columns, T{0});
      continue;
    }
    const auto factor = hn::Set(d, factors[r]);
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, row + c), factor), d, row + c);
    for (; c < columns; ++c) row[c] *= factors[r];
  }
}

template <class T>
void row_dots(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride, std::int64_t rows,
              std::int64_t columns, T* out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r) {
    const T *left = a + r * a_stride, *right = b + r * b_stride;
    auto total = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      total = hn::MulAdd(hn::LoadU(d, left + c), hn::LoadU(d, right + c), total);
    }
    T rest = 0;
    for (; c < columns; ++c) rest += left[c] * right[c];
    out[r] = lane_sum(d, total) + rest;
  }
}

template <class T>
void subtract_distances(T* scores, std::int64_t stride, std::int64_t rows, const KeyTile& keys, T slope,
                        std::int64_t position) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, slope), counted = hn::Iota(d, T{0});
  for (const Segment& segment : keys.segments) {
    for (std::int64_t r = 0; r < rows; ++r) {
      T* HWY_RESTRICT row = scores + r * stride + segment.column;
      // The first key's position relative to the query.
      const std::int64_t ahead = segment.key - position - r;
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
void add_rows(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t rows,
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

std::tuple<TileKernels<float>, TileKernels<double>> all_tile_kernels() {
  const auto of_type = []<class T>(T) {
    return TileKernels<T>{softmax_tile<T>, softmax_tile_backward<T>, scale_rows<T>,
                          row_dots<T>,     subtract_distances<T>,    add_rows<T>};
  };
  return {of_type(float()), of_type(double())};
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(all_tile_kernels);

template <class T>
TileKernels<T> tile_kernels() {
  return std::get<TileKernels<T>>(HWY_DYNAMIC_DISPATCH(all_tile_kernels)());
}
template TileKernels<float> tile_kernels();
template TileKernels<double> tile_kernels();

}  // namespace heed::cpu
#endif  // HWY_ONCE
