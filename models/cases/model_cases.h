#pragma once

#include <vector>

#include "heed/autograd/cases/op_cases.h"

namespace heed {

/// Returns whole layers and models as rows of the table of ops: every attention variant in every
/// use it declares, with padding, and small Transformers. The inputs of a row are its activations,
/// masks and all its parameters.
std::vector<OpCase> model_cases();

}  // namespace heed
