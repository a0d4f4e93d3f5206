// The adapters of the attentions that sort words first: ClusterFormer, Reformer, Routing Transformer.

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/cases/adapters.h"

namespace heed::verify {
namespace {

Tensor& find_buffer(Attention& attention, const std::string& name) {
  for (const NamedTensor& buffer : attention.buffers())
    if (buffer.name == name) return *buffer.tensor;
  fail("the layer has no buffer ", name);
}

}  // namespace

void set_buffer(Attention& attention, const std::string& name, const CaseInputs& inputs,
                const std::string& input) {
  Tensor& buffer = find_buffer(attention, name);
  const Tensor& value = inputs.special.at(input);
  check(value.shape() == buffer.shape(), "input ", input, " has shape ", value.shape(), ", our ", name,
        " has ", buffer.shape());
  buffer = value;
}

namespace {

/// Layers one after the other, each within a residual connection: x <- x + O.
class LayerChain : public Attention {
 public:
  LayerChain(std::string_view variant, AttentionConfig config, std::int64_t count) : Attention(config) {
    for (config.layer = 0; config.layer < count; ++config.layer) {
      config.first = layers_.empty() ? nullptr : layers_.front().get();
      layers_.push_back(make_attention(variant, config));
      add_module("layer" + std::to_string(config.layer), *layers_.back());
    }
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    AttentionInput at = input;
    for (const auto& layer : layers_) at.x = at.x + (*layer)(at, context);
    return at.x;
  }

 private:
  std::vector<std::unique_ptr<Attention>> layers_;
};

std::unique_ptr<Attention> make_clusterformer(const ReferenceCase& reference, const Adapter& adapter,
                                              const AttentionConfig& config) {
  const std::int64_t layers = reference.config.value("layers", 1);
  if (layers == 1) return make_attention(adapter.attention, config);
  return std::make_unique<LayerChain>(adapter.attention, config, layers);
}

void configure_clusterformer(const ReferenceCase& reference, AttentionConfig& config) {
  const nlohmann::json& settings = reference.config;
  if (!settings.contains("cosine")) config.options.set("cosine", false);
  if (!config.causal) {  // w follows from N and K
    for (const char* key : {"window", "assoc"})
      if (settings.contains(key)) config.options.set(key, settings.at(key).get<std::string>());
    return;
  }
  const std::int64_t words = reference.at("in.X").size(1), clusters = settings.at("K");
  config.options.set("block", settings.value("w", (words + clusters - 1) / clusters));
}

CaseOutputs run_clusterformer(const ReferenceCase& reference, Attention& attention, const CaseInputs& inputs,
                              Context& context) {
  CaseOutputs result;
  Capture capture;
  context.capture = &capture;
  result.outputs["O"] = attention(inputs.attention, context);
  if (reference.has("out.C_hat"))
    result.outputs["C_hat"] = context.shared_tensors.at("clusterformer.centroids");
  for (const AuxiliaryLoss& loss : context.losses) {
    Tensor& sum_over_layers = result.losses[loss.name == "clustering" ? "L1" : "L2"];
    sum_over_layers = sum_over_layers.defined() ? sum_over_layers + loss.value : loss.value;
  }
  for (const auto& [layer, name, value] : capture.entries) {
    const std::string prefix = layer.empty() ? "" : layer + ".";
    if (name == "assignment") result.discrete[prefix + "I"] = value;
    if (name == "order") result.discrete[prefix + "order"] = value;
  }
  return result;
}

CaseOutputs run_reformer(const ReferenceCase&, Attention& attention, const CaseInputs& inputs,
                         Context& context) {
  set_buffer(attention, "rotations", inputs, "rot");
  CaseOutputs result;
  Capture capture;
  context.capture = &capture;
  result.outputs["O"] = attention(inputs.attention, context);
  result.discrete["bucket"] = capture.find("buckets");
  result.discrete["order"] = capture.find("order");
  return result;
}

void set_routing_state(Attention& attention, const CaseInputs& inputs) {
  set_buffer(attention, "routing.centroids", inputs, "mu");
  if (inputs.special.contains("ema_count")) set_buffer(attention, "routing.counts", inputs, "ema_count");
  if (inputs.special.contains("ema_sum")) set_buffer(attention, "routing.sums", inputs, "ema_sum");
}

/// The centroids after a step of training with the paper's rule, from the same weights.
Tensor centroids_by_paper(Attention& attention, const CaseInputs& inputs, const AttentionConfig& config) {
  AttentionConfig changed = config;
  changed.options.set("update", std::string("paper"));
  const auto other = make_attention("routing_transformer", changed);
  const std::vector<NamedTensor> from = attention.state(), to = other->state();
  for (std::size_t i = 0; i < from.size(); ++i) *to[i].tensor = from[i].tensor->detach();
  set_routing_state(*other, inputs);
  Context context = Context::train(0, 0);
  (*other)(inputs.attention, context);
  return find_buffer(*other, "routing.centroids");
}

CaseOutputs run_routing(const ReferenceCase&, Attention& attention, const CaseInputs& inputs,
                        Context& context) {
  set_routing_state(attention, inputs);
  CaseOutputs result;
  Capture capture;
  context.capture = &capture;
  context.training = true;  // so that the centroids move
  result.outputs["O"] = attention(inputs.attention, context);
  for (const AuxiliaryLoss& loss : context.losses) result.losses["Lc"] = loss.value * loss.weight;
  result.discrete["q_idx"] = capture.find("query_words");
  result.discrete["k_idx"] = capture.find("key_words");
  result.discrete["q_assign"] = capture.find("query_centroids");
  result.discrete["k_assign"] = capture.find("key_centroids");
  result.inside["mu_ema"] = find_buffer(attention, "routing.centroids");
  result.inside["ema_count"] = find_buffer(attention, "routing.counts");
  result.inside["ema_sum"] = find_buffer(attention, "routing.sums");
  result.inside["mu_paper"] = centroids_by_paper(attention, inputs, attention.config());
  return result;
}

}  // namespace

Adapter clusterformer_adapter() {
  return {.variant = "clusterformer",
          .attention = "clusterformer",
          .options = "K=clusters",
          .ignored = "w window assoc layers residual",
          .parameters = "C0=centroids Wc=similarity.weight",
          .configure = configure_clusterformer,
          .make = make_clusterformer,
          .run = run_clusterformer};
}

Adapter reformer_adapter() {
  return {.variant = "reformer",
          .attention = "reformer",
          .options = "n_buckets=buckets",
          .parameters = "Wqk=query_key.weight bqk=query_key.bias",
          .run = run_reformer};
}

Adapter routing_adapter() {
  return {.variant = "routing",
          .attention = "routing_transformer",
          .ignored = "ln_eps",  // 1e-6 in all cases, as in the specification
          .parameters = "Wqk=query_key.weight bqk=query_key.bias",
          .run = run_routing};
}

}  // namespace heed::verify
