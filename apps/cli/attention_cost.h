#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/core/device.h"
#include "heed/models/config.h"

// What one attention layer costs, a forward and a backward pass in training on random inputs, and how that
// grows with the length.

namespace heed::programs {

/// Shared by all variants and lengths of a run.
struct CostSettings {
  Device device;
  std::int64_t width = 512, heads = 8, batch = 1;
  bool causal = false;
  std::int64_t repetitions = 3;  ///< the fastest counts
};

/// The cost of a layer at one length.
struct AttentionCost {
  double ms = 0;                ///< forward and backward
  double peak_mb = 0;           ///< peak of all tensors, with parameters and gradients, in 1e6 bytes
  std::int64_t parameters = 0;  ///< of the layer
  double flops = 0;             ///< of products and attention, both passes
  std::string kernels;          ///< the time of one pass by kernel, as a table
};

/// All attention variants, and "dot_product_composed": dot-product attention that holds the whole N x M
/// matrices of scores and weights, the baseline of the papers.
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

/// The exponent p of the least-squares fit cost = c length^p in logarithms; nothing with fewer than two
/// different lengths. Throws an Error unless all numbers are positive.
std::optional<double> growth_exponent(std::span<const CostAtLength> points);

/// The expected cost at a longer length, from cost = a length + b length^2 through the last two points, with
/// a, b >= 0 (at short lengths the projections hide the quadratic part). Lengths ascend; nothing with fewer
/// than two points.
std::optional<double> expected_cost(std::span<const CostAtLength> points, double length);

}  // namespace heed::programs
