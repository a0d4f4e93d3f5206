#include <cmath>
#include <limits>

#include "heed/backends/cpu/attention_bias.h"
#include "heed/backends/cpu/attention_panels.h"
#include "heed/backends/cpu/attention_single.h"
#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/low_precision.h"
#include "heed/core/profile.h"

// Attention without the N x M matrix: the scores of some queries and some keys at a time, joined by the
// online softmax (Rabe and Staats, arXiv 2112.05682; Dao et al., FlashAttention, arXiv 2205.14135).

namespace heed::cpu {

Tensor with_separate_rows(const Tensor& x) {
  if (x.size(2) <= 1 || x.stride(2) >= x.size(3)) return x;
  const Tensor rows = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy(x, rows);
  return rows;
}

namespace {

// A tile of scores and the keys and values it needs stay in a second-level cache of 512 KiB.
constexpr std::int64_t tile_columns = 512;
// Where a tile has so few rows, as when hypotheses of one sentence look at its source, a general product spends its time
// on packing.
constexpr std::int64_t few_query_rows = 8;

template <class T>
class Forward {
 public:
  Forward(const AttentionArgs& args, const AttentionPlan& plan, const Tensor& out, const Tensor& log_sum_exp)
      : args_(args),
        plan_(plan),
        query_(args.query),
        key_(args.key),
        value_(args.value),
        out_(out),
        bias_(args, plan),
        log_sum_exp_(log_sum_exp.data<T>()) {}

  /// One query tile of one head.
  void run(std::int64_t task) const {
    const std::int64_t head = task / plan_.tile_count(), b = head / plan_.heads, h = head % plan_.heads;
    const QueryTile queries = plan_.query_tile(task % plan_.tile_count());
    const std::int64_t rows = queries.rows();
    if (rows == 0) return;
    T* maximum = thread_scratch<T>(row_slot, static_cast<std::size_t>(3 * max_tile_rows));
    T *sum = maximum + max_tile_rows, *rescale = sum + max_tile_rows;
    std::fill_n(maximum, rows, -std::numeric_limits<T>::infinity());
    std::fill_n(sum, rows, T{0});

    thread_local KeyTile keys;
    AttentionPlan::Walk walk(plan_, h, queries, 0, plan_.real_keys(b));
    for (bool first = true; walk.next(keys); first = false) {
      const ScoreTile<T> tile = scores(b, h, queries, keys);
      softmax_tile(tile, tile_dropout(args_, plan_, b, h, queries.begin, keys), maximum, sum, rescale);
      if (!first) scale_rows(out_.at(b, h, queries.begin), out_.stride(), rows, out_.width(), rescale);
      add_values(b, h, queries, keys, tile, first);
    }
    finish(b, h, queries, maximum, sum);
  }

 private:
  /// Whether a tile is multiplied row by row. Not under Bf16Products: backward's scores are rounded, and so these.
  static bool takes_rows(std::int64_t rows) { return rows <= few_query_rows && !Bf16Products::active(); }

  /// scale Q K^T and what is added to it for one tile, with its mask.
  ScoreTile<T> scores(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& keys) const {
    ScoreTile<T> tile;
    tile.rows = queries.rows();
    tile.columns = keys.columns;
    tile.stride = AttentionPlan::stride_of(keys.columns);
    const auto size = static_cast<std::size_t>(tile.rows * tile.stride);
    tile.scores = thread_scratch<T>(score_slot, size);
    const T* query = query_.at(b, h, queries.begin);
    const T scale = static_cast<T>(args_.scale);
    for (const Segment& segment : keys.segments) {
      const T* key = key_.at(b, h, segment.key);
      T* to = tile.scores + segment.column;
      if (takes_rows(tile.rows)) {
        for (std::int64_t r = 0; r < tile.rows; ++r)
          row_times_transposed(query + r * query_.stride(), key, key_.stride(), segment.count, key_.width(),
                               scale, false, to + r * tile.stride);
      } else {
        gemm<T>(false, true, tile.rows, segment.count, key_.width(), scale, query, query_.stride(), key,
                key_.stride(), T{0}, to, tile.stride);
      }
    }
    bias_.add(b, h, queries, keys, tile.scores, tile.stride);
    tile.mask = plan_.mask(b, h, queries, keys);
    return tile;
  }

  /// out (+)= weights V, not yet normalised.
  void add_values(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& keys,
                  const ScoreTile<T>& tile, bool first) const {
    T* out = out_.at(b, h, queries.begin);
    for (const Segment& segment : keys.segments) {
      const T *weights = tile.scores + segment.column, *value = value_.at(b, h, segment.key);
      if (takes_rows(tile.rows)) {
        for (std::int64_t r = 0; r < tile.rows; ++r)
          row_times_matrix(weights + r * tile.stride, value, value_.stride(), segment.count, value_.width(),
                           !first, out + r * out_.stride());
      } else {
        gemm<T>(false, false, tile.rows, value_.width(), segment.count, T{1}, weights, tile.stride, value,
                value_.stride(), first ? T{0} : T{1}, out, out_.stride());
      }
      first = false;
    }
  }

  /// Divides by the sum of the weights and by the share that dropout keeps. Overwrites `sum`.
  void finish(std::int64_t b, std::int64_t h, const QueryTile& queries, const T* maximum, T* sum) const {
    const T kept = args_.dropout < 1 ? static_cast<T>(1 / (1 - args_.dropout)) : T{0};
    T* log_sum_exp = log_sum_exp_ + (b * plan_.heads + h) * plan_.queries + queries.begin;
    for (std::int64_t r = 0; r < queries.rows(); ++r) {
      log_sum_exp[r] = maximum[r] + std::log(sum[r]);
      sum[r] = sum[r] == T{0} ? T{0} : kept / sum[r];
    }
    scale_rows(out_.at(b, h, queries.begin), out_.stride(), queries.rows(), out_.width(), sum);
  }

  const AttentionArgs& args_;
  const AttentionPlan& plan_;
  Panels<T> query_, key_, value_, out_;
  ScoreBias<T> bias_;
  T* log_sum_exp_;
};

template <class T>
void forward(const AttentionArgs& args, const Tensor& out, const Tensor& log_sum_exp) {
  const AttentionPlan plan(args, tile_rows(args), tile_columns);
  const double flops = 2 * plan.area() * static_cast<double>(args.query.size(3) + args.value.size(3));
  const ProfileScope profile("attention", flops, 0);
  const Forward<T> pass(args, plan, out, log_sum_exp);
  const std::int64_t tasks = plan.batch * plan.heads * plan.tile_count();
  parallel_ranges(tasks, tasks_per_call(flops, tasks), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) pass.run(task);
  });
}

}  // namespace

void attention_forward(const AttentionArgs& args, const Tensor& out, const Tensor& log_sum_exp) {
  AttentionArgs separate = args;
  separate.query = with_separate_rows(args.query);
  separate.key = with_separate_rows(args.key);
  separate.value = with_separate_rows(args.value);
  if (args.query.dtype() == DType::f64) {
    forward<double>(separate, out, log_sum_exp);
  } else {
    forward<float>(separate, out, log_sum_exp);
  }
}

}  // namespace heed::cpu
