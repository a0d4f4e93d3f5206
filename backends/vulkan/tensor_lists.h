#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "heed/backends/vulkan/launch.h"

namespace heed::vulkan {

/// A list of contiguous tensors that one dispatch walks together with other lists, entry by entry
/// (shaders/tensor_lists.glsl), as an optimizer walks parameters, gradients and moments.
struct TensorList {
  std::span<const Tensor> tensors;
  bool written = false;
};

/// What one dispatch processes of some lists: entries whose tensors lie so close together, within each list,
/// that one binding holds them. With slabs of at least 256 MiB this is nearly always all of them.
struct ListDispatch {
  std::vector<DType> types;                        ///< of each list
  std::vector<std::vector<Tensor>> stretches;      ///< of each list, one for each entry
  std::vector<bool> written;                       ///< of each list
  std::vector<std::array<std::int32_t, 3>> heads;  ///< of each entry: first workgroup, elements, first piece
  std::int64_t groups = 0;                         ///< workgroups
  std::int64_t elements = 0;

  std::int64_t entries() const { return static_cast<std::int64_t>(stretches[0].size()); }
  /// Binds the table and the given lists, of which one may be given more than once.
  void bind(Launch& launch, std::span<const std::size_t> lists) const;
  /// Pushes the numbers of entries and of workgroups.
  void push(Launch& launch) const { launch.push(entries()).push(groups); }
  double bytes(std::size_t list) const {
    return static_cast<double>(elements) * static_cast<double>(size_of(types[list]));
  }
};

/// The most elements of an entry that one workgroup processes.
inline constexpr std::int64_t list_piece = 4096;

/// Calls `launch` for dispatches that cover the lists, all of one length. Tensors too long for a binding are
/// cut, at multiples of list_piece if a binding holds that many elements.
void for_each_list_dispatch(Gpu& gpu, std::span<const TensorList> lists,
                            const std::function<void(const ListDispatch&)>& launch);

}  // namespace heed::vulkan
