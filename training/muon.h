#pragma once

#include "heed/core/backend.h"
#include "heed/training/optimizer.h"
#include "heed/training/precision.h"

namespace heed {

/// Muon's step (MuonOptions) of matrices, with their first moments. `step` is as for Adam with decoupled
/// decay, without second moments; its learning_rate is that of the matrices. An optimizer's: it marks no
/// weight as overwritten.
void muon(const OptimizerStep& step, const MuonOptions& options, Precision precision);

}  // namespace heed
