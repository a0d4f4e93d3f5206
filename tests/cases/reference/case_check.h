#pragma once

#include "adapters.h"
#include "compare.h"

namespace heed::verify {

/// Runs a case, its outputs, losses and gradients, in a type and on a device: what deviates most from the
/// reference. Throws an Error where the case and the layer do not fit together.
Deviation worst_deviation(const ReferenceCase& reference, const Adapter& adapter, DType dtype, Device device);

}  // namespace heed::verify
