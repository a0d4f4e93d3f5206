#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/gpu.h"
#include "heed/base/error.h"
#include "heed/core/tensor.h"

namespace heed::vulkan {

/// A range of device memory that holds many tensors, and the offset of each in elements.
struct Window {
  VkBuffer buffer = VK_NULL_HANDLE;
  std::uint64_t offset = 0, bytes = 0;
  std::vector<std::uint64_t> begins;
  std::vector<Block*> blocks;
};

/// One dispatch of a compute shader: its bindings in order, its specialisation constants, its push
/// constants.
///
/// A shader's push constants begin with one uint per binding: how many elements precede the
/// tensor's first one, since a binding must begin at an aligned address. The values given to push()
/// follow.
///
///   Launch(gpu, shader_name("softmax", x.dtype()), {workgroup, log})
///       .read(x).write(out).push(rows, columns).work(0, bytes).groups(rows);
class Launch {
 public:
  /// `shader` names a module built from shaders/ (see shaders/README.md); constants are numbered
  /// from 0.
  Launch(Gpu& gpu, std::string_view shader, std::initializer_list<std::uint32_t> constants = {});

  /// Binds the smallest range that holds all elements of a view. An undefined or empty tensor binds
  /// a few bytes that no shader may rely on. Throws if the range exceeds limits().max_range: the
  /// caller has to split.
  template <class... Tensors>
  Launch& read(const Tensors&... tensors) {
    (bind(tensors, true, false), ...);
    return *this;
  }
  template <class... Tensors>
  Launch& write(const Tensors&... tensors) {
    (bind(tensors, false, true), ...);
    return *this;
  }
  Launch& update(const Tensor& tensor) { return bind(tensor, true, true); }
  /// Returns the smallest range that holds all of `tensors`, which are views of one buffer and one
  /// dtype.
  Window index_window(std::span<const Tensor> tensors) const;
  /// Binds a window for reading and, if `written`, for writing. Throws if it exceeds
  /// limits().max_range.
  Launch& bind(const Window& window, bool written);
  /// Binds a tensor for reading, and keeps it alive until the dispatch is recorded.
  Launch& read_own(Tensor tensor);
  /// Binds the word through which the shader reports bad indices with atomicMin(errors[word],
  /// position); `word` is this binding's uint of the push constants. When the host next reads from
  /// the device, it throws an Error: `message` followed by " (position P)".
  Launch& reports_errors(std::string message);

  Launch& push(std::uint32_t value);
  Launch& push(std::int64_t value);  ///< throws if the value does not fit an unsigned 32-bit number
  Launch& push(std::int32_t value) { return push(static_cast<std::uint32_t>(value)); }
  Launch& push(float value) { return push(std::bit_cast<std::uint32_t>(value)); }
  Launch& push(double value) { return push(static_cast<float>(value)); }
  template <class First, class Second, class... More>
  Launch& push(First first, Second second, More... more) {
    push(first);
    return push(second, more...);
  }

  /// Sets the work that the profile counts: floating-point operations of matrix products, and the
  /// minimum traffic in bytes.
  Launch& work(double flops, double bytes);

  /// Records the dispatch of x * y * z workgroups; nothing if one of these is 0. Throws above
  /// limits().max_groups. Called once per launch.
  void groups(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1);
  /// Records at least `count` workgroups, folded over x and y: the shader computes group_index()
  /// (common.glsl) and returns if that is not below its own count.
  void folded_groups(std::int64_t count);

 private:
  Launch& bind(const Tensor& tensor, bool read, bool written);
  Binding& next_binding();
  void check_range(std::uint64_t bytes) const;

