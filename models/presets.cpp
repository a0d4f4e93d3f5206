#include "heed/models/presets.h"

#include <algorithm>

#include "heed/core/error.h"
#include "heed/core/nearest_name.h"

namespace heed {
namespace {

/// No cross-attention but in the last layer, which has one head of full width.
AttentionChoices last_layer_alone(std::int64_t layers) {
  AttentionChoices choices(static_cast<std::size_t>(std::max<std::int64_t>(layers, 1)));
  for (AttentionChoice& choice : choices) choice.name = "none";
  choices.back().name = "dot_product";
  choices.back().heads = 1;
  return choices;
}

}  // namespace

std::vector<std::string> preset_names() {
  return {"hc-sa", "sh-x", "hc-all"};
}

void apply_preset(TransformerConfig& config, std::string_view name) {
  const std::vector<std::string> names = preset_names();
  check(std::find(names.begin(), names.end(), name) != names.end(), "unknown preset '", name, "'",
        suggest_name(std::string(name), names));
  AttentionChoice hard_coded;  // its offsets are -1, 1 in the encoder and across, and -1, 0 in the decoder
  hard_coded.name = "hard_coded_gaussian";
  config.encoder_attention = config.decoder_attention = {hard_coded};
  if (name == "hc-sa") config.cross_attention = {AttentionChoice{}};
  if (name == "sh-x") config.cross_attention = last_layer_alone(config.decoder_layers);
  if (name == "hc-all") config.cross_attention = {hard_coded};
}

}  // namespace heed
