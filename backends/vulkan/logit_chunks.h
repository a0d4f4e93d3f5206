#pragma once

#include <cstdint>

#include "heed/core/backend.h"

namespace heed::vulkan {

/// How a device with so much memory holds logits of `element` bytes: as many rows at a time as fit 512 MiB and at least
/// 2,048, so that the products of a chunk fill a large GPU and read the weight seldom, but no more than an eighth of the
/// memory; all chunks of nearly one size. Rows begin at multiples of eight elements, so that a vocabulary of odd size
/// is read in vectors, too.
LogitChunks plan_logits(std::uint64_t memory_bytes, std::int64_t element, std::int64_t rows,
                        std::int64_t classes);

}  // namespace heed::vulkan
