#pragma once

#include <functional>

#include "heed/models/context.h"

namespace heed {

/// A layer of a stack: x [B, N, d], memory [B, M, d] (undefined without one) -> [B, N, d].
using LayerFunction = std::function<Tensor(const Tensor& x, const Tensor& memory, Context& context)>;

/// Runs a layer of which only the inputs are kept for backward, where it runs again with the same
/// random numbers (arXiv 1604.06174): memory for time. The layer must still exist then. Throws an Error for a
/// layer that leaves auxiliary losses or something for later layers in the context, since these would not be
/// differentiated.
Tensor recomputed_layer(const LayerFunction& layer, const Tensor& x, const Tensor& memory, Context& context);

}  // namespace heed
