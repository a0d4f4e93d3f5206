#include "heed/core/recurrence.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "heed/backends/cpu/operands.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

// A recurrence takes tokens one by one, or two per pass over the state of a head if they only add to
// it: a state fits the first- or second-level cache. Columns of S do not depend on each other, so
// vectors go along them, and tiles of columns are separate tasks in the forward pass. The backward
// pass takes chunks of tokens from the last: it recomputes the states within a chunk, for a tile of
// columns at a time, and walks back over them with the gradient of the state. If nothing is read
// from states and decays need no gradient, each gradient of a step needs either the state or its
// gradient but not both, so each is passed over once.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/recurrence.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, once per target:
#include "heed/backends/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {
namespace {

constexpr int recurrence_slot = 10;  // of thread_scratch, which tasks of other kernels have at other times
// Rows of S that share the values loaded for a column. Their sums are added to the others at once,
// because one by one they would wait for each other.
constexpr std::int64_t rows_at_once = 4;

/// to[i] = the sum of lanes i, i + 4, ...
template <class D>
HWY_INLINE void store_block_sum(D d, hn::Vec<D> v, float* to) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    store_block_sum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  }
}

/// The sums of four vectors' lanes, to[0] to to[3].
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void lane_sums(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    // The sums of each block of four lanes, side by side; then those of the blocks.
    const hn::Repartition<double, D> pairs;
    const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)),
               ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
    const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce)),
               high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
    store_block_sum(d, hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)), to);
  } else {
    to[0] = lane_sum(d, a), to[1] = lane_sum(d, b), to[2] = lane_sum(d, c), to[3] = lane_sum(d, e);
  }
}

/// Vectors of an operand [B, H, N, n] or [B, H, N].
template <class T>
class Vectors {
 public:
  Vectors(const Tensor& x) {
    if (!x.defined()) return;
    data_ = x.data<T>();
    for (int axis = 0; axis < 3; ++axis) strides_[axis] = x.stride(axis);
  }
  explicit operator bool() const { return data_ != nullptr; }
  T* at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data_ + b * strides_[0] + h * strides_[1] + t * strides_[2];
  }

 private:
  T* data_ = nullptr;
  std::int64_t strides_[3] = {};
};

/// The sizes of a call, and the buffers of a task: vectors of a chunk's tokens, padded with zeros to whole
/// blocks of rows or vectors of columns.
template <class T>
class Recurrent {
 public:
  using D = hn::ScalableTag<T>;
  using Vec = hn::Vec<D>;

  Recurrent(const Recurrence& of, std::int64_t width)
      : of_(of),
        heads_(of.query.size(1)),
        length_(of.query.size(2)),
        keys_(of.query.size(3)),
        width_(width),
        padded_keys_(ceil_div(keys_, rows_at_once) * rows_at_once),
        tile_(std::clamp<std::int64_t>(tile_bytes / keys_ / 64 * 64, 64, 512) /
              static_cast<std::int64_t>(sizeof(T))),
        q_(of.query),
        k_(of.key),
        v_(of.value),
        g_(of.log_decay),
        r_(of.reading),
        w_(of.writing),
        x_(of.target),
        scalar_decay_(of.log_decay.defined() && of.log_decay.rank() == 3) {}

  std::int64_t rows() const { return of_.query.size(0) * heads_; }