  Gpu& gpu_;
  std::unique_lock<std::recursive_mutex> lock_;  // no other thread records before this launch is done
  std::string_view shader_;
  static constexpr std::size_t max_bindings = most_bindings;
  static constexpr std::size_t max_words = 32;  // 128 bytes, which every Vulkan device offers
  Tensor own_;
  std::array<Block*, max_bindings> blocks_{};        // of each binding; null: a window's, or the device's own
  std::vector<std::pair<Block*, bool>> in_windows_;  // the blocks of windows, and whether they are written
  std::array<std::uint32_t, most_constants> constants_{};
  std::array<Binding, max_bindings> bindings_{};
  std::array<std::uint32_t, max_bindings> skips_{};
  std::array<std::uint32_t, max_words> pushed_{};
  std::size_t constant_count_ = 0, binding_count_ = 0, pushed_count_ = 0;
  Work work_;
};

/// Returns whether views of one dtype are in one buffer, and close enough together for one binding.
bool fits_window(const Gpu& gpu, std::span<const Tensor> tensors);

/// Returns the module of a shader that is compiled once per element type: "softmax_f32" for
/// "softmax" and f32. The view lives as long as the program. Throws for f64, which exists on the
/// CPU only.
std::string_view shader_name(std::string_view base, DType dtype);
/// Returns the module by element size, "u32" or "u16", for shaders that only move elements.
std::string_view shader_name_by_size(std::string_view base, DType dtype);

// Cutting tensors into pieces that one dispatch can bind and cover.

/// The indices [first, first + count) of an axis.
struct Part {
  std::int64_t first, count;
};

inline std::array<Part, 2> halves(std::int64_t extent) {
  return {Part{0, extent / 2}, Part{extent / 2, extent - extent / 2}};
}

inline Tensor narrowed(const Tensor& x, int axis, Part part) {
  Shape shape = x.shape();
  shape[axis] = part.count;
  return x.view(shape, x.strides(), x.offset() + part.first * x.strides()[axis]);
}

/// Makes a contiguous copy.
inline Tensor compact(const Tensor& x) {
  const Tensor made = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy(x, made);
  return made;
}

/// Returns the byte offset of a tensor's first element in its buffer.
inline std::uint64_t byte_offset(const Tensor& x) {
  return static_cast<const Block&>(*x.storage()).offset() +
         static_cast<std::uint64_t>(x.offset()) * size_of(x.dtype());
}

/// Returns how many elements of memory a view spans, from its first element to its last.
inline std::int64_t spanned_elements(const Tensor& x) {
  std::int64_t last = 0;
  for (int i = 0; i < x.rank(); ++i) last += (x.shape()[i] - 1) * x.strides()[i];
  return last + 1;
}

/// Returns the bytes that a binding can hold wherever its tensor begins.
inline std::int64_t most_bytes(const Gpu& gpu) {
  return static_cast<std::int64_t>(gpu.limits().max_range) - gpu.limits().offset_alignment;
}

/// Returns whether one binding can hold `count` elements.
inline bool range_holds(const Gpu& gpu, std::int64_t count, DType dtype) {
  return count * static_cast<std::int64_t>(size_of(dtype)) <= most_bytes(gpu);
}

/// Returns the most workgroups of one Launch::folded_groups.
inline std::int64_t most_groups(const Gpu& gpu) {
  const std::int64_t per_axis = gpu.limits().max_groups;
  return std::min<std::int64_t>(per_axis * per_axis, 1 << 30);
}

/// Returns the largest power of two up to `wanted` that the device allows as the size of a
/// workgroup.
inline std::uint32_t workgroup_size(const Gpu& gpu, std::uint32_t wanted = 256) {
  return std::bit_floor(std::min(wanted, gpu.limits().max_invocations));
}

// Rows: most kernels treat a tensor as rows, of which a workgroup takes several.

/// The division of a workgroup's threads among rows of n elements (shaders/rows.glsl).
struct RowShape {
  std::uint32_t workgroup;
  std::uint32_t lanes;  ///< threads of one row; a power of two
  std::int64_t rows_per_group() const { return workgroup / lanes; }
  /// The most elements of a row that one thread handles.
  std::uint32_t held(std::int64_t n) const { return static_cast<std::uint32_t>(ceil_div(n, lanes)); }
};

inline RowShape row_shape(const Gpu& gpu, std::int64_t n) {
  const std::uint32_t workgroup = workgroup_size(gpu);
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(ceil_div(n, 4)));
  return {workgroup, static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, workgroup))};
}

/// Returns the module of a shader that includes shaders/rows.glsl. Its threads exchange values
/// within subgroups if the device supports that, the workgroup is made of whole subgroups, and a
/// row spans no more subgroups than a subgroup has threads. The modules with and without exchange
/// give the same bits.
inline std::string_view row_shader(const Gpu& gpu, std::string_view base, DType dtype,
                                   const RowShape& shape) {
  const std::uint32_t exchanging = gpu.limits().exchanging;
  if (exchanging == 1 || shape.workgroup % exchanging != 0 || shape.lanes > exchanging * exchanging)
    return shader_name(base, dtype);
  return shader_name(std::string(base) + "_subgroups", dtype);
}

/// Returns the most elements of `bytes` bytes each that a contiguous tensor can have and be bound
/// at once, wherever it begins.
inline std::int64_t most_elements(const Gpu& gpu, std::int64_t bytes) {
  return std::max<std::int64_t>(1, most_bytes(gpu) / std::max<std::int64_t>(1, bytes));
}

/// Calls body(begin, end) for ranges of rows that one launch can process. A row takes `row_bytes`
/// in the largest tensor and is `items` pieces of work, of which a workgroup does
/// `items_per_group`.
template <class Body>
void for_row_ranges(const Gpu& gpu, std::int64_t rows, std::int64_t row_bytes, std::int64_t items,
                    std::int64_t items_per_group, Body body) {
  const std::int64_t by_groups =
      std::max<std::int64_t>(1, most_groups(gpu) * items_per_group / std::max<std::int64_t>(1, items));
  const std::int64_t most = std::min(most_elements(gpu, row_bytes), by_groups);
  for (std::int64_t begin = 0; begin < rows; begin += most) body(begin, std::min(rows, begin + most));
}

/// Returns entries [begin, end) of the first axis; an undefined tensor stays undefined.
inline Tensor row_range(const Tensor& x, std::int64_t begin, std::int64_t end) {
  return x.defined() ? narrowed(x, 0, {begin, end - begin}) : x;
}

/// Returns the tensor to bind for an output that may be left out: otherwise `other`, which the
/// launch writes anyway. A placeholder shared by several launches would look like a hazard between
/// them.
inline const Tensor& either(const Tensor& output, const Tensor& other) {
  return output.defined() ? output : other;
}

/// Views a contiguous tensor as [rows, n], n its last extent.
inline Tensor as_rows(const Tensor& x) {
  return x.view({x.count() / x.size(-1), x.size(-1)});
}

}  // namespace heed::vulkan
