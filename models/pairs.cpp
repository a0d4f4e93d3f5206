#include "heed/models/pairs.h"

#include <array>
#include <numeric>

#include "heed/autograd/ops.h"

namespace heed {

/// The standard deviation of vectors that are added to scaled embeddings.
static double added_deviation(const TransformerConfig& config) {
  return embedding_deviation(config) * embedding_scale(config);
}

static void append(Tokens& tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

/// No match gets no vector, just like padding.
static Tokens without_none(const Tokens& matches) {
  Tokens kinds = matches;
  for (std::int32_t& kind : kinds)
    if (kind == 0) kind = -1;
  return kinds;
}

PairMatcher::PairMatcher(const TransformerConfig& config, bool joint)
    : PairMatcher(
          checked_config(config, "a matcher of pairs",
                         {{"source_vocabulary", config.source_vocabulary}, {"classes", config.classes}}),
          joint, Initialiser(static_cast<std::uint64_t>(config.seed))) {}

PairMatcher::PairMatcher(const TransformerConfig& config, bool joint, Initialiser initialiser)
    : SequenceEncoder(config, initialiser),
      joint_(joint),
      has_types_(joint && config.token_types >= 2),
      matches_(match_kinds, config.width, added_deviation(config), initialiser),
      segments_(2, config.width, added_deviation(config), initialiser),
      compare_(4 * config.width, config.width, true, initialiser),
      output_(config.width, config.classes, true, initialiser) {
  set_hidden_map(output_.weight, false);
  add_pooling(initialiser);
  add_module("matches", matches_);
  if (joint_ && !has_types_) add_module("segments", segments_);
  add_module("compare", compare_);
  add_module("output", output_);
  if (config.sparse_features == 0) return;
  sparse_ = std::make_unique<Part<SparseLinear>>(*this, "sparse", config.sparse_features, config.classes);
}

PairBatch PairMatcher::batch(std::span<const TokenPair> pairs) const {
  std::vector<Tokens> tokens, matches, segments;
  const auto add_row = [&](const MatchedTokens& text) {
    tokens.push_back(text.tokens);
    matches.push_back(without_none(text.matches));
  };
  if (!joint_) {
    for (const TokenPair& pair : pairs) add_row(pair.first);
    for (const TokenPair& pair : pairs) add_row(pair.second);
    return {pad_tokens(tokens, device()), pad_tokens(matches, device()).ids, {}, {}, {}};
  }
  for (const TokenPair& pair : pairs) {
    add_row(pair.first);
    append(tokens.back(), pair.second.tokens);
    append(matches.back(), without_none(pair.second.matches));
    segments.emplace_back(pair.first.tokens.size(), 0).resize(tokens.back().size(), 1);
  }
  const PaddedTokens padded = pad_tokens(tokens, device());
  std::array<std::vector<Tokens>, 2> in;
  for (const Tokens& row : segments)
    for (const std::int32_t segment : {0, 1}) {
      Tokens& mask = in[static_cast<std::size_t>(segment)].emplace_back();
      for (const std::int32_t one : row) mask.push_back(one == segment ? 1 : 0);
      mask.resize(static_cast<std::size_t>(padded.ids.size(1)), 0);
    }
  return {padded, pad_tokens(matches, device()).ids, pad_tokens(segments, device()).ids,
          pad_tokens(in[0], device()).ids, pad_tokens(in[1], device()).ids};
}

Tensor PairMatcher::deep_logits(const PairBatch& batch, Context& context) {
  Tensor added = matches_(batch.matches);
  if (joint_ && !has_types_) added = added + segments_(batch.segments);
  PaddedTokens tokens = batch.tokens;
  if (has_types_) tokens.types = batch.segments;
  const Tensor x = hidden(tokens, added, context);
  Tensor u, v;
  if (joint_) {
    u = pooled(x, batch.in_first);
    v = pooled(x, batch.in_second);
  } else {
    const Tensor both = pooled(x, batch.tokens.mask);
    u = slice(both, 0, 0, both.size(0) / 2);
    v = slice(both, 0, both.size(0) / 2, both.size(0));
  }
  const Tensor compared = relu(compare_(concat({u, v, abs(u - v), u * v}, -1)));
  return output_(maybe_dropout(compared, config().dropout, context));
}

SentenceEncoder::SentenceEncoder(const TransformerConfig& config)
    : SentenceEncoder(checked_config(config, "an encoder of sentences",
                                     {{"source_vocabulary", config.source_vocabulary}}),
                      Initialiser(static_cast<std::uint64_t>(config.seed))) {}

SentenceEncoder::SentenceEncoder(const TransformerConfig& config, Initialiser initialiser)
    : SequenceEncoder(config, initialiser) {
  add_pooling(initialiser, config.pooler_width);
}

Tensor SentenceEncoder::pooled_outputs(const PaddedTokens& tokens, Context& context) {
  return pooled(hidden(tokens, context), tokens.mask);
}

Tensor SentenceEncoder::vectors(const PaddedTokens& tokens, Context& context) {
  const Tensor pool = pooled_outputs(tokens, context);
  return pool * rsqrt(sum(square(pool), -1, true) + 1e-12);
}

Loss SentenceEncoder::loss(const PaddedTokens& tokens, double scale, double smoothing, Context& context) {
  const Tensor both = vectors(tokens, context);
  const std::int64_t count = both.size(0) / 2;
  check(count > 0 && both.size(0) == 2 * count, "pairs of texts need an even number of rows, got ",
        both.size(0));
  const Tensor u = slice(both, 0, 0, count), v = slice(both, 0, count, 2 * count);
  std::vector<std::int32_t> own(static_cast<std::size_t>(count));
  std::iota(own.begin(), own.end(), 0);
  const Tensor scores = matmul(u, transpose(v, 0, 1)) * scale;
  return {sum(cross_entropy(scores, Tensor::from(own, {count}, device()), smoothing)), count};
}

}  // namespace heed
