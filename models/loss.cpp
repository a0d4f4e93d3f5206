#include "heed/models/loss.h"

#include "heed/autograd/ops.h"

namespace heed {

Tensor Loss::mean() const {
  return sum / static_cast<double>(count);
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
    : embedding_(embedding) {
  const Shape& shape = embedding.weight.shape();
  if (config.tie_embeddings == "none")
    add_parameter("weight", own_, initialiser.xavier_uniform(shape[0], shape[1]));
  if (config.output_bias) add_parameter("bias", bias, Initialiser::constant({shape[0]}, 0));
}

Tensor VocabularyHead::operator()(const Tensor& hidden) const {
  return linear(hidden, weight(), bias);
}

Loss VocabularyHead::loss(const Tensor& hidden, const Targets& targets, double smoothing) const {
  return token_loss(hidden, weight(), bias, targets, smoothing);
}

}  // namespace heed
