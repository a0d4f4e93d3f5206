#include <algorithm>
#include <limits>

#include "heed/backends/cpu/attention.h"
#include "heed/backends/kernels.h"
#include "heed/base/error.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

// Attention without the N x M matrix: scores are computed for a tile of queries and keys at a time
// and combined by the online softmax (Rabe and Staats, arXiv 2112.05682; Dao et al.,
// FlashAttention, arXiv 2205.14135).

namespace heed::cpu {
namespace {

/// Copies a tensor with overlapping rows (a row stride below the width), which BLAS cannot
/// take; returns any other as is.
Tensor with_separate_rows(const Tensor& x) {
  if (x.size(2) <= 1 || x.stride(2) >= x.size(3)) return x;
  const Tensor rows = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy(x, rows);
  return rows;
}

AttentionArgs with_separate_rows(AttentionArgs args) {
  for (Tensor* x : {&args.query, &args.key, &args.value}) *x = with_separate_rows(*x);
  return args;
}

/// Returns how many tasks to combine into one when they are so small that waking a thread would
/// cost more. It depends only on the shapes.
std::int64_t tasks_per_call(double flops, std::int64_t tasks) {
  constexpr double flops_per_call = 1e6;  // about 10 us
  if (tasks == 0) return 1;
  const double each = std::max(flops / static_cast<double>(tasks), 1.0);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(flops_per_call / each), 1, tasks);
}

/// The keys of the tile that this thread computes, whose memory the next tile uses again.
KeyTile& key_tile() {
  thread_local KeyTile keys;
  return keys;
}

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

