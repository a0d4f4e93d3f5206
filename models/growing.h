#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/core/tensor.h"

// What a decoder remembers: a row for each hypothesis, which grows with every token and lies in a block with room for more.

namespace heed {

/// `held` [R, T, ...] with `added` [R, n, ...] behind it along axis 1. Written into the memory of `held` where that has
/// room and no other handle sees it, otherwise into a new block with room for half as much again, so that T tokens cost
/// O(T) copies. What is tracked is concatenated: a gradient keeps what it has read. `held` undefined: `added` alone.
Tensor appended(Tensor held, const Tensor& added);

/// Which rows of a batch go on: row i of what follows is row rows[i] of what was.
class RowOrder {
 public:
  explicit RowOrder(std::span<const std::int32_t> rows);

  /// `held` [R, ...] in this order. On the CPU rows that change their place are moved, and the others stay where they
  /// are, if no row is needed after its place was taken and no other handle sees the memory; otherwise all are copied.
  /// Throws for a row outside [0, R).
  Tensor of(Tensor held) const;

 private:
  std::vector<std::int32_t> rows_;
  std::vector<std::int32_t> moved_;  // the places whose row comes from elsewhere
  bool in_place_ = true;             // no moved row comes from a place that another one takes
};

/// The order in which the rows marked in `keep` go on: each where it is, and the last ones in the places of those that
/// end, so that few move.
std::vector<std::int32_t> rows_that_go_on(const std::vector<bool>& keep);

}  // namespace heed
