#pragma once

#include <memory>

#include "heed/models/attention/attention.h"
#include "heed/models/initialise.h"
#include "heed/models/transformer_config.h"

namespace heed {

/// The attention of one layer as the configuration has it.
std::unique_ptr<Attention> make_attention(const AttentionChoice& choice, const TransformerConfig& config,
                                          std::int64_t layer, bool causal, bool cross,
                                          Initialiser& initialiser);

}  // namespace heed
