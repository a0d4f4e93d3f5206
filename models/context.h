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

class Module;

/// What a training pass has seen that moves buffers of a layer, such as the centroids of routing attention.
struct Observation {
  Module* layer;               ///< whose Module::absorb() takes it
  std::vector<Tensor> values;  ///< detached
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
  /// Where layers leave what moves their buffers, so that all batches of a step see the same ones and their order alone
  /// decides (the Trainer); null: the buffers move at once.
  std::vector<Observation>* observations = nullptr;

  /// A context for one training step.
  static Context train(std::uint64_t seed, std::uint32_t step) { return {true, Random(seed, step), {}, {}}; }
  static Context inference() { return {}; }

  /// Hands `values` to layer.absorb(), at once or through `observations`.
  void observe(Module& layer, std::vector<Tensor> values);

  /// The weighted sum of `losses`; undefined when there are none.
  Tensor auxiliary_loss() const;
};

/// The contexts of a training loop of your own, one step after the other: no step draws the masks of another because its
/// number was forgotten.
class Rng {
 public:
  /// `step`: how many steps were done before, for a training that goes on.
  explicit Rng(std::uint64_t seed, std::uint32_t step = 0) : seed_(seed), step_(step) {}

  /// The context of the next step; the first is number 1. Throws an Error after 2^32 - 1 of them.
  Context next_step();
  /// Of the step that next_step() gave last.
  std::uint32_t step() const { return step_; }

 private:
  std::uint64_t seed_;
  std::uint32_t step_;
};

}  // namespace heed
