#include "heed/models/token_input.h"

#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {

double embedding_deviation(const TransformerConfig& config) {
  return config.embedding_deviation > 0 ? config.embedding_deviation
                                        : 1 / std::sqrt(static_cast<double>(config.width));
}

TokenInput::TokenInput(const TransformerConfig& config, const Embedding& embedding, Initialiser& initialiser)
    : embedding_(embedding),
      positions_(config.positions, config.max_length, config.width, embedding_deviation(config), initialiser),
      scale_(config.scale_embeddings ? std::sqrt(static_cast<double>(config.width)) : 1),
      dropout_(config.dropout) {
  add_module("positions", positions_);
}

Tensor TokenInput::operator()(const Tensor& ids, std::int64_t begin, Context& context) {
  check(ids.rank() == 2 && ids.dtype() == DType::i32, "a model reads i32 ids [batch, length], got ",
        ids.dtype(), " of shape ", ids.shape());
  Tensor x = embedding_(ids);
  if (scale_ != 1) x = x * scale_;
  return maybe_dropout(x + positions_(begin, ids.size(1), x), dropout_, context);
}

}  // namespace heed
