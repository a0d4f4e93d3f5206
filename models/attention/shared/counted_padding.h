#pragma once

#include "heed/models/options.h"

namespace heed {

/// The setting "padding" of mechanisms that cut or transform a whole sequence. "skipped" is the
/// default; with "counted", padding counts like other tokens and has outputs. Published weights
/// were trained with "counted", with which a sample's outputs depend on the length of its batch.
inline bool is_padding_counted(const Options& options) {
  return options.take_choice("padding", {"skipped", "counted"}) == "counted";
}

}  // namespace heed
