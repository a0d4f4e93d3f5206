#pragma once

#include <map>
#include <string>
#include <string_view>

#include "heed/core/tensor.h"

namespace heed {

/// Gives every map whose name holds `part` and that has no bias one of zeros: layouts have them in any case.
inline void add_missing_biases(std::map<std::string, Tensor>& weights, std::string_view part) {
  std::map<std::string, Tensor> biases;
  for (const auto& [name, tensor] : weights) {
    if (name.find(part) == std::string::npos || !name.ends_with(".weight") || tensor.rank() != 2) continue;
    const std::string bias = name.substr(0, name.size() - std::string_view("weight").size()) + "bias";
    if (!weights.contains(bias)) biases[bias] = Tensor::zeros({tensor.size(0)});
  }
  weights.merge(biases);
}

}  // namespace heed
