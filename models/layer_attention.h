#pragma once

#include <map>
#include <memory>
#include <string>

#include "heed/models/attention/attention.h"
#include "heed/models/initialise.h"
#include "heed/models/transformer_config.h"

namespace heed {

/// Makes the attentions of a stack as the configuration has them, layer by layer, and knows what a layer has
/// in common with earlier ones.
class LayerAttentions {
 public:
  LayerAttentions(const AttentionChoices& choices, const TransformerConfig& config, bool causal, bool cross)
      : choices_(choices), config_(config), causal_(causal), cross_(cross) {}

  /// The attention of `layer`, to be called for one layer after the other; null where the choice is "none".
  /// With share_layers "attention" it is that of the first layer.
  std::shared_ptr<Attention> make(std::int64_t layer, Initialiser& initialiser);
  /// What the choice for `layer` can do; that of "none" is nothing.
  Capabilities capabilities(std::int64_t layer) const;

 private:
  const AttentionChoices& choices_;
  const TransformerConfig& config_;
  bool causal_, cross_;
  std::map<std::string, std::shared_ptr<Attention>> first_;  // of every variant
};

}  // namespace heed
