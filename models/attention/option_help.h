#pragma once

#include <span>
#include <string_view>

namespace heed {

/// A line of help about a setting of an attention variant.
struct OptionHelp {
  std::string_view variant;  ///< "": every variant with a setting of this name
  std::string_view option;
  std::string_view help;
  /// For a setting that exists beside a certain value of another one: that value, form="local".
  std::string_view beside = "";
};

/// The help of all settings of heed's own variants.
std::span<const OptionHelp> option_help();

}  // namespace heed
