#pragma once

#include <algorithm>
#include <cstdint>

#include "heed/backends/cpu/attention_plan.h"
#include "heed/core/tensor.h"

// What attention adds to its logits, on one tile of scores at a time: ALiBi's slopes (Press, Smith and Lewis 2022, arXiv
// 2108.12409, section 3) and a bias. T is float or double.

namespace heed::cpu {

/// scores[r, c] -= slope |position + r - key(c)|, with `position` that of the first row among the keys.
template <class T>
void subtract_distances(T* scores, std::int64_t stride, std::int64_t rows, const KeyTile& keys, T slope,
                        std::int64_t position);

/// to[r, c] += from[r, c].
template <class T>
void add_rows(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t rows,
              std::int64_t columns);

/// Slopes and bias of one call; without them it does nothing.
template <class T>
class ScoreBias {
 public:
  ScoreBias(const AttentionArgs& args, const AttentionPlan& plan)
      : slopes_(args.slopes.defined() ? args.slopes.data<T>() : nullptr),
        bias_(args.bias),
        offset_(plan.keys - plan.queries) {}

  /// Adds them to the scaled scores of a tile.
  void add(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& keys, T* scores,
           std::int64_t stride) const {
    if (slopes_)
      subtract_distances(scores, stride, queries.rows(), keys, slopes_[h], queries.begin + offset_);
    if (!bias_.defined()) return;
    const Shape& steps = bias_.strides();
    const T* rows = bias_.data<T>() + (bias_.size(0) > 1 ? b * steps[0] : 0) +
                    (bias_.size(1) > 1 ? h * steps[1] : 0) + queries.begin * steps[2];
    for (const Segment& segment : keys.segments) {
      add_rows(scores + segment.column, stride, rows + segment.key, steps[2], queries.rows(), segment.count);
    }
  }

 private:
  const T* slopes_;
  const Tensor& bias_;
  std::int64_t offset_;  // of the first query among the keys
};

/// The gradient of the bias, and who shares an entry of it: the heads of a group, which one task adds up in their order.
/// Where no gradient is wanted every head is a group of its own.
template <class T>
class BiasGradient {
 public:
  BiasGradient(const Tensor& dbias, const AttentionPlan& plan)
      : batches_(dbias.defined() ? dbias.size(0) : plan.batch),
        heads_(dbias.defined() ? dbias.size(1) : plan.heads),
        plan_(plan),
        data_(dbias.defined() ? dbias.data<T>() : nullptr) {}

  bool wanted() const { return data_ != nullptr; }
  std::int64_t groups() const { return batches_ * heads_; }
  bool shared() const { return groups() != plan_.batch * plan_.heads; }

  /// visit(b, h) for all heads of a group.
  template <class Visit>
  void for_each_head(std::int64_t group, const Visit& visit) const {
    const std::int64_t one_b = group / heads_, one_h = group % heads_;
    const bool all_b = batches_ != plan_.batch, all_h = heads_ != plan_.heads;
    for (std::int64_t b = all_b ? 0 : one_b; b < (all_b ? plan_.batch : one_b + 1); ++b) {
      for (std::int64_t h = all_h ? 0 : one_h; h < (all_h ? plan_.heads : one_h + 1); ++h) visit(b, h);
    }
  }

  void clear(std::int64_t group, std::int64_t query_begin, std::int64_t query_end) const {
    if (!data_) return;
    T* from = data_ + (group * plan_.queries + query_begin) * plan_.keys;
    std::fill_n(from, (query_end - query_begin) * plan_.keys, T{0});
  }

  /// Adds the gradients of a tile of scores.
  void add(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& keys, const T* slopes,
           std::int64_t stride) const {
    if (!data_) return;
    const std::int64_t group = (batches_ > 1 ? b : 0) * heads_ + (heads_ > 1 ? h : 0);
    T* rows = data_ + (group * plan_.queries + queries.begin) * plan_.keys;
    for (const Segment& segment : keys.segments) {
      add_rows(rows + segment.key, plan_.keys, slopes + segment.column, stride, queries.rows(),
               segment.count);
    }
  }

 private:
  std::int64_t batches_, heads_;
  const AttentionPlan& plan_;
  T* data_;
};

}  // namespace heed::cpu
