#include "heed/models/sentence_encoder.h"

#include <numeric>

#include "heed/autograd/ops.h"

namespace heed {

SentenceEncoder::SentenceEncoder(const TransformerConfig& config)
    : SentenceEncoder(checked_config(config, "an encoder of sentences",
                                     {{"source_vocabulary", config.source_vocabulary}}),
                      Initialiser(static_cast<std::uint64_t>(config.seed))) {}

SentenceEncoder::SentenceEncoder(const TransformerConfig& config, Initialiser initialiser)
    : SequenceEncoder(config, initialiser) {
  add_pooling(initialiser);
}

Tensor SentenceEncoder::vectors(const PaddedTokens& tokens, Context& context) {
  const Tensor pool = pooled(hidden(tokens, context), tokens.mask);
  return pool * rsqrt(sum(square(pool), -1, true) + 1e-12);
}

Loss SentenceEncoder::loss(const PaddedTokens& tokens, double scale, double smoothing, Context& context) {
  const Tensor both = vectors(tokens, context);
  const std::int64_t count = both.size(0) / 2;
  check(count > 0 && both.size(0) == 2 * count, "pairs of texts are an even number of rows, got ",
        both.size(0));
  const Tensor u = slice(both, 0, 0, count), v = slice(both, 0, count, 2 * count);
  std::vector<std::int32_t> own(static_cast<std::size_t>(count));
  std::iota(own.begin(), own.end(), 0);
  const Tensor scores = matmul(u, transpose(v, 0, 1)) * scale;
  return {sum(cross_entropy(scores, Tensor::from(own, {count}, device()), smoothing)), count};
}

}  // namespace heed
