#include "heed/models/loss.h"

#include <algorithm>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {

constexpr std::int64_t rows_of_capped_loss = 256;  // whose logits are in memory at once

static std::size_t longest(std::span<const Tokens> sequences) {
  check(!sequences.empty(), "a batch needs at least one sequence");
  std::size_t length = 1;
  for (const Tokens& sequence : sequences) length = std::max(length, sequence.size());
  return length;
}

PaddedTokens pad_tokens(std::span<const Tokens> sequences, Device device) {
  const std::size_t length = longest(sequences);
  const Shape shape{static_cast<std::int64_t>(sequences.size()), static_cast<std::int64_t>(length)};
  std::vector<std::int32_t> ids, mask;
  bool padded = false;
  for (const Tokens& sequence : sequences) {
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    ids.insert(ids.end(), length - sequence.size(), -1);
    mask.insert(mask.end(), sequence.size(), 1);
    mask.insert(mask.end(), length - sequence.size(), 0);
    padded = padded || sequence.size() < length;
  }
  return {Tensor::from(ids, shape, device), padded ? Tensor::from(mask, shape, device) : Tensor()};
}

Targets make_targets(std::span<const Tokens> sequences, Device device) {
  const std::size_t length = longest(sequences);
  std::vector<std::int32_t> ids, rows;
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    for (std::size_t i = 0; i < sequences[b].size(); ++i) {
      ids.push_back(sequences[b][i]);
      rows.push_back(static_cast<std::int32_t>(b * length + i));
    }
  }
  check(!ids.empty(), "a batch needs at least one target token");
  const auto count = static_cast<std::int64_t>(ids.size());
  const bool all = ids.size() == sequences.size() * length;
  return {Tensor::from(ids, {count}, device), all ? Tensor() : Tensor::from(rows, {count}, device), count};
}

TranslationBatch make_translation_batch(std::span<const Tokens> sources, std::span<const Tokens> targets,
                                        std::int32_t begin, std::int32_t end, Device device) {
  check(sources.size() == targets.size(), "a translation batch needs as many targets as sources, got ",
        targets.size(), " and ", sources.size());
  std::vector<Tokens> inputs(targets.begin(), targets.end()), outputs(targets.begin(), targets.end());
  for (Tokens& input : inputs) input.insert(input.begin(), begin);
  for (Tokens& output : outputs) output.push_back(end);
  return {pad_tokens(sources, device), pad_tokens(inputs, device), make_targets(outputs, device)};
}

LanguageModelBatch make_language_model_batch(std::span<const Tokens> sequences, Device device) {
  std::vector<Tokens> inputs, outputs;
  for (const Tokens& sequence : sequences) {
    check(sequence.size() >= 2, "a language model learns from sequences of at least two tokens, got one of ",
          sequence.size());
    inputs.emplace_back(sequence.begin(), sequence.end() - 1);
    outputs.emplace_back(sequence.begin() + 1, sequence.end());
  }
  return {pad_tokens(inputs, device), make_targets(outputs, device)};
}

ClassificationBatch make_classification_batch(std::span<const Tokens> sequences,
                                              std::span<const std::int32_t> labels, Device device) {
  check(sequences.size() == labels.size(), "a classification batch needs as many labels as sequences, got ",
        labels.size(), " and ", sequences.size());
  return {pad_tokens(sequences, device),
          Tensor::from(labels, {static_cast<std::int64_t>(labels.size())}, device)};
}

Tensor objective(const Loss& loss, const Context& context) {
  const Tensor auxiliary = context.auxiliary_loss();
  return auxiliary.defined() ? loss.mean() + auxiliary : loss.mean();
}

Tensor target_rows(const Tensor& x, const Targets& targets) {
  Tensor rows = reshape(x, {-1, x.size(-1)});
  if (targets.rows.defined()) rows = index_select(rows, 0, targets.rows);
  check(rows.size(0) == targets.count, "the loss got ", rows.size(0), " predictions for ", targets.count,
        " targets");
  return rows;
}

Loss token_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Targets& targets,
                double smoothing) {
  const Tensor rows = target_rows(hidden, targets);
  return {linear_cross_entropy(rows, weight, bias, targets.ids, smoothing), targets.count};
}

VocabularyHead::VocabularyHead(const TransformerConfig& config, const Embedding& embedding,
                               Initialiser& initialiser)
    : embedding_(embedding), cap_(config.output_cap) {
  const Shape& shape = embedding.weight.shape();
  if (config.tie_embeddings == "none")
    add_parameter("weight", own_, initialiser.xavier_uniform(shape[0], shape[1]));
  if (config.output_bias) add_parameter("bias", bias, Initialiser::constant({shape[0]}, 0));
}

Tensor VocabularyHead::operator()(const Tensor& hidden) const {
  const Tensor logits = linear(hidden, weight(), bias);
  return cap_ > 0 ? tanh(logits / cap_) * cap_ : logits;
}

Loss VocabularyHead::loss(const Tensor& hidden, const Targets& targets, double smoothing) const {
  if (cap_ == 0) return token_loss(hidden, weight(), bias, targets, smoothing);
  const Tensor rows = target_rows(hidden, targets);
  Random random(0);
  Tensor total;
  for (std::int64_t begin = 0; begin < targets.count; begin += rows_of_capped_loss) {
    const std::int64_t end = std::min(begin + rows_of_capped_loss, targets.count);
    const auto part = [this, smoothing, ids = slice(targets.ids, 0, begin, end)](auto inputs, Random&) {
      return sum(cross_entropy((*this)(inputs[0]), ids, smoothing));
    };
    const Tensor loss = recompute_in_backward(part, {slice(rows, 0, begin, end)}, random);
    total = total.defined() ? total + loss : loss;
  }
  return {total, targets.count};
}

}  // namespace heed
