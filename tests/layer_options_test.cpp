// Options of layers and stacks: shared layers, heads of several kinds, ablations, presets.

#include <doctest/doctest.h>

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/classifier.h"
#include "heed/models/config.h"
#include "heed/models/encoder_decoder.h"
#include "heed/tests/model_support.h"

using namespace heed;
using test::has_name;
using test::message_of;
using test::tiny_config;

namespace {

Tensor draw(const Shape& shape, std::uint32_t stream) {
  return uniform(shape, -1, 1, {41, 0, stream}, DType::f64);
}

Tensor* find(Module& module, const std::string& name) {
  for (const NamedTensor& entry : module.parameters())
    if (entry.name == name) return entry.tensor;
  return nullptr;
}

void set(Module& module, const std::string& name, const Tensor& value) {
  Tensor* tensor = find(module, name);
  REQUIRE_MESSAGE(tensor != nullptr, name);
  REQUIRE(tensor->shape() == value.shape());
  const std::vector<double> values = value.to_vector<double>();
  tensor->assign(std::span<const double>(values));
}

std::unique_ptr<Attention> make(const char* name, const Options& options, std::int64_t heads = 4,
                                bool causal = false) {
  AttentionConfig config;
  config.width = 8;
  config.heads = heads;
  config.causal = causal;
  config.max_length = 8;
  config.options = options;
  auto layer = make_attention(name, config);
  layer->to(DType::f64, {});
  return layer;
}

Tensor run(Attention& layer, const Tensor& x) {
  Context context = Context::inference();
  return layer({x, {}, {}, {}}, context);
}

Tensor logits(EncoderClassifier& model) {
  const std::vector<Tokens> sentences = {{4, 5, 6, 7, 8}, {8, 9}};
  Context context = Context::inference();
  return model.logits(pad_tokens(sentences), context);
}

/// Gives every parameter of `to` the value of the one in `from` whose name `source_of` says.
void copy_parameters(Module& from, Module& to, const std::function<std::string(std::string)>& source_of) {
  for (const NamedTensor& entry : to.parameters())
    set(to, entry.name, find(from, source_of(entry.name))->detach());
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

AttentionChoice choice(const std::string& name, const Options& options = {}) {
  AttentionChoice chosen;
  chosen.name = name;
  chosen.options = options;
  return chosen;
}

}  // namespace

TEST_CASE("share_layers: a stack with one set of parameters is one with equal layers") {
  for (const std::string share : {"attention", "all"}) {
    for (const std::string name : {"fastformer", "dot_product", "clusterformer"}) {
      CAPTURE(share);
      CAPTURE(name);
      TransformerConfig config = tiny_config();
      config.encoder_layers = 3;
      config.encoder_attention = {choice(name)};
      EncoderClassifier separate(config);
      config.share_layers = share;
      EncoderClassifier shared(config);
      separate.to(DType::f64, {});
      shared.to(DType::f64, {});
      CHECK(has_name(shared, "encoder.layers.0.attention.query.weight"));
      CHECK_FALSE(has_name(shared, "encoder.layers.1.attention.query.weight"));
      CHECK(has_name(shared, "encoder.layers.2.feed_forward_norm.weight") == (share == "attention"));
      copy_parameters(shared, separate, [&](std::string parameter) {
        for (const std::string layer : {"layers.1.", "layers.2."}) {
          const bool is_shared = share == "all" || parameter.find(layer + "attention.") != std::string::npos;
          if (is_shared) parameter = replaced(parameter, layer, "layers.0.");
        }
        return parameter;
      });
      CHECK(test::worst_difference(logits(shared), logits(separate)) < 1e-12);
    }
  }
}

TEST_CASE("share_layers: layers of different kinds cannot be shared") {
  TransformerConfig config = tiny_config();
  config.encoder_layers = 2;
  config.encoder_attention = {choice("fastformer"), choice("dot_product")};
  config.share_layers = "attention";
  CHECK(test::contains(message_of([&] { EncoderClassifier{config}; }), "share_layers"));
}

TEST_CASE("linformer: layerwise sharing has one E for the whole stack") {
  Options options;
  options.set("k", std::int64_t{3});
  options.set("share_kv", true);
  TransformerConfig config = tiny_config();
  config.encoder_layers = 2;
  config.encoder_attention = {choice("linformer", options)};
  EncoderClassifier separate(config);
  options.set("layerwise", true);
  config.encoder_attention = {choice("linformer", options)};
  EncoderClassifier layerwise(config);
  separate.to(DType::f64, {});
  layerwise.to(DType::f64, {});
  CHECK(has_name(layerwise, "encoder.layers.0.attention.E"));
  CHECK_FALSE(has_name(layerwise, "encoder.layers.0.attention.F"));
  CHECK_FALSE(has_name(layerwise, "encoder.layers.1.attention.E"));
  copy_parameters(layerwise, separate, [](const std::string& name) {
    return name == "encoder.layers.1.attention.E" ? "encoder.layers.0.attention.E" : name;
  });
  CHECK(test::worst_difference(logits(layerwise), logits(separate)) < 1e-12);
  options.set("per_head", true);
  CHECK(test::contains(message_of([&] { make("linformer", options); }), "per_head"));
}

TEST_CASE("mixed_heads: parts of one kind are that kind with all heads") {
  Options options;
  options.set("parts", std::vector<std::string>{"dot_product", "dot_product"});
  options.set("part_heads", std::vector<double>{3, 1});
  const auto mixed = make("mixed_heads", options), whole = make("dot_product", {});
  for (const std::string name : {"query", "key", "value", "output"}) {
    const Tensor first = find(*mixed, "parts.0." + name + ".weight")->detach();
    const Tensor second = find(*mixed, "parts.1." + name + ".weight")->detach();
    set(*whole, name + ".weight", concat({first, second}, name == "output" ? 1 : 0));
  }
  const Tensor x = draw({2, 5, 8}, 1);
  CHECK(test::worst_difference(run(*mixed, x), run(*whole, x)) < 1e-14);
  CHECK(mixed->parameter_count() == whole->parameter_count());
}

TEST_CASE("mixed_heads: any variants, which keep their settings and say what they cannot do") {
  Options options;
  options.set("parts", std::vector<std::string>{"longformer", "synthesizer_random", "hard_coded_gaussian"});
  options.set("longformer.window", std::int64_t{2});
  options.set("hard_coded_gaussian.offsets", std::vector<double>{0});
  const auto layer = make("mixed_heads", options, 4, true);
  const Tensor x = draw({1, 6, 8}, 2);
  const Tensor whole = run(*layer, x);
  AttentionCache cache;
  Context context = Context::inference();
  for (std::int64_t t = 0; t < 6; ++t) {
    const Tensor one = layer->step({slice(x, 1, t, t + 1), {}, {}, {}}, cache, context);
    CHECK(test::worst_difference(one, slice(whole, 1, t, t + 1)) < 1e-12);
  }
  CHECK_FALSE(attention_capabilities("mixed_heads", options).any_length);
  CHECK(attention_capabilities("mixed_heads", {}).any_length);

  options.set("longformer.windw", std::int64_t{2});
  CHECK(test::contains(message_of([&] { make("mixed_heads", options); }), "windw"));
  Options linformer;
  linformer.set("parts", std::vector<std::string>{"dot_product", "linformer"});
  CHECK(test::contains(message_of([&] { make("mixed_heads", linformer, 4, true); }), "mixes all positions"));
  linformer.set("part_heads", std::vector<double>{3, 3});
  CHECK(test::contains(message_of([&] { make("mixed_heads", linformer); }), "6 heads"));
  Options fastformer;
  fastformer.set("parts", std::vector<std::string>{"dot_product", "fastformer"});
  CHECK(test::contains(message_of([&] { make("mixed_heads", fastformer); }), "some of the heads"));
}

TEST_CASE("fastformer: equal global keys are one, and without a key the global query meets the values") {
  const Tensor x = draw({2, 5, 8}, 3);
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const auto with_keys = [&](std::int64_t count) {
      Options options;
      options.set("global_keys", count);
      return make("fastformer", options, 2, causal);
    };
    const auto one = with_keys(1), three = with_keys(3), none = with_keys(0);
    for (const std::string name : {"query", "key", "query_score", "output"})
      set(*three, name + ".weight", find(*one, name + ".weight")->detach());
    const Tensor score = find(*one, "key_score.weight")->detach();
    set(*three, "key_score.weight", concat({score, score, score}, 0));
    CHECK(test::worst_difference(run(*one, x), run(*three, x)) < 1e-14);
    set(*three, "key_score.weight", concat({score, score * 1e5, score * -1e5}, 0));
    CHECK(test::worst_difference(run(*one, x), run(*three, x)) > 1e-9);
    CHECK(none->parameter_count() == 2 * 8 * 8 + 2 * 8);
    CHECK_FALSE(has_name(*none, "key.weight"));
  }
  Options none;
  none.set("global_keys", std::int64_t{0});
  const auto layer = make("fastformer", none, 1);
  const Tensor q = linear(x, find(*layer, "query.weight")->detach());
  const Tensor scores =
      linear(q, find(*layer, "query_score.weight")->detach()) / std::sqrt(8.0);  // [B, N, 1]
  const Tensor global_query = sum(softmax(scores, 1) * q, 1, true);
  const Tensor expected = linear(global_query * q, find(*layer, "output.weight")->detach()) + q;
  CHECK(test::worst_difference(run(*layer, x), expected) < 1e-14);
}

