#include "heed/models/attention/shared/sink_and_gate.h"

#include <string>

namespace heed {

/// Queries or keys [B, N, H dh] with each head normalised; unchanged without a norm.
static Tensor normed(const std::unique_ptr<Norm>& norm, const Tensor& x) {
  if (!norm || !x.defined()) return x;
  const std::int64_t width = norm->weight.size(0);
  return reshape((*norm)(reshape(x, {x.size(0), x.size(1), x.size(2) / width, width})), x.shape());
}

ProjectionOptions::Taken ProjectionOptions::take(const AttentionConfig& config, bool can_normalise) {
  return {can_normalise && config.options.take_bool("qk_norm", false),
          !config.cross && config.options.take_bool("value_residual", false)};
}

ProjectionOptions::ProjectionOptions(Attention& owner, const Taken& taken)
    : owner_(&owner), residual_(taken.residual) {
  const AttentionConfig& config = owner.config();
  const std::int64_t width = config.inner_width() / config.heads;
  if (taken.normalised) {
    query_norm_ = std::make_unique<Part<Norm>>(owner, "query_norm", NormKind::rms, width, config.epsilon);
    key_norm_ = std::make_unique<Part<Norm>>(owner, "key_norm", NormKind::rms, width, config.epsilon);
  }
  if (taken.residual && config.first)
    shares_ = std::make_unique<Parameter>(owner, "value_residual", Initialiser::constant({2}, 0.5));
}

Projections::Projected ProjectionOptions::operator()(Projections::Projected x, Context& context) const {
  x.query = normed(query_norm_, x.query), x.key = normed(key_norm_, x.key);
  if (!residual_ || !x.value.defined()) return x;
  const Attention* first = owner_->config().first;
  Tensor& of_first = context.shared_tensors["value_residual." + (first ? first : owner_)->path()];
  if (!first) {
    of_first = x.value;
    return x;
  }
  check(of_first.defined(), "'value_residual' needs to be set in the first layer with this mechanism, too");
  check(of_first.shape() == x.value.shape(),
        "'value_residual' needs values of the same shape in all layers, got ", of_first.shape(),
        " in the first and ", x.value.shape());
  const Tensor shares = cast(*shares_, x.value.dtype());
  x.value = of_first * select(shares, 0, 0) + x.value * select(shares, 0, 1);
  return x;
}

AttentionSink::AttentionSink(const AttentionConfig& config) : heads_(config.heads) {
  const std::string kind = config.options.take_choice("sink", {"none", "zero", "learned"});
  active_ = kind != "none";
  if (kind == "learned") add_parameter("logit", logit_, Initialiser::constant({heads_}, 0));
}

Tensor AttentionSink::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options) const {
  if (!active_) return attention(query, key, value, options);
  const AttentionPart part = attention_part(query, key, value, options);
  return part.output * unsqueeze(cast(share(part.log_sum_exp), query.dtype()), 3);
}

Tensor AttentionSink::weights(const Tensor& query, const Tensor& key, const AttentionOptions& options) const {
  const Tensor all = attention_weights(query, key, options);
  if (!active_) return all;
  return all * unsqueeze(cast(share(attention_part(query, key, key, options).log_sum_exp), query.dtype()), 3);
}

Tensor AttentionSink::share(const Tensor& log_sum_exp) const {
  if (!logit_.defined()) return sigmoid(log_sum_exp);
  const Tensor by_head = reshape(log_sum_exp, {log_sum_exp.size(0), heads_, -1});
  return reshape(sigmoid(by_head - unsqueeze(cast(logit_, log_sum_exp.dtype()), 1)), log_sum_exp.shape());
}

OutputGate::OutputGate(const AttentionConfig& config, Initialiser& initialiser) : heads_(config.heads) {
  const std::string kind = config.options.take_choice("gate", {"none", "elementwise", "headwise"});
  if (kind == "none") return;
  map_ = std::make_unique<Linear>(config.width, kind == "headwise" ? heads_ : config.inner_width(),
                                  config.bias, initialiser);
}

Tensor OutputGate::operator()(const Tensor& attended, const Tensor& x) const {
  if (!map_) return attended;
  const Tensor gate = sigmoid((*map_)(x));
  if (gate.size(2) == attended.size(2)) return attended * gate;
  const Shape by_head{attended.size(0), attended.size(1), heads_, attended.size(2) / heads_};
  return reshape(reshape(attended, by_head) * unsqueeze(gate, 3), attended.shape());
}

}  // namespace heed
