#pragma once

#include <algorithm>
#include <cstdint>

#include "heed/backends/cpu/attention_scores.h"
#include "heed/backends/cpu/blas.h"
#include "heed/core/tensor.h"

// What the forward and the backward pass of attention share.

namespace heed::cpu {

/// The matrices [rows, width] of a tensor [B, H, rows, width], addressed where they lie; of an undefined one there are none.
template <class T>
class Panels {
 public:
  explicit Panels(const Tensor& tensor) {
    if (!tensor.defined()) return;
    data_ = tensor.data<T>();
    batch_stride_ = tensor.stride(0);
    head_stride_ = tensor.stride(1);
    width_ = tensor.size(3);
    // BLAS wants a row stride of at least the width even where there is one row.
    row_stride_ = std::max(tensor.stride(2), width_);
  }

  bool defined() const { return data_ != nullptr; }

  T* at(std::int64_t b, std::int64_t h, std::int64_t row = 0) const {
    return data_ + b * batch_stride_ + h * head_stride_ + row * row_stride_;
  }
  std::int64_t width() const { return width_; }
  std::int64_t stride() const { return row_stride_; }

 private:
  T* data_ = nullptr;
  std::int64_t batch_stride_ = 0, head_stride_ = 0, width_ = 0, row_stride_ = 0;
};

/// Repeated rows (a row stride below the width) cannot be given to BLAS and are copied; anything else
/// is returned as is.
Tensor with_separate_rows(const Tensor& x);

/// The dropout of one score tile.
inline TileDropout tile_dropout(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t b,
                                std::int64_t h, std::int64_t query, const KeyTile& keys) {
  const std::int64_t row = (b * plan.heads + h) * plan.queries + query;
  return {args.dropout, args.dropout_key,
          static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(plan.keys), plan.keys, &keys.segments};
}

/// Where tasks are so small that waking a thread would cost more, several make one: a number that follows
/// from the shapes alone.
inline std::int64_t tasks_per_call(double flops, std::int64_t tasks) {
  constexpr double flops_per_call = 1e6;  // some 10 us
  if (tasks == 0) return 1;
  const double each = std::max(flops / static_cast<double>(tasks), 1.0);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(flops_per_call / each), 1, tasks);
}

}  // namespace heed::cpu