TEST_CASE("presets: the models of the hard-coded Gaussian paper") {
  const auto model_of = [](const char* preset) {
    TransformerConfig config = tiny_config();
    config.encoder_layers = config.decoder_layers = 3;
    apply_preset(config, preset);
    return std::make_unique<EncoderDecoder>(config);
  };
  const auto base_config = [] {
    TransformerConfig config = tiny_config();
    config.encoder_layers = config.decoder_layers = 3;
    return config;
  }();
  EncoderDecoder base(base_config);
  const std::int64_t square = base_config.width * base_config.width, base_count = base.parameter_count();
  const std::int64_t norm = 2 * base_config.width;
  const auto hc_sa = model_of("hc-sa"), sh_x = model_of("sh-x"), hc_all = model_of("hc-all");
  // Without queries and keys a layer has 2 d^2 parameters less; 6 self-attentions and 3 cross-attentions.
  CHECK(hc_sa->parameter_count() == base_count - 6 * 2 * square);
  CHECK(sh_x->parameter_count() == hc_sa->parameter_count() - 2 * (4 * square + norm));
  CHECK(hc_all->parameter_count() == base_count - 9 * 2 * square);
  CHECK(has_name(*hc_sa, "decoder.layers.0.cross_attention.query.weight"));
  CHECK_FALSE(has_name(*sh_x, "decoder.layers.1.cross_attention.value.weight"));
  CHECK(has_name(*sh_x, "decoder.layers.2.cross_attention.query.weight"));
  CHECK(sh_x->config().cross_attention.back().heads == 1);
  CHECK_FALSE(has_name(*hc_all, "decoder.layers.2.cross_attention.query.weight"));
  TransformerConfig config;
  CHECK(test::contains(message_of([&] { apply_preset(config, "hc-al"); }), "hc-all"));
}
