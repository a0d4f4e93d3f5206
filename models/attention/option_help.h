#pragma once

#include <span>
#include <string_view>

namespace heed {

/// One line of help for a setting of an attention variant.
struct OptionHelp {
  std::string_view variant;  ///< "": every variant with a setting of this name
  std::string_view option;
  std::string_view help;
  /// The value of another setting that this one requires, such as form="local"; empty: none.
  std::string_view beside = "";
};

/// Help for all settings of the built-in variants.
std::span<const OptionHelp> option_help();

}  // namespace heed
