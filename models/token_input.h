#pragma once

#include "heed/models/layers.h"
#include "heed/models/positions.h"
#include "heed/models/transformer_config.h"

namespace heed {

/// Turns token ids into the input of a stack: dropout(embedding * sqrt(d) + positions) (Vaswani et al. 2017,
/// section 3.4). The embedding belongs to the model, because it may be shared; the positions are a part,
/// "positions".
class TokenInput : public Module {
 public:
  TokenInput(const TransformerConfig& config, const Embedding& embedding, Initialiser& initialiser);
  /// ids i32 [B, N], the first of which stands at position `begin` -> [B, N, d].
  Tensor operator()(const Tensor& ids, std::int64_t begin, Context& context);

 private:
  const Embedding& embedding_;
  Positions positions_;
  double scale_, dropout_;
};

/// The deviation of initial embeddings: 1 / sqrt(d) unless the configuration sets one.
double embedding_deviation(const TransformerConfig& config);

}  // namespace heed
