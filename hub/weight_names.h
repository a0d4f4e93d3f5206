#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// How a weight lies in a published file beside how it lies here.
struct WeightLayout {
  bool transposed = false;           ///< [in, out] there, [out, in] here (the Conv1D of GPT-2)
  std::int64_t part = 0, parts = 1;  ///< there `parts` of heed's stand in one, along the outputs
  bool is_row = false;               ///< [1, n] there, [n] here
  bool may_lack = false;             ///< there it may be left out: then heed's is not needed
};

/// What one weight is called there and here.
struct WeightName {
  std::string published, ours;
  WeightLayout layout = {};
};

/// The names of an architecture for import and export alike. "{}" is the number of a layer.
class WeightNames {
 public:
  void add(std::string published, std::string ours, WeightLayout layout = {});
  /// The same for "published.weight" and "published.bias".
  void add_map(const std::string& published, const std::string& ours, WeightLayout layout = {});
  /// For each of `layers` layers.
  void add_layers(std::int64_t layers, const WeightNames& of_layer);
  /// Puts a text before all published names.
  void add_prefix(std::string_view prefix);
  std::span<const WeightName> all() const { return names_; }

 private:
  std::vector<WeightName> names_;
};

/// heed's weights of the published ones. Throws an Error that lists the names that are missing, and those
/// that no name of the architecture stands for; a published name that begins or ends with one of `unused` is
/// left out. f32 throughout.
std::map<std::string, Tensor> our_weights(const std::map<std::string, Tensor>& published,
                                          const WeightNames& names, std::span<const std::string> unused,
                                          std::string_view what);
/// The published weights of heed's (or of their gradients). Throws an Error for one that no published name
/// stands for, and where one is missing.
std::map<std::string, Tensor> published_weights(const std::map<std::string, Tensor>& ours,
                                                const WeightNames& names, std::string_view what);

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