    KeyTile& keys = key_tile();
    AttentionPlan::Walk walk(plan_, h, queries, 0, plan_.real_keys(b));
    for (bool first = true; walk.next(keys); first = false) {
      const ScoreTile<T> tile = scores_.tile(b, h, queries, keys);
      kernels_.softmax(tile, tile_dropout(args_, plan_, b, h, queries.begin, keys), maximum, sum, rescale);
      if (!first)
        kernels_.scale_rows(out_.at(b, h, queries.begin), out_.stride(), rows, out_.width(), rescale);
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
      if (uses_row_products(tile.rows)) {
        for (std::int64_t r = 0; r < tile.rows; ++r)
          row_products<T>().row_times_matrix(weights + r * tile.stride, value, value_.stride(), segment.count,
                                             value_.width(), !first, out + r * out_.stride());
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
    kernels_.scale_rows(out_.at(b, h, queries.begin), out_.stride(), queries.rows(), out_.width(), sum);
  }

  const TileKernels<T> kernels_ = tile_kernels<T>();
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

// The backward pass recomputes the weights tile by tile, from each row's largest score and the sum of
// exp(score - largest) (FlashAttention, arXiv 2205.14135, section 3.1 and appendix B.4). With weights w,
// dropout factors k, output o and its gradient g:
//   dV = (w k)^T g,   dw = g V^T k,   ds = w (dw - sum_j w_j dw_j) = w (dw - o . g),
//   dQ = scale ds K,  dK = scale ds^T Q,  and dbias = ds, summed over the heads that share the bias.
// A gradient l of log_sum_exp adds w l to ds, so it is subtracted in delta = o . g - l.

// With at least this many scores per head, fewer than few_heads groups are also cut along queries and keys
// (7 products instead of 5).
constexpr std::int64_t scores_of_long_head = 512 * 512, few_heads = 8;

template <class T>
class Backward {
 public:
  Backward(const AttentionArgs& args, const AttentionPlan& plan, const Tensor& out, const Tensor& sums,
           const Tensor& grad, const Tensor& log_sum_exp_grad, const Tensor& dquery, const Tensor& dkey,
           const Tensor& dvalue, const BiasGradient<T>& bias_gradient)
      : args_(args),
        plan_(plan),
        sums_(sums),
        log_sum_exp_grad_(log_sum_exp_grad),
        scores_(args, plan),
        query_(args.query),
        key_(args.key),
        value_(args.value),
        out_(out),
        grad_(grad),
        dquery_(dquery),
        dkey_(dkey),
        dvalue_(dvalue),
        bias_gradient_(bias_gradient) {}

  /// Computes all gradients for the heads of one group.
  void whole_heads(std::int64_t group) const {
    bias_gradient_.clear(group, 0, plan_.queries);
    bias_gradient_.for_each_head(group, [&](std::int64_t b, std::int64_t h) {
      clear_keys({b, h}, 0, plan_.keys);
      for (std::int64_t t = 0; t < plan_.tile_count(); ++t) {
        add_tile({b, h}, plan_.query_tile(t), 0, plan_.keys, {.queries = true, .keys = true});
      }
    });
  }

  /// Computes dQ and the bias gradient for one query tile of the heads of a group.
  void queries_only(std::int64_t task) const {
    const std::int64_t group = task / plan_.tile_count();
    const QueryTile queries = plan_.query_tile(task % plan_.tile_count());
    bias_gradient_.clear(group, queries.begin, queries.end);
    bias_gradient_.for_each_head(group, [&](std::int64_t b, std::int64_t h) {
      add_tile({b, h}, queries, 0, plan_.keys, {.queries = true});
    });
  }

  /// Computes dK and dV for one piece of keys.
  void keys_only(std::int64_t task) const {
    const std::int64_t pieces = key_pieces(), head = task / pieces;
    const std::int64_t begin = task % pieces * plan_.piece(),
                       end = std::min(plan_.keys, begin + plan_.piece());
    const Place place{head / plan_.heads, head % plan_.heads};
    clear_keys(place, begin, end);
    for (std::int64_t t = 0; t < plan_.tile_count(); ++t) {
      add_tile(place, plan_.query_tile(t), begin, end, {.keys = true});
    }
  }
  std::int64_t key_pieces() const { return ceil_div(plan_.keys, plan_.piece()); }

 private:
  struct Place {
    std::int64_t b, h;
  };
  struct Wanted {
    bool queries = false, keys = false;
  };
  /// Returns whether gradients of the logits are needed; otherwise only dV is.
  bool of_logits() const { return dquery_.defined() || bias_gradient_.wanted(); }

  void clear_keys(const Place& at, std::int64_t begin, std::int64_t end) const {
    for (const Panels<T>* panels : {&dkey_, &dvalue_}) {
      if (!panels->defined()) continue;
      for (std::int64_t j = begin; j < end; ++j)
        std::fill_n(panels->at(at.b, at.h, j), panels->width(), T{0});
    }
  }

  /// Adds the contribution of one query tile and the keys [key_begin, key_end).
  void add_tile(const Place& at, const QueryTile& queries, std::int64_t key_begin, std::int64_t key_end,
                Wanted wanted) const {
    const std::int64_t rows = queries.rows();
    if (rows == 0) return;
    KeyTile& keys = key_tile();
    AttentionPlan::Walk walk(plan_, at.h, queries, key_begin, std::min(key_end, plan_.real_keys(at.b)));
    T* largest = thread_scratch<T>(row_slot, static_cast<std::size_t>(3 * max_tile_rows));
    T *inverse_sum = largest + max_tile_rows, *delta = inverse_sum + max_tile_rows;
    bool first = true;
    for (; walk.next(keys); first = false) {
      if (first) row_values(at, queries, largest, inverse_sum, delta);
      const ScoreTile<T> tile = scores_.tile(at.b, at.h, queries, keys);
      T* dscores = of_logits() ? weight_gradients(at, queries, keys, tile.stride) : nullptr;
      kernels_.softmax_backward(tile, tile_dropout(args_, plan_, at.b, at.h, queries.begin, keys), dscores,
                                SoftmaxRows<T>{largest, inverse_sum, delta});
      if (wanted.queries) {
        if (dquery_.defined()) add_to_queries(at, queries, keys, dscores, tile.stride, first);
        bias_gradient_.add(at.b, at.h, queries, keys, dscores, tile.stride);
      }
      if (wanted.keys) add_to_keys(at, queries, keys, tile, dscores);
    }
    if (first && wanted.queries && dquery_.defined()) {
      for (std::int64_t i = queries.begin; i < queries.end; ++i) {
        std::fill_n(dquery_.at(at.b, at.h, i), dquery_.width(), T{0});
      }
    }
  }

  void row_values(const Place& at, const QueryTile& queries, T* largest, T* inverse_sum, T* delta) const {
    const std::int64_t row = (at.b * plan_.heads + at.h) * plan_.queries + queries.begin;
    const T* sums = sums_.data<T>() + 2 * row;
    for (std::int64_t r = 0; r < queries.rows(); ++r) {
      largest[r] = sums[2 * r];
      inverse_sum[r] = sums[2 * r + 1] == T{0} ? T{0} : T{1} / sums[2 * r + 1];
    }
    if (of_logits())
      kernels_.row_dots(out_.at(at.b, at.h, queries.begin), out_.stride(),
                        grad_.at(at.b, at.h, queries.begin), grad_.stride(), queries.rows(), out_.width(),
                        delta);
    if (!log_sum_exp_grad_.defined() || !of_logits()) return;
    const T* dscore = log_sum_exp_grad_.data<T>() + row;
    for (std::int64_t r = 0; r < queries.rows(); ++r) delta[r] -= dscore[r];
  }

  /// g V^T.
  T* weight_gradients(const Place& at, const QueryTile& queries, const KeyTile& keys,
                      std::int64_t stride) const {
    T* dscores = thread_scratch<T>(gradient_slot, static_cast<std::size_t>(queries.rows() * stride));
    for (const Segment& segment : keys.segments) {
      gemm<T>(false, true, queries.rows(), segment.count, value_.width(), T{1},
              grad_.at(at.b, at.h, queries.begin), grad_.stride(), value_.at(at.b, at.h, segment.key),
              value_.stride(), T{0}, dscores + segment.column, stride);
    }
    return dscores;
  }

  void add_to_queries(const Place& at, const QueryTile& queries, const KeyTile& keys, const T* dscores,
                      std::int64_t stride, bool first) const {
    for (const Segment& segment : keys.segments) {
      gemm<T>(false, false, queries.rows(), key_.width(), segment.count, static_cast<T>(args_.scale),
              dscores + segment.column, stride, key_.at(at.b, at.h, segment.key), key_.stride(),
              first ? T{0} : T{1}, dquery_.at(at.b, at.h, queries.begin), dquery_.stride());
      first = false;
    }
  }

  void add_to_keys(const Place& at, const QueryTile& queries, const KeyTile& keys,
                   const ScoreTile<T>& weights, const T* dscores) const {
    for (const Segment& segment : keys.segments) {
      gemm<T>(true, false, segment.count, value_.width(), queries.rows(), T{1},
              weights.scores + segment.column, weights.stride, grad_.at(at.b, at.h, queries.begin),
              grad_.stride(), T{1}, dvalue_.at(at.b, at.h, segment.key), dvalue_.stride());
      if (!dkey_.defined()) continue;
      gemm<T>(true, false, segment.count, key_.width(), queries.rows(), static_cast<T>(args_.scale),
              dscores + segment.column, weights.stride, query_.at(at.b, at.h, queries.begin), query_.stride(),
              T{1}, dkey_.at(at.b, at.h, segment.key), dkey_.stride());
    }
  }

  const TileKernels<T> kernels_ = tile_kernels<T>();
  const AttentionArgs& args_;
  const AttentionPlan& plan_;
  const Tensor &sums_, &log_sum_exp_grad_;
  Scores<T> scores_;
  Panels<T> query_, key_, value_, out_, grad_, dquery_, dkey_, dvalue_;
  const BiasGradient<T>& bias_gradient_;
};

template <class T>
void backward(const AttentionArgs& args, const Tensor& out, const Tensor& sums, const Tensor& grad,
              const Tensor& log_sum_exp_grad, const Tensor& dquery, const Tensor& dkey, const Tensor& dvalue,
              const Tensor& dbias) {
  const AttentionPlan plan(args);
  const BiasGradient<T> bias_gradient(dbias, plan);
  const std::int64_t head_count = plan.batch * plan.heads, groups = bias_gradient.groups();
  const bool long_heads = plan.queries * plan.keys >= scores_of_long_head;
  // Few groups are cut if heads are long or share a bias; otherwise each group would be a single task.
  const bool cut = groups < few_heads && (long_heads || bias_gradient.shared());
  const auto key_width = static_cast<double>(args.key.size(3)),
             value_width = static_cast<double>(args.value.size(3));
  // S for each pass, g V^T for each pass if gradients of the logits are needed, then dV, dQ and dK.
  const bool of_logits = dquery.defined() || bias_gradient.wanted();
  const double passes = cut && of_logits ? 2 : 1;
  const double flops =
      2 * plan.area() *
      (key_width * (passes + (dquery.defined() ? 2 : 0)) + value_width * (1 + (of_logits ? passes : 0)));
  const ProfileScope profile("attention backward", flops, 0);
  const Backward<T> pass(args, plan, out, sums, grad, log_sum_exp_grad, dquery, dkey, dvalue, bias_gradient);
  if (cut) {
    if (of_logits)
      parallel_for(groups * plan.tile_count(), [&](std::int64_t task) { pass.queries_only(task); });
    parallel_for(head_count * pass.key_pieces(), [&](std::int64_t task) { pass.keys_only(task); });
    return;
  }
  parallel_ranges(groups, tasks_per_call(flops, groups), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) pass.whole_heads(group);
  });
}

}  // namespace

void attention_forward(const AttentionArgs& args, const Tensor& out, const Tensor& sums) {
  const auto pass = args.query.dtype() == DType::f64 ? forward<double> : forward<float>;
  pass(with_separate_rows(args), out, sums);
}

void attention_backward(const AttentionArgs& args, const Tensor& out, const Tensor& sums, const Tensor& grad,
                        const Tensor& log_sum_exp_grad, const Tensor& dquery, const Tensor& dkey,
                        const Tensor& dvalue, const Tensor& dbias) {
  const auto pass = args.query.dtype() == DType::f64 ? backward<double> : backward<float>;
  pass(with_separate_rows(args), out, sums, with_separate_rows(grad), log_sum_exp_grad, dquery, dkey, dvalue,
       dbias);
}

}  // namespace heed::cpu
