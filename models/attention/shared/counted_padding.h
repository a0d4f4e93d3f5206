#pragma once

#include "heed/models/options.h"

namespace heed {

/// The setting "padding" of mechanisms that cut or transform a whole sequence: "skipped" (default), or
/// "counted" where tokens at padding count as others do and have outputs. Published weights have learned with
/// these, and then a sample beside longer ones gives other numbers than alone.
inline bool is_padding_counted(const Options& options) {
  return options.take_choice("padding", {"skipped", "counted"}) == "counted";
}

}  // namespace heed
