#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/core/device.h"
#include "heed/models/config.h"

// What one attention layer costs: a forward and a backward pass in training, on random inputs.

namespace heed::programs {

/// The same for all variants and lengths of one run.
struct CostSettings {
  Device device;
  std::int64_t width = 512, heads = 8, batch = 1;
  bool causal = false;
  std::int64_t repetitions = 3;  ///< the smallest time counts
};

/// The cost of a layer at one length.
struct AttentionCost {
  double ms = 0;                ///< forward and backward
  double peak_mb = 0;           ///< the most that tensors held, parameters and gradients included (1e6 bytes)
  std::int64_t parameters = 0;  ///< of the layer
  double flops = 0;             ///< of matrix products and attention, in both passes
  std::string kernels;          ///< where the time of one pass went, as a table
};

/// The names that can be measured: all attention variants, and "dot_product_composed": dot-product attention
/// that holds the whole N x M matrices of scores and weights, as papers compare themselves with.
std::vector<std::string> measurable_attentions();

/// Throws a SettingsError when there is no such layer for sequences of `length`; found out without allocating
/// it.
void check_attention(const AttentionChoice& choice, std::int64_t length, const CostSettings& settings);

/// Builds the layer for sequences of `length` (its max_length) and measures it.
AttentionCost measure_attention(const AttentionChoice& choice, std::int64_t length,
                                const CostSettings& settings);

}  // namespace heed::programs
