#pragma once

#include <span>
#include <string>
#include <vector>

#include "heed/models/attention/attention.h"

namespace heed {

/// The capabilities that a variant showed when it was tried.
struct TriedCapabilities {
  std::string name;
  Capabilities can;         ///< `reason` is what it declares
  bool sees_later = false;  ///< unless causal, later words change the outputs before them
};

/// Tries all variants.
std::vector<TriedCapabilities> try_all_capabilities();

/// Returns the capabilities as a table: a header and a line for each variant, with "yes" and "-" in
/// columns. As Markdown, or aligned for a terminal.
std::string capability_table(std::span<const TriedCapabilities> rows, bool markdown);

/// Returns, as Markdown, which of the four patterns of attention each variant can serve as ("CAB:
/// comprehensive attention benchmarking on long sequence modeling", Zhang et al. 2022, arXiv
/// 2210.07661, section 2): self- or cross-attention, in which later queries (and in self-attention
/// their keys) do or do not change the results of earlier ones.
std::string pattern_table(std::span<const TriedCapabilities> rows);

}  // namespace heed
