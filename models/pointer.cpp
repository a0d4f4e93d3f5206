#include "heed/models/pointer.h"

#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

constexpr double least = 1e-20;          // of a probability before its logarithm is taken
constexpr double surely_generated = 50;  // the gate's logit where there is nothing to copy

/// Small probabilities are lost in half types.
Tensor precise(const Tensor& x) {
  return x.dtype() == DType::f64 ? x : cast(x, DType::f32);
}

/// log(exp(a) + exp(b))
Tensor log_of_sum(const Tensor& a, const Tensor& b) {
  const Tensor larger = maximum(a, b);
  return larger + log(exp(a - larger) + exp(b - larger));
}

}  // namespace

Pointer::Pointer(const TransformerConfig& config, Initialiser& initialiser)
    : embedding_scale_(config.scale_embeddings ? std::sqrt(static_cast<double>(config.width)) : 1),
      query_(config.width, config.width, true, initialiser),
      key_(2 * config.width, config.width, true, initialiser),
      gate_(config.width, 1, true, initialiser) {
  add_module("query", query_);
  add_module("key", key_);
  add_module("gate", gate_);
}

PointerSource Pointer::source(const Tensor& memory, const PaddedTokens& tokens,
                              const Embedding& embedding) const {
  // Nothing stands before the first token: a row of zeros, as padding has.
  const Tensor before = slice(pad(tokens.ids, 1, 1, 0, -1), 1, 0, tokens.ids.size(1));
  return {key_(concat({memory, embedding(before) * embedding_scale_}, -1)), tokens.ids, tokens.mask};
}

Tensor Pointer::weights(const Tensor& hidden, const PointerSource& source, Context& context) const {
  AttentionOptions options;
  options.key_mask = source.mask;
  const Tensor query = unsqueeze(query_(hidden), 1), key = unsqueeze(source.keys, 1);
  const Tensor found = attention_weights(query, key, options);  // [B, 1, T, M]
  if (context.capture) context.capture->entries.push_back({path() + ".cross", "weights", found.detach()});
  return precise(squeeze(found, 1));
}

Tensor Pointer::gate(const Tensor& hidden, const Tensor& copied) const {
  return where(greater(sum(copied, -1, true), 0.5), precise(gate_(hidden)), surely_generated);
}

Tensor Pointer::log_probabilities(const Tensor& hidden, const Tensor& logits, const PointerSource& source,
                                  Context& context) const {
  const Tensor copied = weights(hidden, source, context);  // [B, T, M]
  const Tensor ids = contiguous(expand(unsqueeze(maximum(source.ids, 0), 1), copied.shape()));
  const Tensor copies = scatter_add(copied, 2, ids, logits.size(-1)), z = gate(hidden, copied);
  return log_of_sum(log_softmax(precise(logits)) - softplus(-z), log(copies + least) - softplus(z));
}

Loss Pointer::loss(const Tensor& hidden, const VocabularyHead& head, const PointerSource& source,
                   const Targets& targets, double smoothing, Context& context) const {
  const Tensor copied = weights(hidden, source, context);
  const Tensor ids = contiguous(expand(unsqueeze(source.ids, 1), copied.shape()));
  const Tensor states = target_rows(hidden, targets),
               places = target_rows(copied, targets);                                    // [count, d or M]
  const Tensor is_target = equal(target_rows(ids, targets), unsqueeze(targets.ids, 1));  // [count, M]
  const Tensor copies = sum(where(is_target, places, 0.0), 1);                           // [count]
  const Tensor z = squeeze(gate(states, places), 1), logits = precise(head(states));
  const Tensor generated = -cross_entropy(logits, targets.ids);  // log P_vocabulary of the targets
  const Tensor found = log_of_sum(generated - softplus(-z), log(copies + least) - softplus(z));
  Tensor losses = -found;
  if (smoothing > 0)  // what smoothing adds to the cross entropy of P_vocabulary
    losses = (1 - smoothing) * (generated - found) + cross_entropy(logits, targets.ids, smoothing);
  return {sum(losses), targets.count};
}

}  // namespace heed
