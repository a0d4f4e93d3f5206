#pragma once

#include <map>
#include <string>

#include "heed/models/config.h"
#include "heed/models/module.h"

namespace heed {

/// Fine-tuning with few weights (LoRA: Hu et al., arXiv 2106.09685). When config.lora_rank is set, all
/// embeddings, inputs, convolutions and stacks of the model are frozen (Module::freeze), and the maps whose
/// path ends in one of config.lora_maps get a low-rank part (Linear::add_low_rank). Parts that belong to a
/// task (output, comparison, pooling) are trained as before. Throws an Error when a name matches no map,
/// listing the available names.
void add_low_rank_parts(Module& model, const TransformerConfig& config);

/// The same weights with the low-rank parts merged: `name`.weight becomes `name`.weight + (alpha / rank) B
/// A for each `name` with `name`.lora_a and `name`.lora_b, which are dropped.
std::map<std::string, Tensor> merged_low_rank(std::map<std::string, Tensor> weights,
                                              const TransformerConfig& config);

}  // namespace heed
