#include "heed/models/cases/model_cases.h"

#include <memory>
#include <string>
#include <utility>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/classifier.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/pairs.h"

namespace heed {

namespace {

using Inputs = std::span<const Tensor>;

Tensor draw(const Shape& shape, std::uint32_t stream) {
  return uniform(shape, -1, 1, {77, 1, stream}, DType::f64);
}

Tensor integers(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

/// A row whose function puts the given tensors in the place of the module's parameters and then calls
/// `forward` with the module and the inputs that come before them. The module follows them to their device.
template <class M, class Forward>
OpCase module_case(std::string name, std::shared_ptr<M> module, std::vector<Tensor> inputs, Forward forward) {
  module->to(DType::f64, {});
  const std::size_t activations = inputs.size();
  for (const NamedTensor& named : module->parameters()) inputs.push_back(named.tensor->detach());
  const auto function = [module, activations, forward](Inputs values) {
    const std::vector<NamedTensor> parameters = module->parameters();
    if (!parameters.empty()) {
      const Tensor &before = *parameters.front().tensor, &now = values[activations];
      if (before.dtype() != now.dtype() || before.device() != now.device())
        module->to(now.dtype(), now.device());
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) *parameters[i].tensor = values[activations + i];
    return forward(*module, values.first(activations));
  };
  return {std::move(name), function, std::move(inputs)};
}

// --- attention ----------------------------------------------------------------------------------------

AttentionConfig attention_config(bool causal, bool cross) {
  AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.bias = true;
  config.causal = causal;
  config.cross = cross;
  config.max_length = 8;
  config.seed = 5;
  return config;
}

/// The output and the auxiliary losses in one vector, so that both are checked; but not that of an
/// indexer, which takes what it learns from as constant. The reference cases check its gradients.
Tensor with_losses(const Tensor& out, Context& context) {
  const Tensor flat = reshape(out, {-1});
  std::erase_if(context.losses, [](const AuxiliaryLoss& loss) { return loss.name == "indexer"; });
  const Tensor losses = context.auxiliary_loss();
  return losses.defined() ? concat({flat, reshape(losses, {1})}, 0) : flat;
}

OpCase self_attention_case(const AttentionVariant& variant, bool causal, const Options& options = {},
                           const std::string& suffix = "", bool AttentionConfig::*positions = nullptr) {
  AttentionConfig config = attention_config(causal, false);
  config.options = options;
  if (positions) config.*positions = true;
  std::shared_ptr<Attention> layer = make_attention(variant.name, config);
  const Tensor mask = integers({1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {2, 5});
  return module_case(concat_text("attention/", variant.name, causal ? "/causal" : "/self", suffix), layer,
                     {draw({2, 5, 8}, 1), mask}, [](Attention& attention, Inputs in) {
                       Context context = Context::inference();
                       const Tensor out = attention({in[0], in[1], {}, {}}, context);
                       return with_losses(out, context);
                     });
}

OpCase cross_attention_case(const AttentionVariant& variant) {
  std::shared_ptr<Attention> layer = make_attention(variant.name, attention_config(false, true));
  const Tensor mask = integers({1, 1, 1, 1, 1, 0}, {2, 3});
  const Tensor memory_mask = integers({1, 1, 1, 0, 0, 1, 1, 1, 1, 1}, {2, 5});
  return module_case(concat_text("attention/", variant.name, "/cross"), layer,
                     {draw({2, 3, 8}, 2), mask, draw({2, 5, 8}, 3), memory_mask},
                     [](Attention& attention, Inputs in) {
                       Context context = Context::inference();
                       const Tensor out = attention({in[0], in[1], in[2], in[3]}, context);
                       return with_losses(out, context);
                     });
}

/// A variant with settings other than its defaults.
struct OptionCase {
  const char* variant;
  std::vector<std::pair<const char*, Options::Value>> settings;
};

/// The options that change what is computed, one row each.
const std::vector<OptionCase>& option_cases() {
  static const std::vector<OptionCase> list = {
      {"fastformer", {{"share_qv", false}}},
      {"fastformer", {{"global_keys", std::int64_t{0}}}},
      {"fastformer", {{"global_keys", std::int64_t{3}}}},
      {"clusterformer", {{"clusters", "auto"}}},
      {"clusterformer", {{"assoc", "clusters"}, {"window", "prev"}}},
      {"clusterformer", {{"phi_scale", 0.5}, {"lambda1", 0.3}, {"lambda2", 0.2}}},
      {"clusterformer", {{"cosine", false}, {"clusters", std::int64_t{2}}}},
      {"linformer", {{"share_kv", true}, {"k", std::int64_t{3}}}},
      {"linformer", {{"per_head", true}, {"k", std::int64_t{3}}}},
      {"sparse_transformer", {{"pattern", "fixed"}, {"mode", "merged"}, {"stride", std::int64_t{2}}}},
      {"sparse_transformer", {{"mode", "interleaved"}, {"stride", std::int64_t{2}}}},
      {"mixed_heads", {{"parts", std::vector<std::string>{"synthesizer_dense", "longformer"}}}},
      {"mixed_heads", {{"parts", std::vector<std::string>{"linformer", "bigbird"}}}},
      {"mixed_heads", {{"parts", std::vector<std::string>{"sparse_transformer", "synthesizer_mixture"}}}},
      {"synthesizer_dense", {{"share_w2", true}, {"hidden", std::int64_t{3}}}},
      {"synthesizer_mixture", {{"components", std::vector<std::string>{"dense", "fact_random", "dot"}}}},
      {"synthesizer_mixture", {{"components", std::vector<std::string>{"dense", "random", "fact_dense"}}}},
      {"routing_transformer", {{"shared_qk", true}, {"beta", 0.5}}},
      {"hard_coded_gaussian", {{"sigma", 0.5}, {"offsets", std::vector<double>{-2, 0, 1}}}},
      {"dot_product", {{"kv_heads", std::int64_t{1}}}},
      {"dot_product", {{"sink", "zero"}, {"gate", "headwise"}}},
      {"dot_product", {{"qk_norm", true}, {"output_bias", true}, {"kv_heads", std::int64_t{1}}}},
      {"dot_product", {{"sink", "learned"}, {"gate", "elementwise"}, {"kv_heads", std::int64_t{1}}}},
      {"dot_product", {{"window", std::int64_t{2}}, {"kv_heads", std::int64_t{1}}, {"sink", "zero"}}},
      {"dot_product", {{"logit_cap", 0.5}, {"logit_scale", 1.5}, {"kv_heads", std::int64_t{1}}}},
      {"dot_product",
       {{"logit_cap", 0.5}, {"window", std::int64_t{2}}, {"sink", "learned"}, {"relative", true}}},
      {"local",
       {{"reach", std::int64_t{1}},
        {"sinks", std::int64_t{1}},
        {"sink", "learned"},
        {"gate", "elementwise"}}},
      {"abc", {{"slots", std::int64_t{2}}}},
      {"gated_deltanet",
       {{"gated", false}, {"value_width", std::int64_t{2}}, {"convolution", std::int64_t{1}}}},
      {"delta_product", {{"rules", std::int64_t{3}}, {"reflect", false}, {"convolution", std::int64_t{1}}}},
      {"delta_product", {{"rules", std::int64_t{1}}, {"gated", false}, {"value_width", std::int64_t{2}}}},
      {"mamba2", {{"expand", std::int64_t{1}}, {"state", std::int64_t{3}}, {"convolution", std::int64_t{2}}}},
      {"multi_head_latent",
       {{"kv_rank", std::int64_t{3}}, {"query_rank", std::int64_t{5}}, {"rotary_width", std::int64_t{4}}}},
      {"kimi_delta", {{"value_width", std::int64_t{2}}, {"gate_rank", std::int64_t{3}}}},
      {"gated_deltanet2",
       {{"reflect", true}, {"value_width", std::int64_t{2}}, {"gate_rank", std::int64_t{3}}}},
      {"comba", {{"correction", 1.0}, {"value_width", std::int64_t{2}}}},
      {"log_linear", {{"expand", std::int64_t{1}}, {"state", std::int64_t{3}}, {"levels", std::int64_t{2}}}},
      {"mamba3", {{"expand", std::int64_t{1}}, {"state", std::int64_t{5}}, {"rank", std::int64_t{2}}}},
      {"mamba3", {{"state", std::int64_t{3}}, {"angles", std::int64_t{0}}}},
      {"path", {{"rank", std::int64_t{3}}, {"convolution", std::int64_t{1}}}},
      {"mesa_net", {{"iterations", std::int64_t{8}}, {"convolution", std::int64_t{1}}}},
      {"rwkv6", {{"mix_rank", std::int64_t{2}}, {"rank", std::int64_t{3}}}},
      {"gated_slot", {{"slots", std::int64_t{3}}, {"temperature", 2.0}}},
      {"based", {{"features", std::int64_t{3}}}},
      {"rwkv7", {{"rank", std::int64_t{3}}, {"gate_rank", std::int64_t{5}}}},
      {"native_sparse",
       {{"kv_heads", std::int64_t{1}},
        {"block", std::int64_t{2}},
        {"blocks", std::int64_t{3}},
        {"window", std::int64_t{2}}}},
      {"moba", {{"block", std::int64_t{2}}, {"blocks", std::int64_t{2}}}},
      {"deepseek_sparse", {{"tokens", std::int64_t{2}}, {"qk_norm", true}}},
      {"mixed_heads", {{"parts", std::vector<std::string>{"linear_transformer", "nystromformer"}}}},
      {"mixed_heads", {{"parts", std::vector<std::string>{"moba", "native_sparse"}}}},
      {"performer", {{"features", std::int64_t{3}}}},
      {"retnet", {{"value_width", std::int64_t{1}}}},
      {"gated_linear_attention", {{"temperature", 2.0}, {"gate_rank", std::int64_t{3}}}},
      {"attention_free_transformer", {{"form", "full"}, {"rank", std::int64_t{3}}}},
      {"attention_free_transformer",
       {{"form", "local"}, {"rank", std::int64_t{3}}, {"window", std::int64_t{2}}}},
      {"reformer", {{"rounds", std::int64_t{2}}, {"chunk", std::int64_t{1}}, {"buckets", std::int64_t{2}}}},
      {"local", {{"reach", std::int64_t{1}}, {"qk_norm", true}}},
      {"sinkhorn", {{"block", std::int64_t{2}}, {"noise", false}}},
      {"fnet", {{"unitary", true}}},
      {"nystromformer", {{"landmarks", std::int64_t{2}}, {"iterations", std::int64_t{2}}}},
  };
  return list;
}

std::string option_text(const Options::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return concat_text(*number);
  if (const auto* yes = std::get_if<bool>(&value)) return *yes ? "true" : "false";
  std::string list;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value))
    for (const std::string& text : *texts) list += (list.empty() ? "" : "+") + text;
  if (const auto* numbers = std::get_if<std::vector<double>>(&value))
    for (const double number : *numbers) list += concat_text(list.empty() ? "" : "+", number);
  return list;
}

void add_options(std::vector<OpCase>& cases) {
  for (const OptionCase& row : option_cases()) {
    Options options;
    std::string suffix;
    for (const auto& [name, value] : row.settings) {
      options.set(name, value);
      suffix += concat_text('/', name, '=', option_text(value));
    }
    const AttentionVariant& variant = attention_variant(row.variant);
    cases.push_back(self_attention_case(variant, false, options, suffix));
  }
}

void add_attention(std::vector<OpCase>& cases) {
  for (const AttentionVariant& variant : attention_variants()) {
    cases.push_back(self_attention_case(variant, false));
    if (variant.capabilities.causal) cases.push_back(self_attention_case(variant, true));
    if (variant.capabilities.cross) cases.push_back(cross_attention_case(variant));
    const Capabilities& can = variant.capabilities;
    const auto with_positions = [&](bool able, const char* suffix, bool AttentionConfig::*positions) {
      if (!able) return;
      cases.push_back(self_attention_case(variant, false, {}, suffix, positions));
      cases.push_back(self_attention_case(variant, true, {}, suffix, positions));
    };
    with_positions(can.rotary, "/rotary", &AttentionConfig::rotary);
    with_positions(can.alibi, "/alibi", &AttentionConfig::alibi);
    with_positions(can.relative, "/relative", &AttentionConfig::relative);
  }
}

// --- models -------------------------------------------------------------------------------------------

TransformerConfig small_config(const std::string& norm) {
  TransformerConfig config;
  config.width = 8;
  config.heads = 2;
  config.feed_forward = 12;
  config.encoder_layers = config.decoder_layers = 2;
  config.source_vocabulary = config.target_vocabulary = 11;
  config.classes = 3;
  config.max_length = 8;
  config.norm = norm;
  config.activation = "gelu";  // smooth: finite differences cross no kink
  config.attention_bias = true;
  config.seed = 3;
  return config;
}

// Ragged on purpose: one sequence of each batch is padded.
const std::vector<Tokens>& sources() {
  static const std::vector<Tokens> tokens = {{4, 5, 6, 7}, {8, 9}};
  return tokens;
}
const std::vector<Tokens>& targets() {
  static const std::vector<Tokens> tokens = {{5, 3}, {10, 7, 9}};
  return tokens;
}

/// The loss of a model with this configuration, as a function of its parameters alone.
template <class Model, class Config>
OpCase loss_case(const std::string& name, const Config& config, Loss (*loss)(Model&, Context&)) {
  return module_case("model/" + name, std::make_shared<Model>(config), {}, [loss](Model& model, Inputs) {
    Context context = Context::inference();
    return objective(loss(model, context), context);
  });
}

Loss translation_loss(EncoderDecoder& model, Context& context) {
  return model.loss(make_translation_batch(sources(), targets(), 1, 2, model.device()), 0.1, context);
}

Loss text_loss(LanguageModel& model, Context& context) {
  return model.loss(make_language_model_batch(sources(), model.device()), 0, context);
}

/// Sparse vectors of two samples, of which one has fewer entries.
SparseBatch sparse_rows(Device device) {
  return {Tensor::from(Tokens{0, 3, 4, 1, 3, -1}, {2, 3}, device),
          Tensor::from(std::vector<float>{0.5F, 0.7F, 0.2F, 0.9F, 0.1F, 0}, {2, 3}, device)};
}

Loss class_loss(EncoderClassifier& model, Context& context) {
  const std::vector<std::int32_t> labels = {2, 0};
  ClassificationBatch batch = make_classification_batch(sources(), labels, model.device());
  batch.sparse = sparse_rows(model.device());
  return model.loss(batch, 0, context);
}

Loss image_loss(ImageClassifier& model, Context& context) {
  Tokens image(24);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::int32_t>(i * 37 % 256);
  const std::vector<Tokens> images = {image, Tokens(24, 255)};
  const std::vector<std::int32_t> labels = {2, 0};
  return model.loss(make_classification_batch(images, labels, model.device()), 0, context);
}

Loss sentence_loss(SentenceEncoder& model, Context& context) {
  const std::vector<Tokens> texts = {{5, 6, 2}, {4, 2}, {6, 3}, {3}};
  return {model.loss(pad_tokens(texts, model.device()), 3, 0.1, context).sum, 1};
}

OpCase encoder_decoder_case(const std::string& norm, const std::string& tied, bool pointer = false) {
  TransformerConfig config = small_config(norm);
  config.tie_embeddings = tied;
  config.pointer = pointer;
  return loss_case("encoder_decoder/" + norm + "_norm/tied_" + tied + (pointer ? "/pointer" : ""), config,
                   translation_loss);
}

/// The blocks of later models: gated feed-forward layers, RMS normalisation, rotary positions, grouped
/// queries.
TransformerConfig modern_config(const std::string& activation) {
  TransformerConfig config = small_config("pre");
  config.activation = activation;
  config.norm_kind = "rms";
  config.positions = "rotary";
  for (AttentionChoices* choices :
       {&config.encoder_attention, &config.decoder_attention, &config.cross_attention})
    choices->front().options.set("kv_heads", std::int64_t{1});
  return config;
}

/// The rest of what Llama's family has: heads of a width of their own, rotary positions for longer texts,
/// normalised queries and keys, no biases. And value residuals and Canon layers.
TransformerConfig llama_config() {
  TransformerConfig config = modern_config("swiglu");
  config.head_width = 6;
  config.feed_forward_bias = false;
  config.rotary_base = 500;
  config.rotary_factor = 4;
  config.rotary_length = 8;
  config.decoder_attention.front().options.set("qk_norm", true);
  config.decoder_attention.front().options.set("value_residual", true);
  config.canon = 2;
  return config;
}

/// What Gemma and Phi add: norms on both sides, caps, windows, layers with a rotary base of their own, and
/// scaled rotary positions of a share of each head.
TransformerConfig gemma_config(const std::string& scaling) {
  TransformerConfig config = modern_config("geglu_tanh");
  config.norm = "sandwich";
  config.first_norm = scaling != "dynamic";
  config.output_cap = 0.5;
  config.head_width = 8;
  config.rotary_share = 0.5;
  config.rotary_scaling = scaling;
  config.rotary_factor = 4;
  config.rotary_length = 2;
  config.rotary_short = "1,2";
  config.rotary_long = "3,1.5";
  config.decoder_attention.front().options.set("logit_cap", 0.7);
  config.decoder_attention.push_back(config.decoder_attention.front());
  config.decoder_attention.back().options.set("window", std::int64_t{2});
  config.decoder_attention.back().options.set("rotary_base", 50.0);
  return config;
}

OpCase classifier_case(const std::string& norm, const std::string& pooling,
                       const std::string& pooler = "none") {
  TransformerConfig config = small_config(norm);
  config.pooling = pooling;
  config.pooler = pooler;
  return loss_case("encoder_classifier/" + norm + "_norm/" + pooling, config, class_loss);
}

/// What a classifier has for little data: a local layer, no positions, words and pairs beside the encoder.
OpCase small_data_case() {
  TransformerConfig config = small_config("post");
  config.pooling = "max";
  config.positions = "none";
  config.local_width = 3;
  config.sparse_features = 5;
  return loss_case("encoder_classifier/small_data", config, class_loss);
}

OpCase pair_case(bool joint) {
  TransformerConfig config = small_config("pre");
  config.sparse_features = 5;
  return module_case(concat_text("model/pair_matcher/", joint ? "joint" : "towers"),
                     std::make_shared<PairMatcher>(config, joint), {}, [](PairMatcher& model, Inputs) {
                       const std::vector<TokenPair> pairs = {
                           {{{5, 6, 2}, {0, 1, 0}}, {{6, 2}, {1, 0}}},
                           {{{4, 2}, {0, 0}}, {{3, 5, 4, 6, 2}, {0, 4, 3, 0, 0}}}};
                       Context context = Context::inference();
                       const ClassLogits logits =
                           model.part_logits(model.batch(pairs), context, sparse_rows(model.device()));
                       return logits.loss(Tensor::from(Tokens{2, 0}, {2}, model.device()), 0).sum;
                     });
}

/// Layers that are shared, or of several kinds.
OpCase stack_case(const std::string& name, const std::vector<std::string>& attentions,
                  const std::string& share) {
  TransformerConfig config = small_config("pre");
  config.share_layers = share;
  config.encoder_attention.clear();
  for (const std::string& attention : attentions) {
    config.encoder_attention.push_back({});
    config.encoder_attention.back().name = attention;
    if (attention == "linformer") config.encoder_attention.back().options.set("layerwise", true);
  }
  config.encoder_layers = std::max<std::int64_t>(2, static_cast<std::int64_t>(attentions.size()));
  return loss_case("stack/" + name, config, class_loss);
}

OpCase language_model_case(const std::string& positions) {
  TransformerConfig config = small_config("pre");
  config.positions = positions;
  return loss_case("language_model/" + positions + "_positions", config, text_loss);
}

}  // namespace

std::vector<OpCase> model_cases() {
  std::vector<OpCase> cases;
  add_attention(cases);
  add_options(cases);
  cases.push_back(encoder_decoder_case("post", "none"));
  cases.push_back(encoder_decoder_case("post", "all"));
  cases.push_back(encoder_decoder_case("pre", "decoder"));
  cases.push_back(encoder_decoder_case("pre", "all", /*pointer=*/true));
  cases.push_back(classifier_case("post", "mean"));
  cases.push_back(classifier_case("pre", "attention"));
  cases.push_back(classifier_case("post", "first", "tanh"));
  cases.push_back(classifier_case("pre", "last", "identity"));
  cases.push_back(classifier_case("pre", "weighted"));
  cases.push_back(small_data_case());
  cases.push_back(
      loss_case("image_classifier", ImageClassifierConfig{small_config("pre"), 4, 6, 2}, image_loss));
  cases.push_back(pair_case(/*joint=*/true));
  cases.push_back(pair_case(/*joint=*/false));
  cases.push_back(loss_case("sentence_encoder", small_config("pre"), sentence_loss));
  cases.push_back(stack_case("shared_attention", {"fastformer"}, "attention"));
  cases.push_back(stack_case("shared_layers", {"fastformer"}, "all"));
  cases.push_back(stack_case("linformer_layerwise", {"linformer"}, "none"));
  cases.push_back(stack_case("clusterformers", {"clusterformer", "dot_product", "clusterformer"}, "none"));
  for (const char* positions : {"sinusoidal", "learned", "rotary", "alibi", "relative"})
    cases.push_back(language_model_case(positions));
  for (const std::string activation : {"swiglu", "geglu"})
    cases.push_back(loss_case("language_model/modern/" + activation, modern_config(activation), text_loss));
  cases.push_back(loss_case("language_model/llama", llama_config(), text_loss));
  for (const std::string scaling : {"dynamic", "yarn", "longrope"})
    cases.push_back(loss_case("language_model/gemma/" + scaling, gemma_config(scaling), text_loss));
  cases.push_back(loss_case("encoder_decoder/modern", modern_config("swiglu"), translation_loss));
  return cases;
}

}  // namespace heed
