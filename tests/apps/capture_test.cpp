// Looking inside: the weights that a layer shows are those it used, for every variant in every use.

#include "heed/apps/report/capture.h"
#include "heed/apps/report/report.h"
#include "heed/models/attention/attention.h"
#include "heed/tests/model_support.h"

namespace {

struct LayerUse {
  bool causal, cross;
};

Tensor integers(Ints values, const Shape& shape) {
  return Tensor::from(values, shape);
}

Tensor named(Module& module, const std::string& name) {
  for (const NamedTensor& entry : module.parameters())
    if (entry.name == name) return entry.tensor->detach();
  return {};
}

/// 2 samples of 7 words, the second with 2 of padding; a memory of 5 words, one of them padding.
AttentionInput layer_input(const LayerUse& use) {
  AttentionInput input;
  input.x = uniform_numbers(31, {2, 7, 8}, 1);
  input.mask = integers({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 7});
  if (!use.cross) return input;
  input.memory = uniform_numbers(31, {2, 5, 8}, 2);
  input.memory_mask = integers({1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, {2, 5});
  return input;
}

std::unique_ptr<Attention> make(const AttentionVariant& variant, const LayerUse& use,
                                const Options& options) {
  AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.bias = true;
  config.causal = use.causal;
  config.cross = use.cross;
  config.max_length = 8;
  config.seed = 3;
  config.options = options;
  auto layer = make_attention(variant.name, config);
  layer->to(DType::f64, {});
  return layer;
}

/// merge(A v) Wo, v = split(Y Wv): what every layer with weights A, values and an output map computes.
Tensor output_from(const Tensor& weights, Attention& layer, const AttentionInput& input) {
  const Tensor& memory = input.memory.defined() ? input.memory : input.x;
  const Tensor& mask = input.memory.defined() ? input.memory_mask : input.mask;
  Tensor value = linear(memory, named(layer, "value.weight"), named(layer, "value.bias"));
  if (const Tensor f = named(layer, "F"); f.defined()) {  // Linformer shortens its values
    value = where(unsqueeze(mask, 2), value, Tensor::zeros({}, DType::f64));
    value = matmul(slice(f, 1, 0, value.size(1)), value);
  }
  const Tensor merged = merge_heads(matmul(weights, split_heads(value, layer.config().heads)));
  const Tensor out = linear(merged, named(layer, "output.weight"), named(layer, "output.bias"));
  return where(unsqueeze(input.mask, 2), out, Tensor::zeros({}, DType::f64));
}

std::vector<LayerUse> uses_of(const AttentionVariant& variant) {
  std::vector<LayerUse> uses{{false, false}};
  if (variant.capabilities.causal) uses.push_back({true, false});
  if (variant.capabilities.cross) uses.push_back({false, true});
  return uses;
}

Options small_options(const std::string& variant) {
  static const std::map<std::string, Options> rows = {
      {"longformer", options_of({{"global_tokens", 0}, {"window", 2}})},  // they have values of their own
      {"sinkhorn", options_of({{"block", 2}})},
      {"local", options_of({{"reach", 2}})},
      {"bigbird", options_of({{"block", 2}})},
      {"reformer", options_of({{"chunk", 2}})},
      {"linformer", options_of({{"k", 3}})},
      {"nystromformer", options_of({{"landmarks", 3}})},
      {"deepseek_sparse", options_of({{"tokens", 2}})},
      {"moba", options_of({{"block", 2}, {"blocks", 2}})}};
  const auto found = rows.find(variant);
  return found == rows.end() ? Options() : found->second;
}

}  // namespace

TEST_CASE("capture: the output follows from the weights that a layer shows") {
  // These have no weights between words (see below), mixed heads show those of each part, differential
  // attention normalises what its weights give, and latent attention makes its values of another map.
  const std::string unweighted =
      " fastformer retnet fnet mixed_heads gated_linear_attention attention_free_transformer gated_deltanet"
      " delta_product mesa_net log_linear gated_deltanet2 comba mlstm gated_slot hgrn2 rwkv6 mamba2 mamba3 "
      "kimi_delta rwkv7 "
      "native_sparse differential "
      "multi_head_latent ";
  for (const AttentionVariant& variant : attention_variants()) {
    if (contains(unweighted, " " + std::string(variant.name) + " ")) continue;
    for (const LayerUse& use : uses_of(variant)) {
      CAPTURE_ALL(variant.name, use.causal, use.cross);
      const auto layer = make(variant, use, small_options(variant.name));
      const AttentionInput input = layer_input(use);
      const Watched pass(*layer, input);
      const Tensor weights = pass.capture.find("weights");
      REQUIRE(weights.defined());
      CHECK_FALSE(weights.tracked());
      CHECK(weights.rank() == 4);
      CHECK(weights.size(1) == 2);
      CHECK(weights.size(2) == 7);
      CHECK(worst_difference(output_from(weights, *layer, input), pass.out) < 1e-12);

      Context unwatched = Context::inference();
      CHECK((*layer)(input, unwatched).to_vector<double>() == pass.out.to_vector<double>());
    }
  }
}

TEST_CASE("capture: Longformer's global tokens look at everything, sample by sample") {
  const LayerUse use{false, false};
  const auto layer = make(attention_variant("longformer"), use, options_of({{"window", 0}}));
  AttentionInput input = layer_input(use);
  input.global = integers({0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, {2, 7});
  const Tensor weights = Watched(*layer, input).capture.find("weights");
  REQUIRE(weights.shape() == Shape{2, 2, 7, 7});
  const auto entry = [&](std::int64_t b, std::int64_t i, std::int64_t j) {
    return select(select(select(select(weights, 0, b), 0, 0), 0, i), 0, j).item();
  };
  CHECK(entry(0, 2, 6) > 0);   // the global token of the first sample
  CHECK(entry(1, 2, 4) == 0);  // which is none in the second
  CHECK(entry(1, 0, 4) > 0);
  CHECK(entry(1, 0, 6) == 0);  // padding
}

TEST_CASE("capture: Fastformer shows how it pools") {
  for (const LayerUse& use : {LayerUse{false, false}, LayerUse{true, false}, LayerUse{false, true}}) {
    CAPTURE_ALL(use.causal, use.cross);
    const auto layer = make(attention_variant("fastformer"), use, options_of({{"global_keys", 2}}));
    const Capture capture = Watched(*layer, layer_input(use)).capture;
    const std::int64_t keys = use.cross ? 5 : 7;
    const Shape of_query = use.causal ? Shape{2, 2, 7, 7} : Shape{2, 2, 7},
                of_key = use.causal ? Shape{2, 2, 7, 7} : Shape{2, 2, keys};
    CHECK(capture.find("query_weights").shape() == of_query);
    CHECK(capture.find("key_weights").shape() == of_key);
    CHECK(capture.find("key_choice").shape() == Shape{2, 2, 7, 2});
    for (const Capture::Entry& entry : capture.entries) {
      const Tensor total = sum(entry.value, -1);
      CHECK(test::worst_difference(total, Tensor::ones(total.shape(), DType::f64)) < 1e-12);
    }
  }
}

TEST_CASE("capture: RetNet shows its retention, whose sums it normalises and gates") {
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const LayerUse use{causal, false};
    const auto layer = make(attention_variant("retnet"), use, {});
    const AttentionInput input = layer_input(use);
    const Watched pass(*layer, input);
    const Tensor retention = pass.capture.find("retention");
    REQUIRE(retention.shape() == Shape{2, 2, 7, 7});
    const auto mapped = [&](const char* map, const Tensor& x) {
      return linear(x, named(*layer, std::string(map) + ".weight"),
                    named(*layer, std::string(map) + ".bias"));
    };
    const Tensor sums = matmul(retention, split_heads(mapped("value", input.x), 2));
    const Tensor gated = silu(mapped("gate", input.x)) * merge_heads(layer_norm(sums, {}, {}));
    const Tensor expected = where(unsqueeze(input.mask, 2), mapped("output", gated), 0);
    CHECK(worst_difference(expected, pass.out) < 1e-12);
  }
}

TEST_CASE("capture: clusters and orders of the variants that sort") {
  const auto shown_by = [](const char* name, bool causal) {
    const auto layer = make(attention_variant(name), {causal, false}, {});
    return Watched(*layer, layer_input({causal, false})).capture;
  };
  for (const bool causal : {false, true}) {
    const Capture clusters = shown_by("clusterformer", causal);
    CHECK(clusters.find("assignment").shape() == Shape{2, 7});
    CHECK(clusters.find("order").shape() == Shape{2, 7});
    CHECK(clusters.find("centroids").defined() == !causal);
    CHECK(shown_by("reformer", causal).find("order").shape() == Shape{8, 2, 2, 7});
    CHECK(shown_by("routing_transformer", causal).find("query_centroids").shape() == Shape{2, 2, 7});
  }
}

TEST_CASE("capture: dot product attention shows its weights while decoding too") {
  const auto layer = make(attention_variant("dot_product"), {true, false}, {});
  const Tensor x = uniform_numbers(31, {1, 3, 8}, 4);
  Capture stepped;
  Context context = Context::inference();
  context.capture = &stepped;
  AttentionCache cache;
  for (std::int64_t t = 0; t < 3; ++t) layer->step({slice(x, 1, t, t + 1)}, cache, context);
  const Tensor last = slice(Watched(*layer, {x}).capture.find("weights"), 2, 2, 3);
  CHECK(test::worst_difference(stepped.find("weights"), last) < 1e-14);
}

TEST_CASE("capture: a page has the line and its answer, and says what is looked at most") {
  CaptureFile file;
  const std::vector<std::string> tokens = {"the", "<unk>", "<unk>", "sat", "</s>", "<unk>"};
  file.add_tokens("lines.0", "tokens", integers({1, 2, 2, 3, 4, 2}, {1, 6}), tokens);
  Capture capture;
  Tensor weights = Tensor::full({1, 2, 6, 6}, 0.125);
  weights = weights + Tensor::from(Floats{0, 0.25F, 0, 0, 0, 0}, {6});
  capture.entries.push_back({"encoder.layers.0.attention", "weights", weights});
  file.add("lines.0", capture);
  file.add_answer("lines.0", {"The Zweig <b>lo sat\tNest", "yes & no", 0.75});
  const page::Json drawn = page::examples(file, {});
  CHECK(drawn["all"] == 1);
  const page::Json& example = drawn["shown"][0];
  CHECK(example["line"]["text"] == "The Zweig <b>lo sat\tNest");
  CHECK(example["answer"] == "yes & no");
  CHECK(example["probability"] == 0.75);
  CHECK(example["tokens"][0] == page::Json(tokens));
  CHECK(example["left_out"] == "");
  const page::Json& map = example["maps"][0];
  CHECK(map["name"] == "encoder layer 0");
  CHECK(map["row_tokens"] == 0);
  REQUIRE(map["heads"].size() == 2);
  CHECK(map["heads"][0]["most"] == 0.375);
  CHECK(map["heads"][0]["cells"].get<std::string>().starts_with("Vf9VVVVV"));  // 85, 255, 85, ...
}
