#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "heed/core/error.h"

namespace heed {

/// A short list of extents (or strides), at most `max_rank` long, held inline.
class Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) {
    check(extents.size() <= max_rank, "a shape has at most ", max_rank, " dimensions, got ", extents.size());
    for (std::int64_t extent : extents) push_back(extent);
  }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t operator[](int i) const { return extents_[i]; }
  std::int64_t& operator[](int i) { return extents_[i]; }
  /// The extent of an axis that may be negative (counted from the end).
  std::int64_t at(int axis) const { return extents_[resolve(axis)]; }
  /// Maps an axis in [-rank, rank) to [0, rank); throws for any other.
  int resolve(int axis) const {
    check(axis >= -rank_ && axis < rank_, "axis ", axis, " is out of range for rank ", rank_);
    return axis < 0 ? axis + rank_ : axis;
  }
  void push_back(std::int64_t extent) {
    check(rank_ < max_rank, "a shape has at most ", max_rank, " dimensions");
    extents_[rank_++] = extent;
  }
  /// Number of elements: the product of all extents (1 for rank 0).
  std::int64_t count() const {
    std::int64_t product = 1;
    for (std::int64_t extent : *this) product *= extent;
    return product;
  }

  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }
  std::int64_t* begin() { return extents_.data(); }
  std::int64_t* end() { return extents_.data() + rank_; }

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '[';
    for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
    return out << ']';
  }

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

/// Row-major strides, in elements.
Shape contiguous_strides(const Shape& shape);
/// The shape that `a` and `b` broadcast to (NumPy rules); throws an Error that names `op` when they do not.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

}  // namespace heed
