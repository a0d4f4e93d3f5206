#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/core/device.h"
#include "heed/models/config.h"

// Measures the cost of one attention layer, a forward and a backward pass on random inputs, and how
// it grows with the length.

namespace heed::programs {

/// Settings shared by all measurements.
struct CostSettings {
  Device device;
  std::int64_t width = 512, heads = 8, batch = 1;
  bool causal = false;
  std::int64_t repetitions = 3;  ///< the fastest one is reported
};

/// The cost of a layer at one length.
struct AttentionCost {
  double ms = 0;  ///< forward and backward
  /// Peak of all tensors, with parameters and gradients, in 1e6 bytes.
  double peak_mb = 0;
  std::int64_t parameters = 0;  ///< of the layer
  double flops = 0;             ///< of products and attention, both passes
  std::string kernels;          ///< the time of one pass by kernel, as a table
};

/// Returns the names of all attention variants, and "dot_product_composed": dot-product attention
/// that stores the full N x M matrices of scores and weights, the baseline of the papers.
std::vector<std::string> measurable_attentions();

/// Throws a SettingsError if the layer cannot be built for this length. Allocates nothing.
void check_attention(const AttentionChoice& choice, std::int64_t length, const CostSettings& settings);

/// Builds the layer with max_length = `length` and measures it.
AttentionCost measure_attention(const AttentionChoice& choice, std::int64_t length,
                                const CostSettings& settings);

/// A cost at one length.
struct CostAtLength {
  double length = 0, cost = 0;
};

/// Returns the exponent p of the least-squares fit cost = c length^p in logarithms; nothing with
/// fewer than two different lengths. Throws an Error unless all numbers are positive.
std::optional<double> growth_exponent(std::span<const CostAtLength> points);

/// Returns the expected cost at a longer length, from cost = a length + b length^2 through the last
/// two points, with a, b >= 0. (At short lengths the projections hide the quadratic part.) Lengths
/// ascend; nothing with fewer than two points.
std::optional<double> expected_cost(std::span<const CostAtLength> points, double length);

}  // namespace heed::programs