  void forward(const Tensor& out, const Tensor& written, const Tensor& states, const Tensor& last) const {
    const std::int64_t tiles = ceil_div(width_, tile_);
    const std::int64_t grain = pieces_per_task(task_size, length_ * keys_ * std::min(tile_, width_));
    parallel_ranges(rows() * tiles, grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      for (std::int64_t task = begin; task < end; ++task)
        forward_tile(task / tiles, task % tiles * tile_, out, written, states, last);
    });
  }

  void backward(const Tensor& written, const Tensor& states, const Tensor& grad, const Tensor& last_grad,
                const Recurrence& gradients) const {
    const std::int64_t grain = pieces_per_task(task_size, length_ * keys_ * width_);
    parallel_ranges(rows(), grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t left = 0; left < width_; left += tile_)
          backward_tile(row, left, written, states, grad, last_grad, gradients);
    });
  }

 private:
  static constexpr std::int64_t tile_bytes = 100 << 10;  // of a state's tile, in the second-level cache
  static constexpr std::int64_t task_size = 1 << 18;     // elements of states worth a task
  static constexpr std::int64_t chunk = recurrence_chunk;

  /// The columns of a tile in a buffer.
  struct Columns {
    std::int64_t left, count, padded;
  };
  Columns columns_from(std::int64_t left) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
    const std::int64_t count = std::min(tile_, width_ - left);
    return {left, count, ceil_div(count, lanes) * lanes};
  }

  /// Cuts a task's buffer into parts.
  struct Parts {
    T* next;
    T* take(std::int64_t count) { return std::exchange(next, next + count); }
  };
  /// Vectors of a chunk: those of keys, decays e^g, and those of columns.
  struct Chunk {
    T *q, *k, *r, *w, *decay;           // [chunk, padded keys]
    T *v, *x, *out, *dwritten;          // [chunk, padded columns]; out is also its gradient
    std::int64_t first = 0, count = 0;  // tokens, in the order in which they are taken
  };
  static constexpr std::int64_t key_buffers = 5, column_buffers = 4;

  Chunk make_chunk(Parts& parts, const Columns& columns) const {
    Chunk made{};
    for (T** one : {&made.q, &made.k, &made.r, &made.w, &made.decay}) *one = parts.take(chunk * padded_keys_);
    for (T** one : {&made.v, &made.x, &made.out, &made.dwritten}) *one = parts.take(chunk * columns.padded);
    return made;
  }

  std::int64_t token(std::int64_t step) const { return of_.reverse ? length_ - 1 - step : step; }

  /// Copies vectors of a chunk, from column `left` on, padded with zeros; zeros where the operand is
  /// undefined.
  void load(const Vectors<T>& from, std::int64_t row, const Chunk& at, std::int64_t left, std::int64_t count,
            std::int64_t padded, T* to) const {
    for (std::int64_t step = 0; step < at.count; ++step, to += padded) {
      if (from) std::copy_n(from.at(row / heads_, row % heads_, token(at.first + step)) + left, count, to);
      std::fill(to + (from ? count : 0), to + padded, T{0});
    }
  }
  void store(const T* from, std::int64_t row, const Chunk& at, const Columns& columns,
             const Vectors<T>& to) const {
    for (std::int64_t step = 0; step < at.count; ++step)
      std::copy_n(from + step * columns.padded, columns.count,
                  to.at(row / heads_, row % heads_, token(at.first + step)) + columns.left);
  }

  void load_keys(std::int64_t row, Chunk& at) const {
    load(q_, row, at, 0, keys_, padded_keys_, at.q);
    if (k_) load(k_, row, at, 0, keys_, padded_keys_, at.k);
    if (r_) load(r_, row, at, 0, keys_, padded_keys_, at.r), load(w_, row, at, 0, keys_, padded_keys_, at.w);
    if (!g_) return;
    const D d;
    for (std::int64_t step = 0; step < at.count; ++step) {
      const T* const g = g_.at(row / heads_, row % heads_, token(at.first + step));
      T* const decay = at.decay + step * padded_keys_;
      if (scalar_decay_) {
        std::fill_n(decay, padded_keys_, hn::GetLane(exp(d, hn::Set(d, *g))));
        continue;
      }
      const std::int64_t apart = of_.log_decay.stride(3);
      for (std::int64_t i = 0; i < keys_; ++i) decay[i] = g[i * apart];
      std::fill(decay + keys_, decay + padded_keys_, T{0});
      for_each_vector(d, keys_, [&](auto part, std::int64_t i) HWY_ATTR {
        part.store(exp(d, part.load(d, decay + i)), d, decay + i);
      });
    }
  }

  /// A tile of a contiguous [dk, dv], or zeros, with zeros in what pads it.
  void load_state(const T* from, const Columns& columns, T* to) const {
    for (std::int64_t i = 0; i < padded_keys_; ++i, to += columns.padded) {
      const bool there = from && i < keys_;
      if (there) std::copy_n(from + i * width_ + columns.left, columns.count, to);
      std::fill(to + (there ? columns.count : 0), to + columns.padded, T{0});
    }
  }
  void store_state(const T* from, const Columns& columns, T* to) const {
    for (std::int64_t i = 0; i < keys_; ++i)
      std::copy_n(from + i * columns.padded, columns.count, to + i * width_ + columns.left);
  }
  const T* state_data(const Tensor& states, std::int64_t index) const {
    return states.defined() ? states.data<T>() + index * keys_ * width_ : nullptr;
  }

  /// written = x - r S', out of x.
  void read(const T* s, const T* r, const T* decay, const Columns& columns, T* written) const {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t i = 0; i < padded_keys_; i += rows_at_once) {
      const T* const block = s + i * columns.padded;
      Vec by[rows_at_once];
      unrolled<rows_at_once>([&](auto n)
                                 HWY_ATTR { by[n] = hn::Set(d, g_ ? r[i + n] * decay[i + n] : r[i + n]); });
      for (std::int64_t c = 0; c < columns.padded; c += lanes) {
        auto sum = hn::Zero(d);
        unrolled<rows_at_once>([&](auto n) HWY_ATTR {
          sum = hn::NegMulAdd(by[n], hn::Load(d, block + n * columns.padded + c), sum);
        });
        hn::Store(hn::Add(hn::Load(d, written + c), sum), d, written + c);
      }
    }
  }

  /// Values of some tokens for a block of rows, each in all lanes.
  template <int tokens>
  using Spread = Vec[tokens][rows_at_once];
  /// Spreads what [tokens, padded keys] has for the block of rows at `from`.
  template <int tokens>
  HWY_INLINE void spread(const T* from, Spread<tokens>& to) const {
    unrolled<tokens>([&](auto u) HWY_ATTR {
      unrolled<rows_at_once>([&](auto n) HWY_ATTR { to[u][n] = hn::Set(D(), from[u * padded_keys_ + n]); });
    });
  }
  template <int tokens>
  HWY_INLINE static void clear(Spread<tokens>& sums) {
    unrolled<tokens>([&](auto u) HWY_ATTR {
      unrolled<rows_at_once>([&](auto n) HWY_ATTR { sums[u][n] = hn::Zero(D()); });
    });
  }
  /// Stores the sums of lanes as the block of rows of [tokens, padded keys] at `to`.
  template <int tokens>
  HWY_INLINE void store_sums(const Spread<tokens>& sums, T* to) const {
    unrolled<tokens>([&](auto u) HWY_ATTR {
      lane_sums(D(), sums[u][0], sums[u][1], sums[u][2], sums[u][3], to + u * padded_keys_);
    });
  }
  /// A vector of columns in a block of rows that are `apart`.
  HWY_INLINE static void load_rows(const T* from, std::int64_t apart, Vec (&to)[rows_at_once]) {
    unrolled<rows_at_once>([&](auto n) HWY_ATTR { to[n] = hn::Load(D(), from + n * apart); });
  }
  HWY_INLINE static void store_rows(const Vec (&from)[rows_at_once], std::int64_t apart, T* to) {
    unrolled<rows_at_once>([&](auto n) HWY_ATTR { hn::Store(from[n], D(), to + n * apart); });
  }

  /// next = diag(decay) s + k^T v + w^T written for each of `tokens` tokens, which take turns while a part of
  /// the state is in registers; out += q next where there is an out. `next` may be s.
  template <bool decays, bool adds, bool overwrites, int tokens>
  void change(const T* s, const Chunk& at, std::int64_t step, const T* written, const Columns& columns,
              T* out, T* next) const {
    static_assert(tokens == 1 || !overwrites, "what a token writes depends on the state before it");
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t first = step * padded_keys_;
    const T *const q = at.q + first, *const k = at.k + first, *const w = at.w + first,
                   *const decay = at.decay + first, *const v = at.v + step * columns.padded;
    for (std::int64_t i = 0; i < padded_keys_; i += rows_at_once) {
      const T* const from = s + i * columns.padded;
      T* const to = next + i * columns.padded;
      Spread<tokens> fading, added, writing, asking;
      if constexpr (decays) spread<tokens>(decay + i, fading);
      if constexpr (adds) spread<tokens>(k + i, added);
      if constexpr (overwrites) spread<tokens>(w + i, writing);
      spread<tokens>(q + i, asking);
      for (std::int64_t c = 0; c < columns.padded; c += lanes) {
        Vec state[rows_at_once];
        load_rows(from + c, columns.padded, state);
        unrolled<tokens>([&](auto u) HWY_ATTR {
          auto sum = hn::Zero(d), value = sum, overwriting = sum;
          if constexpr (adds) value = hn::Load(d, v + u * columns.padded + c);
          if constexpr (overwrites) overwriting = hn::Load(d, written + c);
          unrolled<rows_at_once>([&](auto n) HWY_ATTR {
            if constexpr (decays) state[n] = hn::Mul(state[n], fading[u][n]);
            if constexpr (adds) state[n] = hn::MulAdd(added[u][n], value, state[n]);
            if constexpr (overwrites) state[n] = hn::MulAdd(writing[u][n], overwriting, state[n]);
            sum = hn::MulAdd(asking[u][n], state[n], sum);
          });
          if (T* const total = out ? out + u * columns.padded + c : nullptr)
            hn::Store(hn::Add(hn::Load(d, total), sum), d, total);
        });
        store_rows(state, columns.padded, to + c);
      }
    }
  }

  /// Calls body(decays), and body(decays, adds, overwrites), with constants.
  template <class Body>
  void by_decay(const Body& body) const {
    g_ ? body(std::true_type()) : body(std::false_type());
  }
  template <class Body>
  void by_kind(const Body& body) const {
    constexpr std::true_type yes;
    constexpr std::false_type no;
    by_decay([&](auto decays) HWY_ATTR {
      if (!r_) return body(decays, yes, no);
      k_ ? body(decays, yes, yes) : body(decays, no, yes);
    });
  }

  /// Calls body(step, tokens) for the tokens of a chunk in order, two at once while there are two.
  template <class Body>
  static void in_pairs(std::int64_t count, const Body& body) {
    std::int64_t step = 0;
    for (; step + 2 <= count; step += 2) body(step, std::integral_constant<int, 2>());
    if (step < count) body(step, std::integral_constant<int, 1>());
  }
  /// The same in reverse order; `step` is the first of its tokens.
  template <class Body>
  static void in_pairs_back(std::int64_t count, const Body& body) {
    std::int64_t step = count;
    for (; step >= 2; step -= 2) body(step - 2, std::integral_constant<int, 2>());
    if (step > 0) body(0, std::integral_constant<int, 1>());
  }

  void forward_tile(std::int64_t row, std::int64_t left, const Tensor& out, const Tensor& written,
                    const Tensor& states, const Tensor& last) const {
    const Columns columns = columns_from(left);
    const std::int64_t state_size = padded_keys_ * columns.padded, chunks = ceil_div(length_, chunk);
    Parts parts{thread_scratch<T>(
        recurrence_slot,
        static_cast<std::size_t>(chunk * (key_buffers * padded_keys_ + column_buffers * columns.padded) +
                                 state_size))};
    T* const s = parts.take(state_size);
    Chunk at = make_chunk(parts, columns);
    load_state(state_data(of_.state, row), columns, s);
    for (std::int64_t c = 0; c < chunks; ++c) {
      if (states.defined()) store_state(s, columns, states.data<T>() + (row * chunks + c) * keys_ * width_);
      at.first = c * chunk, at.count = std::min(chunk, length_ - at.first);
      load_keys(row, at);
      load(v_, row, at, left, columns.count, columns.padded, at.v);
      if (r_) load(x_, row, at, left, columns.count, columns.padded, at.x);
      std::fill_n(at.out, at.count * columns.padded, T{0});
      by_kind([&](auto decays, auto adds, auto overwrites) HWY_ATTR {
        if constexpr (overwrites)
          for (std::int64_t step = 0; step < at.count; ++step) {
            T* const x = at.x + step * columns.padded;
            read(s, at.r + step * padded_keys_, at.decay + step * padded_keys_, columns, x);
            change<decays, adds, true, 1>(s, at, step, x, columns, at.out + step * columns.padded, s);
          }
        else
          in_pairs(at.count, [&](std::int64_t step, auto tokens) HWY_ATTR {
            change<decays, adds, false, tokens>(s, at, step, nullptr, columns, at.out + step * columns.padded,
                                                s);
          });
      });
      store(at.out, row, at, columns, out);
      if (written.defined()) store(at.x, row, at, columns, written);
    }
    store_state(s, columns, last.data<T>() + row * keys_ * width_);
  }

  /// Sums over columns for each row of S, of one token; q and k of two.
  struct RowSums {
    T *q, *k, *w, *r, *g;  // [padded keys] for each token
  };
  static constexpr std::int64_t sum_buffers = 7;

  /// s = diag(decay) s + k^T v for each of `tokens` tokens, and the gradient of its q, s grad.
  template <bool decays, int tokens>
  void change_with_query_gradient(T* s, const Chunk& at, std::int64_t step, const Columns& columns,
                                  const RowSums& sums) const {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const T *const k = at.k + step * padded_keys_, *const decay = at.decay + step * padded_keys_,
                   *const v = at.v + step * columns.padded, *const grad = at.out + step * columns.padded;
    for (std::int64_t i = 0; i < padded_keys_; i += rows_at_once) {
      Spread<tokens> fading, added, dq;
      if constexpr (decays) spread<tokens>(decay + i, fading);
      spread<tokens>(k + i, added);
      clear<tokens>(dq);
      for (std::int64_t c = 0; c < columns.padded; c += lanes) {
        Vec state[rows_at_once];
        T* const here = s + i * columns.padded + c;
        load_rows(here, columns.padded, state);
        unrolled<tokens>([&](auto u) HWY_ATTR {
          const auto value = hn::Load(d, v + u * columns.padded + c),
                     of_out = hn::Load(d, grad + u * columns.padded + c);
          unrolled<rows_at_once>([&](auto n) HWY_ATTR {
            if constexpr (decays) state[n] = hn::Mul(state[n], fading[u][n]);
            state[n] = hn::MulAdd(added[u][n], value, state[n]);
            dq[u][n] = hn::MulAdd(state[n], of_out, dq[u][n]);
          });
        });
        store_rows(state, columns.padded, here);
      }
      store_sums<tokens>(dq, sums.q + i);
    }
  }

  /// Takes `tokens` tokens back, from the last, in a recurrence that only adds: ds becomes the gradient of
  /// the state before them. Computes the gradients of k, and adds that of v to dv.
  template <bool decays, int tokens>
  void back_to_added(const Chunk& at, std::int64_t step, const Columns& columns, T* ds, T* dv,
                     const RowSums& sums) const {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t first = step * padded_keys_;
    const T *const q = at.q + first, *const k = at.k + first, *const decay = at.decay + first,
                   *const grad = at.out + step * columns.padded, *const v = at.v + step * columns.padded;
    for (std::int64_t i = 0; i < padded_keys_; i += rows_at_once) {
      Spread<tokens> asking, added, fading, dk;
      spread<tokens>(q + i, asking);
      spread<tokens>(k + i, added);
      if constexpr (decays) spread<tokens>(decay + i, fading);
      clear<tokens>(dk);
      for (std::int64_t c = 0; c < columns.padded; c += lanes) {
        Vec slope[rows_at_once];
        T* const here = ds + i * columns.padded + c;
        load_rows(here, columns.padded, slope);
        unrolled<tokens>([&](auto back) HWY_ATTR {
          constexpr int u = tokens - 1 - static_cast<int>(back);
          const std::int64_t column = u * columns.padded + c;
          const auto of_out = hn::Load(d, grad + column), value = hn::Load(d, v + column);
          auto of_value = hn::Zero(d);
          unrolled<rows_at_once>([&](auto n) HWY_ATTR {
            slope[n] = hn::MulAdd(asking[u][n], of_out, slope[n]);
            dk[u][n] = hn::MulAdd(slope[n], value, dk[u][n]);
            of_value = hn::MulAdd(added[u][n], slope[n], of_value);
            if constexpr (decays) slope[n] = hn::Mul(slope[n], fading[u][n]);
          });
          hn::Store(hn::Add(hn::Load(d, dv + column), of_value), d, dv + column);
        });
        store_rows(slope, columns.padded, here);
      }
      store_sums<tokens>(dk, sums.k + i);
    }
  }

  /// The gradient of q: S_t grad.
  void add_query_gradient(const T* s, const T* grad, const Columns& columns, const RowSums& sums) const {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t i = 0; i < padded_keys_; i += rows_at_once) {
      Vec dq[rows_at_once] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (std::int64_t c = 0; c < columns.padded; c += lanes) {
        const auto of_out = hn::Load(d, grad + c);
        unrolled<rows_at_once>([&](auto n) HWY_ATTR {
          dq[n] = hn::MulAdd(hn::Load(d, s + (i + n) * columns.padded + c), of_out, dq[n]);
        });
      }
      lane_sums(d, dq[0], dq[1], dq[2], dq[3], sums.q + i);
    }
  }

  /// Adds q^T grad to ds, which is then the gradient of S_t, and computes the gradients that follow
  /// from it: those of k and w by rows, that of v (added to dv) and that of the written value
  /// (added to dx).
  template <bool adds, bool overwrites>
  void backward_update(const Chunk& at, std::int64_t step, const Columns& columns, T* ds, T* dv, T* dx,
                       const RowSums& sums) const {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t first = step * padded_keys_;
    const T *const q = at.q + first, *const k = at.k + first, *const w = at.w + first;
    const T *const grad = at.out + step * columns.padded, *const v = at.v + step * columns.padded,
                   *const x = at.x + step * columns.padded;
    for (std::int64_t i = 0; i < padded_keys_; i += rows_at_once) {
      Vec asking[rows_at_once], added[rows_at_once], writing[rows_at_once];
      Vec dk[rows_at_once], dw[rows_at_once];
      unrolled<rows_at_once>([&](auto n) HWY_ATTR {
        asking[n] = hn::Set(d, q[i + n]);
        if constexpr (adds) added[n] = hn::Set(d, k[i + n]), dk[n] = hn::Zero(d);
        if constexpr (overwrites) writing[n] = hn::Set(d, w[i + n]), dw[n] = hn::Zero(d);
      });
      for (std::int64_t c = 0; c < columns.padded; c += lanes) {
        const auto of_out = hn::Load(d, grad + c);
        auto of_value = hn::Zero(d), of_written = of_value, value = of_value, written = of_value;
        if constexpr (adds) value = hn::Load(d, v + c);
        if constexpr (overwrites) written = hn::Load(d, x + c);
        unrolled<rows_at_once>([&](auto n) HWY_ATTR {
          T* const here = ds + (i + n) * columns.padded + c;
          const auto slope = hn::MulAdd(asking[n], of_out, hn::Load(d, here));
          hn::Store(slope, d, here);
          if constexpr (adds) {
            dk[n] = hn::MulAdd(slope, value, dk[n]);
            of_value = hn::MulAdd(added[n], slope, of_value);
          }
          if constexpr (overwrites) {
            dw[n] = hn::MulAdd(slope, written, dw[n]);
            of_written = hn::MulAdd(writing[n], slope, of_written);
          }
        });
        if constexpr (adds) hn::Store(hn::Add(hn::Load(d, dv + c), of_value), d, dv + c);
        if constexpr (overwrites) hn::Store(hn::Add(hn::Load(d, dx + c), of_written), d, dx + c);
      }
      if constexpr (adds) lane_sums(d, dk[0], dk[1], dk[2], dk[3], sums.k + i);
      if constexpr (overwrites) lane_sums(d, dw[0], dw[1], dw[2], dw[3], sums.w + i);
    }
  }

  /// Turns ds into the gradient of S_{t-1}, whose values are s, and computes the gradients of r and
  /// g by rows.
  template <bool decays, bool overwrites>
  void back_to_reading(const T* s, const Chunk& at, std::int64_t step, const Columns& columns, T* ds,
                       const T* dx, const RowSums& sums) const {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const T *const r = at.r + step * padded_keys_, *const decay = at.decay + step * padded_keys_;
    for (std::int64_t i = 0; i < padded_keys_; i += rows_at_once) {
      Vec fading[rows_at_once], reading[rows_at_once], dr[rows_at_once], dg[rows_at_once];
      unrolled<rows_at_once>([&](auto n) HWY_ATTR {
        if constexpr (decays) fading[n] = hn::Set(d, decay[i + n]), dg[n] = hn::Zero(d);
        if constexpr (overwrites) reading[n] = hn::Set(d, r[i + n]), dr[n] = hn::Zero(d);
      });
      for (std::int64_t c = 0; c < columns.padded; c += lanes) {
        auto of_written = hn::Zero(d);
        if constexpr (overwrites) of_written = hn::Load(d, dx + c);
        unrolled<rows_at_once>([&](auto n) HWY_ATTR {
          const std::int64_t here = (i + n) * columns.padded + c;
          auto faded = hn::Load(d, s + here), slope = hn::Load(d, ds + here);
          if constexpr (decays) faded = hn::Mul(faded, fading[n]);
          if constexpr (overwrites) {
            dr[n] = hn::NegMulAdd(faded, of_written, dr[n]);
            slope = hn::NegMulAdd(reading[n], of_written, slope);
          }
          if constexpr (decays) {
            dg[n] = hn::MulAdd(slope, faded, dg[n]);
            slope = hn::Mul(slope, fading[n]);
          }
          hn::Store(slope, d, ds + here);
        });
      }
      if constexpr (decays) lane_sums(d, dg[0], dg[1], dg[2], dg[3], sums.g + i);
      if constexpr (overwrites) lane_sums(d, dr[0], dr[1], dr[2], dr[3], sums.r + i);
    }
  }

  /// The buffers of a backward pass over one head, for a tile of columns.
  struct Walk {
    std::int64_t row;
    Columns columns;
    Chunk at;
    T *s, *ds, *dv;  // states, the gradient of one, and those of a chunk's values
    RowSums sums;
    Vectors<T> dq, dk, dr, dw, dg;
  };

  /// Writes sums of rows to a token's gradient; tiles but the first add to it.
  void put(const Vectors<T>& to, const Walk& walk, std::int64_t step, const T* sums) const {
    T* const at = to.at(walk.row / heads_, walk.row % heads_, token(walk.at.first + step));
    const bool first = walk.columns.left == 0;
    for (std::int64_t i = 0; i < keys_; ++i) at[i] = first ? sums[i] : at[i] + sums[i];
  }
  void put_decay(const Walk& walk, std::int64_t step) const {
    if (!scalar_decay_) return put(walk.dg, walk, step, walk.sums.g);
    T* const at = walk.dg.at(walk.row / heads_, walk.row % heads_, token(walk.at.first + step));
    T total = walk.columns.left == 0 ? T{0} : *at;
    for (std::int64_t i = 0; i < keys_; ++i) total += walk.sums.g[i];
    *at = total;
  }

  void load_chunk(Walk& walk, std::int64_t c, const Tensor& written, const Tensor& grad) const {
    Chunk& at = walk.at;
    const Columns& columns = walk.columns;
    at.first = c * chunk, at.count = std::min(chunk, length_ - at.first);
    load_keys(walk.row, at);
    load(v_, walk.row, at, columns.left, columns.count, columns.padded, at.v);
    load(written, walk.row, at, columns.left, columns.count, columns.padded, at.x);
    load(grad, walk.row, at, columns.left, columns.count, columns.padded, at.out);
    std::fill_n(walk.dv, at.count * columns.padded, T{0});
    std::fill_n(at.dwritten, at.count * columns.padded, T{0});
  }

  /// Computes a token's step back, from the states before and after it.
  template <bool decays, bool adds, bool overwrites>
  void step_back(const Walk& walk, std::int64_t step, const T* before, const T* after) const {
    T *const dv = walk.dv + step * walk.columns.padded, *const dx =
                                                            walk.at.dwritten + step * walk.columns.padded;
    add_query_gradient(after, walk.at.out + step * walk.columns.padded, walk.columns, walk.sums);
    backward_update<adds, overwrites>(walk.at, step, walk.columns, walk.ds, dv, dx, walk.sums);
    if constexpr (decays || overwrites)
      back_to_reading<decays, overwrites>(before, walk.at, step, walk.columns, walk.ds, dx, walk.sums);
    put(walk.dq, walk, step, walk.sums.q);
    if constexpr (adds) put(walk.dk, walk, step, walk.sums.k);
    if constexpr (overwrites) put(walk.dw, walk, step, walk.sums.w), put(walk.dr, walk, step, walk.sums.r);
    if constexpr (decays)
      if (walk.dg) put_decay(walk, step);
  }

  /// Processes all tokens of one head, for a tile of columns. With `states`, walks back over those
  /// of each chunk. Without, only q depends on the states, so they are passed over once, from the
  /// first to the last, and their gradient separately.
  void backward_tile(std::int64_t row, std::int64_t left, const Tensor& written, const Tensor& states,
                     const Tensor& grad, const Tensor& last_grad, const Recurrence& gradients) const {
    const Columns columns = columns_from(left);
    const std::int64_t state_size = padded_keys_ * columns.padded, chunks = ceil_div(length_, chunk),
                       kept = states.defined() ? chunk + 1
                                               : 1;  // before the first token of a chunk, and after each
    Parts parts{thread_scratch<T>(
        recurrence_slot, static_cast<std::size_t>(
                             chunk * (key_buffers * padded_keys_ + (column_buffers + 1) * columns.padded) +
                             (kept + 1) * state_size + sum_buffers * padded_keys_))};
    Walk walk{row,
              columns,
              {},
              parts.take(kept * state_size),
              parts.take(state_size),
              parts.take(chunk * columns.padded),
              {},
              gradients.query,
              gradients.key,
              gradients.reading,
              gradients.writing,
              gradients.log_decay};
    walk.at = make_chunk(parts, columns);
    for (T** one : {&walk.sums.q, &walk.sums.k}) *one = parts.take(2 * padded_keys_);
    for (T** one : {&walk.sums.w, &walk.sums.r, &walk.sums.g}) *one = parts.take(padded_keys_);
    T *const s = walk.s, *const ds = walk.ds;
    Chunk& at = walk.at;
    load_state(state_data(last_grad, row), columns, ds);
    if (!states.defined()) {
      load_state(state_data(of_.state, row), columns, s);
      for (std::int64_t c = 0; c < chunks; ++c) {
        load_chunk(walk, c, written, grad);
        by_decay([&](auto decays) HWY_ATTR {
          in_pairs(at.count, [&](std::int64_t step, auto tokens) HWY_ATTR {
            change_with_query_gradient<decays, tokens>(s, at, step, columns, walk.sums);
            for (int u = 0; u < tokens; ++u) put(walk.dq, walk, step + u, walk.sums.q + u * padded_keys_);
          });
        });
      }
    }
    for (std::int64_t c = chunks - 1; c >= 0; --c) {
      load_chunk(walk, c, written, grad);
      if (states.defined()) {
        load_state(state_data(states, row * chunks + c), columns, s);
        by_kind([&](auto decays, auto adds, auto overwrites) HWY_ATTR {
          for (std::int64_t step = 0; step < at.count; ++step)
            change<decays, adds, overwrites, 1>(s + step * state_size, at, step, at.x + step * columns.padded,
                                                columns, nullptr, s + (step + 1) * state_size);
          for (std::int64_t step = at.count - 1; step >= 0; --step)
            step_back<decays, adds, overwrites>(walk, step, s + step * state_size,
                                                s + (step + 1) * state_size);
        });
      } else {
        by_decay([&](auto decays) HWY_ATTR {
          in_pairs_back(at.count, [&](std::int64_t step, auto tokens) HWY_ATTR {
            back_to_added<decays, tokens>(at, step, columns, ds, walk.dv + step * columns.padded, walk.sums);
            for (int u = 0; u < tokens; ++u) put(walk.dk, walk, step + u, walk.sums.k + u * padded_keys_);
          });
        });
      }
      if (gradients.value.defined()) store(walk.dv, row, at, columns, gradients.value);
      if (gradients.target.defined()) store(at.dwritten, row, at, columns, gradients.target);
    }
    store_state(ds, columns, gradients.state.data<T>() + row * keys_ * width_);
  }

  const Recurrence& of_;
  std::int64_t heads_, length_, keys_, width_, padded_keys_, tile_;
  Vectors<T> q_, k_, v_, g_, r_, w_, x_;
  bool scalar_decay_;
};

