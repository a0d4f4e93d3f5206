#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/random.h"
#include "heed/core/tensor.h"

namespace heed {

/// A loss term that a layer adds to the task's loss, such as ClusterFormer's clustering loss.
struct AuxiliaryLoss {
  std::string name;
  double weight = 1;
  Tensor value;  ///< of one element
};

/// What a forward pass shows of its inside on request: cluster assignments, orders, attention weights. A slow
/// path: what is computed for it alone is computed only when somebody asks.
struct Capture {
  struct Entry {
    std::string layer;  ///< the path of the layer in the model, such as "encoder.layers.0.attention"
    std::string name;   ///< "order", "assignment", ...
    Tensor value;       ///< detached
  };
  std::vector<Entry> entries;  ///< in the order of the pass

  /// The last value of this name, of any layer; undefined when there is none.
  Tensor find(std::string_view name) const;
};

/// What travels through one forward pass: whether it trains, its random keys, what layers add to the loss,
/// and what passes from layer to layer.
struct Context {
  bool training = false;
  Random random{0};
  std::vector<AuxiliaryLoss> losses;
  /// What layers hand to later ones of their stack, by a name that the variant owns, such as
  /// "clusterformer.centroids". Empty where a stack begins.
  std::map<std::string, Tensor> handed_on;
  Capture* capture = nullptr;  ///< where layers leave what they show of their inside; null: nobody looks

  /// A context for one training step.
  static Context train(std::uint64_t seed, std::uint32_t step) { return {true, Random(seed, step), {}, {}}; }
  static Context inference() { return {}; }

  /// The weighted sum of `losses`; undefined when there are none.
  Tensor auxiliary_loss() const;
};

}  // namespace heed
