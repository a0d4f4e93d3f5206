#pragma once

#include "heed/core/backend.h"

namespace heed::cpu {

#include "heed/backends/kernels.inc"

}  // namespace heed::cpu
