#pragma once

#include "heed/models/attention/attention.h"

namespace heed {

/// Attention that is a recurrence over the tokens, so decoding continues from a state.
class RecurrentAttention : public Attention {
 public:
  using Attention::Attention;

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    return config().causal ? mixed(input, &cache, context) : Attention::step(input, cache, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    return mixed(input, nullptr, context);
  }

  /// The output for these positions. `cache` holds the state before them and is updated to the
  /// state after them; null: they are the whole sequence.
  virtual Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) = 0;
};

}  // namespace heed
