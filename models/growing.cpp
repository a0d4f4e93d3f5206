#include "heed/models/growing.h"

#include <algorithm>

#include "heed/autograd/ops.h"
#include "heed/core/backend.h"

namespace heed {
namespace {

/// True when the elements of one step along axis 1 lie side by side, and the next step behind them.
bool lies_by_steps(const Tensor& x) {
  std::int64_t expected = 1;
  for (int axis = x.rank() - 1; axis > 1; --axis) {
    if (x.stride(axis) != expected) return false;
    expected *= x.size(axis);
  }
  return expected > 0 && x.stride(1) == expected && x.stride(0) >= x.size(1) * expected &&
         x.stride(0) % expected == 0;
}

/// The steps of a row from its first one to the end of its place in the block.
std::int64_t room_of(const Tensor& x) {
  const std::int64_t row = x.stride(0), from = x.offset() % row;
  const std::int64_t end = x.offset() - from + x.size(0) * row;  // of the last row's place
  const bool whole = static_cast<std::size_t>(end) * size_of(x.dtype()) <= x.storage()->bytes();
  return whole ? (row - from) / x.stride(1) : x.size(1);
}

/// x [R, T, ...] with T more or fewer steps, of the same memory.
Tensor with_length(const Tensor& x, std::int64_t begin, std::int64_t length) {
  Shape shape = x.shape();
  shape[1] = length;
  return x.view(shape, x.strides(), x.offset() + begin * x.stride(1));
}

void write_into(const Tensor& values, const Tensor& to) {
  require_kernel(backend_of(to).copy, "appended", to.device());
  if (values.count() == 0) return;
  backend_of(to).copy(values.detach(), to);
  to.storage()->overwritten();
}

}  // namespace

Tensor appended(Tensor held, const Tensor& added) {
  const std::int64_t before = held.defined() ? held.size(1) : 0, after = before + added.size(1);
  if (held.tracked() || added.tracked()) return before > 0 ? concat({held, added}, 1) : added;
  if (before > 0) {
    Shape others = added.shape();
    if (others.rank() == held.rank()) others[1] = before;
    check(others == held.shape() && added.dtype() == held.dtype() && added.device() == held.device(),
          "appended: cannot add ", added.dtype(), " of shape ", added.shape(), " to ", held.dtype(),
          " of shape ", held.shape());
  }
  if (before == 0 || !held.is_sole_owner() || !lies_by_steps(held) || room_of(held) < after) {
    Shape shape = added.shape();
    shape[1] = after + std::max<std::int64_t>(16, after / 2);
    const Tensor block = Tensor::empty(shape, added.dtype(), added.device());
    if (before > 0) write_into(held, with_length(block, 0, before));
    held = with_length(block, 0, before);
  }
  write_into(added, with_length(held, before, added.size(1)));
  return with_length(held, 0, after);
}

RowOrder::RowOrder(std::span<const std::int32_t> rows) : rows_(rows.begin(), rows.end()) {
  const auto count = static_cast<std::int32_t>(rows_.size());
  for (std::int32_t place = 0; place < count; ++place)
    if (rows_[static_cast<std::size_t>(place)] != place) moved_.push_back(place);
  for (const std::int32_t place : moved_) {
    const std::int32_t from = rows_[static_cast<std::size_t>(place)];
    const bool is_taken = from >= 0 && from < count && rows_[static_cast<std::size_t>(from)] != from;
    in_place_ = in_place_ && !is_taken;
  }
}

Tensor RowOrder::of(Tensor held) const {
  const auto count = static_cast<std::int64_t>(rows_.size()), before = held.size(0);
  for (const std::int32_t row : rows_)
    check(row >= 0 && row < before, "reorder: row ", row, " is not one of ", before);
  if (moved_.empty() && count == before) return held;
  const bool moves =
      in_place_ && count <= before && held.device() == Device{} && !held.tracked() && held.is_sole_owner();
  if (!moves) return index_select(held, 0, Tensor::from(rows_, {count}, held.device()));
  for (const std::int32_t place : moved_)
    write_into(select(held, 0, rows_[static_cast<std::size_t>(place)]), select(held, 0, place));
  return slice(held, 0, 0, count);
}

std::vector<std::int32_t> rows_that_go_on(const std::vector<bool>& keep) {
  const auto count = static_cast<std::size_t>(std::count(keep.begin(), keep.end(), true));
  std::vector<std::int32_t> rows;
  std::size_t last = keep.size();
  for (std::size_t place = 0; place < count; ++place) {
    std::size_t row = place;
    if (!keep[place]) {
      do --last;
      while (!keep[last]);
      row = last;
    }
    rows.push_back(static_cast<std::int32_t>(row));
  }
  return rows;
}

}  // namespace heed
