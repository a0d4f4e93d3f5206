#include <limits>

#include "heed/backends/cpu/attention.h"
#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/profile.h"

// Attention without the N x M matrix: scores are computed for a tile of queries and keys at a time
// and combined by the online softmax (Rabe and Staats, arXiv 2112.05682; Dao et al.,
// FlashAttention, arXiv 2205.14135).

namespace heed::cpu {

Tensor with_separate_rows(const Tensor& x) {
  if (x.size(2) <= 1 || x.stride(2) >= x.size(3)) return x;
  const Tensor rows = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy(x, rows);
  return rows;
}

namespace {

template <class T>
class Forward {
 public:
  Forward(const AttentionArgs& args, const AttentionPlan& plan, const Tensor& out, const Tensor& sums)
      : args_(args), plan_(plan), scores_(args, plan), value_(args.value), out_(out), sums_(sums.data<T>()) {}

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
      const ScoreTile<T> tile = scores_.tile(b, h, queries, keys);
      softmax_tile(tile, tile_dropout(args_, plan_, b, h, queries.begin, keys), maximum, sum, rescale);
      if (!first) scale_rows(out_.at(b, h, queries.begin), out_.stride(), rows, out_.width(), rescale);
      add_values(b, h, queries, keys, tile, first);
    }
    finish(b, h, queries, maximum, sum);
  }

 private:
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

  /// Divides by the sum of the weights and by the share that dropout keeps, and saves maximum
  /// and sum. Overwrites `sum`.
  void finish(std::int64_t b, std::int64_t h, const QueryTile& queries, const T* maximum, T* sum) const {
    const T kept = args_.dropout < 1 ? static_cast<T>(1 / (1 - args_.dropout)) : T{0};
    T* sums = sums_ + 2 * ((b * plan_.heads + h) * plan_.queries + queries.begin);
    for (std::int64_t r = 0; r < queries.rows(); ++r) {
      sums[2 * r] = maximum[r];
      sums[2 * r + 1] = sum[r];
      sum[r] = sum[r] == T{0} ? T{0} : kept / sum[r];
    }
    scale_rows(out_.at(b, h, queries.begin), out_.stride(), queries.rows(), out_.width(), sum);
  }

  const AttentionArgs& args_;
  const AttentionPlan& plan_;
  Scores<T> scores_;
  Panels<T> value_, out_;
  T* sums_;
};

template <class T>
void forward(const AttentionArgs& args, const Tensor& out, const Tensor& sums) {
  const AttentionPlan plan(args);
  const double flops = 2 * plan.area() * static_cast<double>(args.query.size(3) + args.value.size(3));
  const ProfileScope profile("attention", flops, 0);
  const Forward<T> pass(args, plan, out, sums);
  const std::int64_t tasks = plan.batch * plan.heads * plan.tile_count();
  parallel_ranges(tasks, tasks_per_call(flops, tasks), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) pass.run(task);
  });
}

}  // namespace

void attention_forward(const AttentionArgs& args, const Tensor& out, const Tensor& sums) {
  AttentionArgs separate = args;
  separate.query = with_separate_rows(args.query);
  separate.key = with_separate_rows(args.key);
  separate.value = with_separate_rows(args.value);
  if (args.query.dtype() == DType::f64) {
    forward<double>(separate, out, sums);
  } else {
    forward<float>(separate, out, sums);
  }
}

}  // namespace heed::cpu
