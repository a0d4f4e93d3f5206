#include "heed/models/attention/shared/sink_and_gate.h"

namespace heed {

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
