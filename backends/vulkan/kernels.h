#pragma once

#include "heed/core/backend.h"

namespace heed::vulkan {

#include "heed/backends/kernels.inc"

}  // namespace heed::vulkan
