#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "heed/backends/kernels.h"
#include "heed/core/tensor.h"

// Access to the operands of kernels: the element type, the bytes, and the elements of strided ones
// in order.

namespace heed::cpu {

/// Calls body(T()), where T is the C++ element type.
template <class Body>
void with_element_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float());
    case DType::f64:
      return body(double());
    case DType::i32:
      return body(std::int32_t());
    case DType::f16:  // not on the CPU: Tensor::empty refuses it
    case DType::bf16:
      break;
  }
}

/// Calls body(T()) for kernels without an i32 version.
template <class Body>
void with_floating_type(DType dtype, Body&& body) {
  dtype == DType::f64 ? body(double()) : body(float());
}

/// Returns the size of all elements, for profiles.
inline double bytes_of(const Tensor& x) {
  return static_cast<double>(x.count()) * static_cast<double>(size_of(x.dtype()));
}

inline std::byte* first_byte(const Tensor& x) {
  return static_cast<std::byte*>(x.storage()->host_data()) +
         static_cast<std::size_t>(x.offset()) * size_of(x.dtype());
}

/// A tensor's layout with axes merged where possible and axes of extent 1 dropped.
struct MergedLayout {
  Shape shape;
  Shape strides;

  MergedLayout(const Shape& full_shape, const Shape& full_strides) {
    for (int i = 0; i < full_shape.rank(); ++i) {
      const std::int64_t extent = full_shape[i], stride = full_strides[i];
      if (extent == 1) continue;
      const int last = shape.rank() - 1;
      if (last >= 0 && can_merge_axes({&strides[last], 1}, {&stride, 1}, extent)) {
        shape[last] *= extent;
        strides[last] = stride;
      } else {
        shape.push_back(extent);
        strides.push_back(stride);
      }
    }
    if (shape.empty()) {
      shape.push_back(1);
      strides.push_back(1);
    }
  }

  std::int64_t inner_extent() const { return shape.at(-1); }
  std::int64_t inner_stride() const { return strides.at(-1); }
};

/// Maximum elements that kernels process before looking at their operands' layout again.
constexpr std::int64_t segment_elements = 512;

/// Reads a strided operand as if it were contiguous, a segment at a time: in place if its elements
/// are adjacent, otherwise through a small buffer.
template <class T>
class SegmentReader {
 public:
  explicit SegmentReader(const Tensor& tensor)
      : layout_(tensor.shape(), tensor.strides()), data_(tensor.data<T>()) {
    if (layout_.inner_stride() == 0 && layout_.shape.rank() == 1) {
      mode_ = Mode::constant;
      std::fill_n(buffer_, std::min(segment_elements, layout_.inner_extent()), *data_);
    } else if (layout_.inner_stride() != 1) {
      mode_ = Mode::gathered;
    } else if (layout_.shape.rank() > 1) {
      mode_ = layout_.inner_extent() >= shortest_row ? Mode::rows : Mode::gathered;
    }
  }

  /// Returns how many elements read() can return at once from `begin` on.
  std::int64_t longest(std::int64_t begin) const {
    switch (mode_) {
      case Mode::contiguous:
        return std::numeric_limits<std::int64_t>::max();
      case Mode::rows:
        return layout_.inner_extent() - begin % layout_.inner_extent();
      case Mode::constant:
      case Mode::gathered:
        break;
    }
    return segment_elements;
  }

  /// Returns elements [begin, begin + count) in row-major order; valid until the next call.
  const T* read(std::int64_t begin, std::int64_t count) {
    switch (mode_) {
      case Mode::contiguous:
        return data_ + begin;
      case Mode::constant:
        return buffer_;
      case Mode::rows:
        locate(begin);
        return data_ + offset_;
      case Mode::gathered:
        break;
    }
    gather(begin, count);
    return buffer_;
  }

 private:
  enum class Mode { contiguous, rows, constant, gathered };
  // For shorter rows, a segment costs more than a copy.
  static constexpr std::int64_t shortest_row = 64;

  /// Finds the coordinates and the offset of an element.
  void locate(std::int64_t index) {
    offset_ = 0;
    for (int i = layout_.shape.rank() - 1; i >= 0; --i) {
      position_[i] = index % layout_.shape[i];
      index /= layout_.shape[i];
      offset_ += position_[i] * layout_.strides[i];
    }
  }

  void gather(std::int64_t begin, std::int64_t count) {
    locate(begin);
    const int inner = layout_.shape.rank() - 1;
    const std::int64_t stride = layout_.strides[inner];
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t run = std::min(count - done, layout_.shape[inner] - position_[inner]);
      const T* from = data_ + offset_;
      T* to = buffer_ + done;
      if (stride == 0) {
        std::fill_n(to, run, *from);
      } else if (stride == 1) {
        std::copy_n(from, run, to);
      } else {
        for (std::int64_t i = 0; i < run; ++i) to[i] = from[i * stride];
      }
      done += run;
      next_row();
    }
  }

  void next_row() {
    int axis = layout_.shape.rank() - 1;
    offset_ -= position_[axis] * layout_.strides[axis];
    position_[axis] = 0;
    while (--axis >= 0) {
      offset_ += layout_.strides[axis];
      if (++position_[axis] < layout_.shape[axis]) return;
      offset_ -= layout_.shape[axis] * layout_.strides[axis];
      position_[axis] = 0;
    }
  }

  MergedLayout layout_;
  const T* data_;
  Mode mode_ = Mode::contiguous;
  std::int64_t position_[Shape::max_rank] = {};
  std::int64_t offset_ = 0;
  alignas(64) T buffer_[segment_elements];
};

/// Calls body(begin, count, pointers...) for segments of [begin, end) that every reader can return
/// at once.
template <class Body, class... Readers>
void for_each_segment(std::int64_t begin, std::int64_t end, Body&& body, Readers&&... readers) {
  while (begin < end) {
    const std::int64_t count = std::min({end - begin, readers.longest(begin)...});
    body(begin, count, readers.read(begin, count)...);
    begin += count;
  }
}

}  // namespace heed::cpu
