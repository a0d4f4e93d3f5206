#pragma once

#include <map>
#include <string>

#include "heed/models/config.h"
#include "heed/models/module.h"

namespace heed {

/// Fine-tuning with few weights (LoRA: Hu et al., arXiv 2106.09685): where config.lora_rank is set,
/// everything of the model that stands in embeddings, inputs, convolutions and stacks is frozen
/// (Module::freeze), and the maps whose path ends in one of config.lora_maps get a low-rank part
/// (Linear::add_low_rank). What is a task's own (its output, comparison, pooling) is trained as before.
/// Throws an Error when no map has such a name, with the names that there are.
void add_low_rank_parts(Module& model, const TransformerConfig& config);

/// The same weights without low-rank parts: `name`.weight + (alpha / rank) B A for each `name` that has
/// `name`.lora_a and `name`.lora_b, which are left out.
std::map<std::string, Tensor> merged_low_rank(std::map<std::string, Tensor> weights,
                                              const TransformerConfig& config);

}  // namespace heed
