#pragma once

#include <span>
#include <string>
#include <vector>

#include "heed/models/attention/attention.h"

namespace heed {

/// What a variant was seen to do (tried_capabilities).
struct TriedCapabilities {
  std::string name;
  Capabilities can;  ///< `reason` is what it declares
};

/// Tries all variants.
std::vector<TriedCapabilities> try_all_capabilities();

/// The capabilities as a table: a header and a line for each variant, with "yes" and "-" in columns. As
/// Markdown, or aligned for a terminal.
std::string capability_table(std::span<const TriedCapabilities> rows, bool markdown);

}  // namespace heed
