#pragma once

#include <array>
#include <initializer_list>

#include "heed/backends/vulkan/launch.h"

namespace heed::vulkan {

/// Operands of one shape as one dispatch walks them (shaders/tensor_iterator.glsl). Axes that all operands
/// can walk as one are merged; the walk follows the memory order of the first operand, which is the output.
class TensorIterator {
 public:
  static constexpr std::size_t max_operands = 4;
  static constexpr int max_axes = 4;
  using Operands = std::array<const Tensor*, max_operands>;
  struct Axis {
    std::int64_t extent;
    std::array<std::int64_t, max_operands> strides;
  };

  /// Entries beyond `operand_count` are not read.
  TensorIterator(const Operands& operands, std::size_t operand_count);

  const Tensor& operator[](std::size_t i) const { return *operands_[i]; }
  std::size_t operand_count() const { return operand_count_; }
  /// Outermost first; may be more than max_axes.
  std::span<const Axis> axes() const { return std::span(axes_).first(static_cast<std::size_t>(rank_)); }
  std::int64_t count() const { return count_; }
  /// Whether one dispatch is enough.
  bool fits(const Gpu& gpu) const;
  /// The axis of the operands' shape to halve if one dispatch is not enough.
  int axis_to_cut(const Gpu& gpu) const;

  /// Launches a shader that includes tensor_iterator.glsl, with its specialisation constants 2 and 3 and its
  /// own push constants. Its bindings are the operands, in order.
  template <class... Parameters>
  void launch(Gpu& gpu, std::string_view shader, std::array<std::uint32_t, 2> constants,
              Parameters... parameters) const {
    Launch launch(
        gpu, shader,
        {workgroup(gpu), static_cast<std::uint32_t>(rank_), constants[0], constants[1], in_fours()});
    bind_and_push(launch);
    (launch.push(parameters), ...);
    launch.work(0, traffic()).folded_groups(ceil_div(count_, workgroup(gpu) * items));
  }

 private:
  static constexpr std::int64_t items = 4;  // elements per invocation, as in tensor_iterator.glsl
  static std::uint32_t workgroup(const Gpu& gpu) { return workgroup_size(gpu, 128); }

  void bind_and_push(Launch& launch) const;
  double traffic() const;
  /// Whether all operands can be read four elements at once.
  bool in_fours() const;

  Operands operands_;
  std::size_t operand_count_;
  std::array<Axis, Shape::max_rank> axes_;
  int rank_ = 0;
  std::int64_t count_ = 1;
};

/// Calls body(iterator) for pieces of the operands, the output first, that cover them and fit one dispatch
/// each.
template <class Body>
void for_each_iterator(Gpu& gpu, std::initializer_list<const Tensor*> operands, const Body& body) {
  TensorIterator::Operands list{};
  std::copy(operands.begin(), operands.end(), list.begin());
  for_each_iterator(gpu, TensorIterator(list, operands.size()), body);
}

template <class Body>
void for_each_iterator(Gpu& gpu, const TensorIterator& iterator, const Body& body) {
  if (iterator.count() == 0) return;
  if (iterator.fits(gpu)) return body(iterator);
  const int axis = iterator.axis_to_cut(gpu);
  for (const Part part : halves(iterator[0].shape()[axis])) {
    std::array<Tensor, TensorIterator::max_operands> parts;
    TensorIterator::Operands list{};
    for (std::size_t i = 0; i < iterator.operand_count(); ++i) {
      parts[i] = narrowed(iterator[i], axis, part);
      list[i] = &parts[i];
    }
    for_each_iterator(gpu, TensorIterator(list, iterator.operand_count()), body);
  }
}

}  // namespace heed::vulkan
