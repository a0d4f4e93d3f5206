#pragma once

#include <span>
#include <string>
#include <vector>

#include "heed/models/attention/attention.h"

namespace heed {

/// What a variant was seen to do, by trying it in f64 on short random sequences.
struct TriedCapabilities {
  std::string name;
  Capabilities can;  ///< `reason` is what it declares
};

/// Tries one variant, or all of them.
TriedCapabilities try_capabilities(const AttentionVariant& variant);
std::vector<TriedCapabilities> try_all_capabilities();

/// The capabilities as a table: a header and a line for each variant, with "yes" and "-" in columns. As
/// Markdown, or aligned for a terminal.
std::string capability_table(std::span<const TriedCapabilities> rows, bool markdown);

}  // namespace heed
