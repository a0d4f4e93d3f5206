#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "heed/core/backend.h"

// Shared by the kernels of all backends: their declarations, and properties of strides.

// The kernels of core/kernels.def are functions in the namespace of their backend.
namespace heed::cpu {
#define HEED_KERNEL(kernel, ...) std::type_identity_t<__VA_ARGS__> kernel;
#define HEED_FUSED(kernel, forward, backward)     \
  std::type_identity_t<forward> kernel##_forward; \
  std::type_identity_t<backward> kernel##_backward;
#define HEED_VULKAN_KERNEL(...)
#define HEED_VULKAN_FUSED(...)
#include "heed/core/kernels.def"

/// The instruction sets that the CPU kernels are compiled for, as bits of Highway's; just one in a
/// build with HEED_NATIVE.
extern const std::int64_t kernel_targets;
/// Writes the words start, start + 1, ..., start + count - 1 of the stream `key` as the random
/// kernels draw them, on the calling thread.
void philox_fill(const RandomKey& key, std::uint64_t start, std::int64_t count, std::uint32_t* out);
}  // namespace heed::cpu

namespace heed::vulkan {
#define HEED_KERNEL(kernel, ...) std::type_identity_t<__VA_ARGS__> kernel;
#define HEED_FUSED(kernel, forward, backward)     \
  std::type_identity_t<forward> kernel##_forward; \
  std::type_identity_t<backward> kernel##_backward;
#define HEED_CPU_KERNEL(...)
#include "heed/core/kernels.def"
}  // namespace heed::vulkan

namespace heed {

/// Returns whether the matrix in the last two axes is stored by rows, with adjacent elements;
/// otherwise it is stored by columns. The stride of an axis of extent 1 is ignored.
inline bool is_stored_by_rows(const Tensor& matrix) {
  const std::int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  return columns > 1 ? matrix.stride(-1) == 1 : matrix.stride(-2) != 1 || rows <= 1;
}

/// Returns whether an axis and the next inner one, of `inner_extent` elements, can be merged into
/// one long axis for all operands; `outer` and `inner` hold each operand's strides along them.
inline bool can_merge_axes(std::span<const std::int64_t> outer, std::span<const std::int64_t> inner,
                           std::int64_t inner_extent) {
  for (std::size_t k = 0; k < outer.size(); ++k)
    if (outer[k] != inner[k] * inner_extent) return false;
  return true;
}

}  // namespace heed
