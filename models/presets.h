#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/models/transformer_config.h"

namespace heed {

/// The names of the presets below.
std::vector<std::string> preset_names();

/// Chooses the attentions of a translation model as "Hard-Coded Gaussian Attention for Neural Machine
/// Translation" (You, Sun and Iyyer, ACL 2020, arXiv 2005.00742) names its models; all other settings stay:
///
///   name     encoder self   decoder self   cross
///   hc-sa    hard-coded     hard-coded     learned, in all layers
///   sh-x     hard-coded     hard-coded     one learned head in the last layer, none in the others
///   hc-all   hard-coded     hard-coded     hard-coded in all layers
///
/// Throws for an unknown name, with the nearest one. The gamma of hc-all's cross-attention, mean source over
/// target length, belongs to the data: it stays 1 until it is set.
void apply_preset(TransformerConfig& config, std::string_view name);

}  // namespace heed
