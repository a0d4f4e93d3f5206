#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heed/models/module.h"

namespace heed {

/// An exponential moving average of the weights, a = d a + (1 - d) w after each step, which often generalises
/// better than the last weights (Polyak and Juditsky 1992). d = min(decay, (1 + step) / (10 + step)), so that
/// the start is forgotten soon.
class MovingAverage {
 public:
  /// Starts from the present weights. `decay` lies between 0 and 1.
  MovingAverage(std::vector<NamedTensor> parameters, double decay);

  /// To be called after each step of the optimizer; `step` counts from 1.
  void update(std::int64_t step);
  /// The averages by the names of their parameters.
  std::map<std::string, Tensor> state() const;
  /// Takes over what state() gave. Throws, naming the tensor, when one is missing, of another shape, unknown
  /// or not finite.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  friend class AveragedWeights;
  std::vector<NamedTensor> parameters_;
  std::vector<Tensor> averages_;
  double decay_;
};

/// While it lives, the parameters hold their averages; afterwards they hold their own values again, to the
/// same bits.
class AveragedWeights {
 public:
  /// `average` may be null: then nothing happens.
  explicit AveragedWeights(const MovingAverage* average);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  const MovingAverage* average_;
  std::vector<Tensor> saved_;
};

}  // namespace heed
