#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// Sums losses on the device, token by token, so that nothing waits for a loss before it is shown.
class LossMeter {
 public:
  /// Adds the sum of a loss over some tokens.
  void add(const std::string& name, const Tensor& sum);
  /// Counts the tokens of a batch.
  void add_tokens(std::int64_t tokens) { tokens_ += tokens; }
  std::int64_t tokens() const { return tokens_; }

  /// The sums since the start or the last clear(), where the losses are.
  const std::map<std::string, Tensor>& on_device() const { return sums_; }
  /// The sums so far; waits for the device.
  std::map<std::string, double> sums() const;
  /// Starts from sums that were read earlier.
  void restore(const std::map<std::string, double>& sums, std::int64_t tokens);
  /// Starts from nothing.
  void clear();

 private:
  std::map<std::string, Tensor> sums_;
  std::map<std::string, double>
      restored_;  // becomes a tensor when the device and dtype of the loss are known
  std::int64_t tokens_ = 0;
};

}  // namespace heed