void recurrence_forward_tensor(const Recurrence& of, const Tensor& out, const Tensor& written,
                               const Tensor& states, const Tensor& last) {
  with_floating_type(of.query.dtype(),
                     [&]<class T>(T) { Recurrent<T>(of, out.size(3)).forward(out, written, states, last); });
}

void recurrence_backward_tensor(const Recurrence& of, const Tensor& written, const Tensor& states,
                                const Tensor& grad, const Tensor& last_grad, const Recurrence& gradients) {
  with_floating_type(of.query.dtype(), [&]<class T>(T) {
    Recurrent<T>(of, grad.size(3)).backward(written, states, grad, last_grad, gradients);
  });
}

}  // namespace
}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(recurrence_forward_tensor);
HWY_EXPORT(recurrence_backward_tensor);

void recurrence_forward(const Recurrence& of, const Tensor& out, const Tensor& written, const Tensor& states,
                        const Tensor& last) {
  const ProfileScope profile("recurrence", recurrence_flops(of, out.size(3)), 0);
  HWY_DYNAMIC_DISPATCH(recurrence_forward_tensor)(of, out, written, states, last);
}

void recurrence_backward(const Recurrence& of, const Tensor& written, const Tensor& states,
                         const Tensor& grad, const Tensor& last_grad, const Recurrence& gradients) {
  const ProfileScope profile("recurrence backward", recurrence_backward_flops(of, grad.size(3)), 0);
  HWY_DYNAMIC_DISPATCH(recurrence_backward_tensor)(of, written, states, grad, last_grad, gradients);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
