// Modules of an application's own: names, sequences and lists of layers, summaries, and optimizers over them.

#include "heed/models/attention/attention.h"
#include "heed/models/classifier.h"
#include "heed/models/config.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/layers.h"
#include "heed/tests/model_support.h"
#include "heed/training/checkpoint.h"
#include "heed/training/optimizer.h"

namespace {

/// Registers what it is told to.
class Loose : public Module {
 public:
  using Module::add_buffer;
  using Module::add_module;
  using Module::add_parameter;
  Tensor first, second;
};

/// Its members register themselves.
class Mlp : public Module {
 public:
  explicit Mlp(std::uint64_t seed = 1, LinearInit maps = LinearInit::xavier) : initialiser_(seed, maps) {}
  Tensor operator()(const Tensor& x) const { return out_(tanh(in_(x)) * scale_); }

 private:
  Initialiser initialiser_;
  Part<Linear> in_{*this, "in", 3, 4, true, initialiser_};
  Parameter scale_{*this, "scale", Tensor::ones({4})};
  Part<Linear> out_{*this, "out", 4, 1, true, initialiser_};
};

Tensor parameter_of(std::initializer_list<float> values) {
  return parameter(Tensor::from(values, {static_cast<std::int64_t>(values.size())}));
}

Floats floats_of(const Tensor& x) {
  return x.to_vector<float>();
}

void give_gradient(const Tensor& leaf, double value) {
  zero_gradient(leaf);
  backward(sum(leaf * value));
}

}  // namespace

TEST_CASE("modules: two of one name are refused when the second is added, of whatever kind") {
  Loose module, part, other;
  module.add_parameter("weight", module.first, Tensor::ones({1}));
  const char* taken = "'weight' has the name of another parameter, buffer or part";
  CHECK_ERROR(module.add_parameter("weight", module.second, Tensor::ones({1})), taken);
  CHECK_ERROR(module.add_buffer("weight", module.second, Tensor::ones({1})), taken);
  CHECK_ERROR(module.add_module("weight", part), taken);
  module.add_module("part", part);
  CHECK_ERROR(module.add_module("part", other), "'part' has the name");
  CHECK_ERROR(module.add_parameter("", module.second, Tensor::ones({1})), "needs a name");
  CHECK(names_of(module.parameters()) == std::vector<std::string>{"weight"});
  CHECK_FALSE(module.second.defined());
}

TEST_CASE("modules: no module is part of itself, directly or indirectly") {
  Loose module, part, shared, other;
  CHECK_ERROR(module.add_module("me", module), "is the module itself");
  module.add_module("part", part);
  module.add_module("shared", shared);
  other.add_module("shared", shared);
  const char* circle = "\"top\" contains the module to which it is added";
  CHECK_ERROR(part.add_module("top", module), circle);
  CHECK_ERROR(shared.add_module("top", other), circle);
  CHECK(module.parameters().empty());
}

TEST_CASE("modules: an optimizer refuses what would lose moments") {
  Tensor a = parameter_of({1}), b = parameter_of({2});
  CHECK_ERROR(Optimizer({{"a", &a}, {"b", nullptr}}, {}), "\"b\" has a null address instead of a tensor");
  CHECK_ERROR(Optimizer({{"a", &a}, {"a", &b}}, {}), "two parameters are called \"a\"");
  CHECK_ERROR(Optimizer({{"a", &a}, {"b", &a}}, {}), "given twice");
  Tensor tied = a;  // another handle of one leaf, which would be stepped twice
  CHECK_ERROR(Optimizer({{"a", &a}, {"tied", &tied}}, {}), "given twice");
}

TEST_CASE("modules: a sequence calls its layers in order, and numbers them by their place") {
  Initialiser initialiser(1);
  Sequential net;
  Linear& in = net.emplace<Linear>(3, 4, true, initialiser);
  net.add(heed::tanh);
  net.emplace<FeedForward>(4, 8, Activation::gelu, 0.5, initialiser);
  Linear& out = net.emplace<Linear>(4, 2, false, initialiser);
  CHECK(net.size() == 4);
  CHECK(names_of(net.parameters()) == std::vector<std::string>{"0.weight", "0.bias", "2.input.weight",
                                                               "2.input.bias", "2.output.weight",
                                                               "2.output.bias", "3.weight"});
  const Tensor x = normal({5, 3}, 0, 1, {1, 0, 0});
  CHECK(net(x).shape() == Shape{5, 2});
  Context first = Context::train(1, 1), second = Context::train(1, 2);
  CHECK(floats_of(net(x, first)) != floats_of(net(x, second)));  // the dropout of the layer in the middle
  CHECK(floats_of(net(x)) == floats_of(net(x)));
  CHECK(in.path() == "0");
  CHECK(out.path() == "3");
  CHECK_ERROR(net.add({}), "step 4 is an empty function");
  CHECK(floats_of(Sequential()(x)) == floats_of(x));

  net.to(DType::f64, {});
  const GradcheckResult result = gradcheck_parameters(net, [&] { return net(x.to(DType::f64)); });
  CHECK(result.passed);
}

TEST_CASE("modules: a list holds parts of one kind") {
  Initialiser initialiser(1);
  ModuleList<Linear> layers;
  for (int i = 0; i < 3; ++i) layers.emplace(2, 2, false, initialiser);
  CHECK(layers.size() == 3);
  CHECK(names_of(layers.parameters()) == std::vector<std::string>{"0.weight", "1.weight", "2.weight"});
  CHECK(layers[2](Tensor::ones({1, 2})).shape() == Shape{1, 2});
  CHECK_THROWS_WITH_AS(layers[3], "module list: there is no part 3 among 3", Error);
}

TEST_CASE("modules: a summary names everything that a model file holds") {
  Initialiser initialiser(1);
  Loose model;
  Linear layer(3, 4, true, initialiser);
  model.add_module("layer", layer);
  model.add_buffer("seen", model.first, Tensor::ones({2, 2}));
  CHECK(summary(model) ==
        "name          shape       elements\n"
        "layer.weight  [4, 3]            12\n"
        "layer.bias    [4]                4\n"
        "seen          [2, 2]             4  buffer\n"
        "16 parameters, 4 elements of buffers\n");
}

TEST_CASE("modules: groups of an optimizer have rates and decays of their own") {
  Tensor fast = parameter_of({1}), slow = parameter_of({1}), decaying = parameter_of({1});
  const std::vector<ParameterGroup> groups = {
      {{{"fast", &fast}}, 2, 0}, {{{"slow", &slow}}, 0.5, 0}, {{{"decaying", &decaying}}, 1, 0.1}};
  Optimizer sgd(groups, {.kind = OptimizerKind::sgd, .beta1 = 0, .weight_decay = 5});
  for (const Tensor& each : {fast, slow, decaying}) give_gradient(each, 1);
  sgd.step(0.1);
  CHECK(fast.item() == doctest::Approx(1 - 0.1 * 2 * 1));
  CHECK(slow.item() == doctest::Approx(1 - 0.1 * 0.5 * 1));
  CHECK(decaying.item() == doctest::Approx(1 - 0.1 * (1 + 0.1 * 1)));
  const std::vector<ParameterGroup> bad = {{{{"fast", &fast}}, -1, 0}};
  CHECK_ERROR(Optimizer(bad, {}), "rate of a group is -1");
}

TEST_CASE("modules: AdamW decays matrices, and vectors only when it is told to") {
  Initialiser initialiser(1);
  Sequential net;
  net.emplace<Linear>(3, 4, true, initialiser);
  net.emplace<LayerNorm>(4);
  const std::vector<NamedTensor> parameters = net.parameters();
  REQUIRE(names_of(parameters) == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"});
  for (const NamedTensor& each : parameters) *each.tensor = parameter(Tensor::ones(each.tensor->shape()));
  for (const bool all : {false, true}) {
    Optimizer adamw(parameters, {.kind = OptimizerKind::adamw, .weight_decay = 0.01, .decay_vectors = all});
    // Gradients of 0: what moves moves by decay alone.
    for (const NamedTensor& each : parameters) give_gradient(*each.tensor, 0);
    adamw.step(0.1);
    const double matrix = all ? 0.999 * 0.999 : 0.999, vector = all ? 0.999 : 1;
    CHECK(floats_of(*parameters[0].tensor)[0] == doctest::Approx(matrix));
    for (std::size_t i = 1; i < parameters.size(); ++i)
      CHECK(floats_of(*parameters[i].tensor)[0] == doctest::Approx(vector));
  }
}

TEST_CASE("modules: clip scales the gradients of the next step alone") {
  Tensor w = parameter_of({0, 0});
  Optimizer sgd({{"w", &w}}, {.kind = OptimizerKind::sgd, .beta1 = 0});
  give_gradient(w, 30);  // of norm 30 sqrt(2)
  sgd.clip(1);
  sgd.step(1);
  CHECK(norm(w.detach()).item() == doctest::Approx(1).epsilon(1e-4));
  give_gradient(w, 30);
  const double before = w.detach()[0].item();
  sgd.step(1);
  CHECK(w.detach()[0].item() == doctest::Approx(before - 30));
  CHECK_ERROR(sgd.clip(0), "must be positive");
}

TEST_CASE("modules: a clone has the same values and shares none of them") {
  TransformerConfig config;
  config.width = 8, config.heads = 2, config.feed_forward = 16;
  config.decoder_layers = 1, config.target_vocabulary = 11, config.seed = 5;
  LanguageModel model(config);
  model.to(DType::f64, Device{});
  const std::unique_ptr<LanguageModel> copy = clone(model);
  const std::vector<NamedTensor> ours = model.state(), theirs = copy->state();
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CHECK(ours[i].name == theirs[i].name);
    CHECK(theirs[i].tensor->dtype() == ours[i].tensor->dtype());
    CHECK(theirs[i].tensor->to_doubles() == ours[i].tensor->to_doubles());
  }
  const Doubles before = theirs.front().tensor->to_doubles();
  Tensor& first = *model.parameters().front().tensor;
  const Doubles ones(static_cast<std::size_t>(first.count()), 1);
  first.assign<double>(ones);
  CHECK(theirs.front().tensor->to_doubles() == before);
}

TEST_CASE(
    "modules: members register themselves, in order, and a model of them is checked, cloned and saved") {
  Mlp model(3);
  CHECK(names_of(model.parameters()) ==
        std::vector<std::string>{"scale", "in.weight", "in.bias", "out.weight", "out.bias"});
  CHECK(model.find("out")->path() == "out");

  // Each parameter is checked and left as it was.
  const Tensor x = normal({5, 3}, 0, 1, {1, 0, 0});
  CHECK_THROWS_WITH_AS(gradcheck(model, x.to(DType::f64)),
                       "gradcheck: parameter 'scale' has type f32; finite differences need f64: "
                       "module.to(DType::f64, {})",
                       Error);
  model.to(DType::f64, {});
  const Tensor wide = x.to(DType::f64);
  const Doubles before = model(wide).to_doubles();
  CHECK(gradcheck(model, wide).passed);
  CHECK(model(wide).to_doubles() == before);
  const auto cut = [&](std::span<const Tensor> in) {
    return model(in[0]) * model.find("in")->parameters()[1].tensor->detach();
  };
  const ModuleGradcheckResult wrong = gradcheck(model, cut, {wide});
  CHECK_FALSE(wrong.passed);
  CHECK(wrong.worst_name == "in.bias");

  const std::unique_ptr<Mlp> copy = clone(model), other = clone(model, 77U);
  CHECK((*copy)(wide).to_doubles() == before);
  CHECK((*other)(wide).to_doubles() == before);

  // A training that is saved and loaded goes on to the same bits.
  const auto step = [&](Mlp& mlp, Optimizer& adam) {
    backward(mean_squared_error(mlp(wide), Tensor::ones({5, 1}, DType::f64)));
    adam.step(0.1);
    adam.zero_gradients();
  };
  const TemporaryFolder folder;
  Optimizer adam(model.parameters(), {}), resumed(copy->parameters(), {});
  step(model, adam);
  save_model(model, adam, folder / "mlp.safetensors", {{"epoch", "1"}});
  step(model, adam);
  CHECK(load_model(*copy, resumed, folder / "mlp.safetensors").at("epoch") == "1");
  step(*copy, resumed);
  CHECK((*copy)(wide).to_doubles() == model(wide).to_doubles());
  load_model(*other, folder / "mlp.safetensors");  // the weights alone
  save_model(*other, folder / "weights.safetensors");
  CHECK_ERROR(load_model(*copy, resumed, folder / "weights.safetensors"), "holds no optimizer state");

  // What does not fit changes neither the model nor the optimizer.
  const auto refused = [&](const char* changed, const Tensor& value, const char* words) {
    TensorFile file = load_safetensors(folder / "mlp.safetensors");
    file.tensors[changed] = value;
    save_safetensors(folder / "changed.safetensors", file);
    const Doubles outputs = (*copy)(wide).to_doubles();
    CHECK_ERROR(load_model(*copy, resumed, folder / "changed.safetensors"), words);
    CHECK((*copy)(wide).to_doubles() == outputs);
    CHECK(resumed.steps() == 2);
  };
  refused("scale", Tensor::zeros({7}, DType::f64), "\"scale\"");
  refused("optimizer:first_moment.scale", Tensor::zeros({7}, DType::f64), "\"first_moment.scale\"");
  refused("optimizer:steps", Tensor::from(Ints{-1}, {1}), "steps is negative");
}

TEST_CASE("modules: initial values have the distributions that their names say") {
  Initialiser initialiser(5);
  const auto deviation_of = [](const Tensor& x) { return standard_deviation(x).item(); };
  const Tensor uniform = initialiser.kaiming_uniform({300, 100}, 100);
  CHECK(max(abs(uniform)).item() <= std::sqrt(6 / 100.0));
  CHECK(deviation_of(uniform) == doctest::Approx(std::sqrt(2 / 100.0)).epsilon(0.02));
  const double bound = std::sqrt(6.0 / 400);
  const Tensor xavier = Linear(100, 300, false, initialiser).weight.detach();
  CHECK(max(abs(xavier)).item() <= bound);
  CHECK(max(abs(xavier)).item() > 0.98 * bound);
  CHECK(deviation_of(xavier) == doctest::Approx(bound / std::sqrt(3)).epsilon(0.02));
  CHECK(deviation_of(initialiser.kaiming_normal({300, 100}, 100, 1)) == doctest::Approx(0.1).epsilon(0.02));
  const Tensor cut = initialiser.truncated_normal({300, 100}, 0.5);
  CHECK(max(abs(cut)).item() <= 1);
  CHECK(max(abs(cut)).item() > 0.99);
  CHECK(deviation_of(cut) == doctest::Approx(0.5 * 0.8796).epsilon(0.02));
  CHECK(initialiser.truncated_normal({0}, 1).count() == 0);
  CHECK_ERROR(initialiser.truncated_normal({3}, 1, 0.1), "at least 0.5");
  for (const auto& [out, in] : {std::pair{7, 40}, {40, 7}, {30, 30}}) {
    const Tensor matrix = initialiser.orthogonal(out, in, 2);
    CHECK(matrix.shape() == Shape{out, in});
    const Tensor turned = transpose(matrix, 0, 1);
    const Tensor products = out <= in ? matmul(matrix, turned) : matmul(turned, matrix);
    CHECK(max(abs(products - 4 * eye(std::min(out, in)))).item() < 1e-5);
  }
  // Those of PyTorch's linear maps; heed's are as they were.
  Initialiser plain(9), fan_in(9, LinearInit::fan_in);
  const Linear ours(4, 500, true, plain), theirs(4, 500, true, fan_in);
  CHECK(max(abs(ours.bias.detach())).item() == 0);
  for (const Tensor& each : {theirs.weight.detach(), theirs.bias.detach()}) {
    CHECK(max(abs(each)).item() <= 0.5);
    CHECK(max(abs(each)).item() > 0.49);
  }
}

TEST_CASE("modules: nothing that a variant keeps shares memory, so that a file is read into each alone") {
  for (const AttentionVariant& variant : attention_variants()) {
    CAPTURE(variant.name);
    AttentionConfig config;
    config.width = 8;
    config.heads = 2;
    config.max_length = 9;
    const auto layer = make_attention(variant.name, config);
    std::set<const Storage*> seen;
    std::map<std::string, Tensor> state;
    for (const NamedTensor& one : layer->state()) {
      CAPTURE(one.name);
      CHECK(seen.insert(one.tensor->storage().get()).second);
      state[one.name] =
          one.tensor->dtype() == DType::f32
              ? uniform(one.tensor->shape(), 0, 1, {1, 0, static_cast<std::uint32_t>(seen.size())})
              : *one.tensor;
    }
    load_model_state(*layer, state, "a file");
    for (const NamedTensor& one : layer->state()) {
      CAPTURE(one.name);
      CHECK(one.tensor->to_doubles() == state.at(one.name).to_doubles());
    }
  }
}

TEST_CASE("modules: steps count themselves, so that no two have the same masks") {
  StepContexts contexts(3), late(3, 1);
  Context first = contexts.next(), second = contexts.next(), again = late.next();
  CHECK(first.training);
  CHECK(contexts.step() == 2);
  const auto mask = [](Context& context) {
    return dropout(Tensor::full({64}, 1), 0.5, context.random.next()).to_vector<float>();
  };
  const Floats one = mask(first), two = mask(second);
  CHECK(one != two);
  CHECK(mask(again) == two);
  Context expected = Context::train(3, 2);
  CHECK(mask(expected) == two);
  StepContexts last(3, std::numeric_limits<std::uint32_t>::max());
  CHECK_ERROR(last.next(), "no step comes after number 4294967295");
}

// --- Options of layers and stacks: shared layers, heads of several kinds, ablations, presets.

using Texts = std::vector<std::string>;

namespace {

Tensor* find(Module& module, const std::string& name) {
  for (const NamedTensor& entry : module.parameters())
    if (entry.name == name) return entry.tensor;
  return nullptr;
}

void set(Module& module, const std::string& name, const Tensor& value) {
  Tensor* tensor = find(module, name);
  REQUIRE_MESSAGE(tensor != nullptr, name);
  REQUIRE(tensor->shape() == value.shape());
  const Doubles values = value.to_vector<double>();
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
  return layer({x}, context);
}

Tensor logits_of(EncoderClassifier& model) {
  const std::vector<Tokens> sentences = {{4, 5, 6, 7, 8}, {8, 9}};
  Context context = Context::inference();
  return model.logits(pad_tokens(sentences), context);
}

/// Gives every parameter of `to` the value of the one in `from` whose name `source_of` says.
void copy_parameters(Module& from, Module& to, const std::function<std::string(std::string)>& source_of) {
  for (const NamedTensor& entry : to.parameters())
    set(to, entry.name, find(from, source_of(entry.name))->detach());
}

std::string first_replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

AttentionChoice choice(const std::string& name, const Options& options = {}) {
  return {name, 0, options};
}

}  // namespace

TEST_CASE("share_layers: a stack with one set of parameters is one with equal layers") {
  for (const std::string share : {"attention", "all"}) {
    for (const std::string name : {"fastformer", "dot_product", "clusterformer"}) {
      CAPTURE_ALL(share, name);
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
          if (is_shared) parameter = first_replaced(parameter, layer, "layers.0.");
        }
        return parameter;
      });
      CHECK(worst_difference(logits_of(shared), logits_of(separate)) < 1e-12);
    }
  }
}

TEST_CASE("share_layers: layers of different kinds cannot be shared") {
  TransformerConfig config = tiny_config();
  config.encoder_layers = 2;
  config.encoder_attention = {choice("fastformer"), choice("dot_product")};
  config.share_layers = "attention";
  CHECK_ERROR(EncoderClassifier{config}, "share_layers");
}

TEST_CASE("linformer: layerwise sharing has one E for the whole stack") {
  Options options = options_of({{"k", 3}, {"share_kv", true}});
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
  CHECK(worst_difference(logits_of(layerwise), logits_of(separate)) < 1e-12);
  options.set("per_head", true);
  CHECK(contains(error_of([&] { make("linformer", options); }), "per_head"));
}

TEST_CASE("mixed_heads: parts of one kind are that kind with all heads") {
  const Options options =
      options_of({{"parts", Texts{"dot_product", "dot_product"}}, {"part_heads", Doubles{3, 1}}});
  const auto mixed = make("mixed_heads", options), whole = make("dot_product", {});
  for (const std::string name : {"query", "key", "value", "output"}) {
    const Tensor first = find(*mixed, "parts.0." + name + ".weight")->detach();
    const Tensor second = find(*mixed, "parts.1." + name + ".weight")->detach();
    set(*whole, name + ".weight", concat({first, second}, name == "output" ? 1 : 0));
  }
  const Tensor x = uniform_numbers(41, {2, 5, 8}, 1);
  CHECK(worst_difference(run(*mixed, x), run(*whole, x)) < 1e-14);
  CHECK(mixed->parameter_count() == whole->parameter_count());
}

TEST_CASE("mixed_heads: any variants, which keep their settings and say what they cannot do") {
  Options options = options_of({{"parts", Texts{"longformer", "synthesizer_random", "hard_coded_gaussian"}},
                                {"longformer.window", 2},
                                {"hard_coded_gaussian.offsets", Doubles{0}}});
  const auto layer = make("mixed_heads", options, 4, true);
  const Tensor x = uniform_numbers(41, {1, 6, 8}, 2);
  const Tensor whole = run(*layer, x);
  AttentionCache cache;
  Context context = Context::inference();
  for (std::int64_t t = 0; t < 6; ++t) {
    const Tensor one = layer->step({slice(x, 1, t, t + 1)}, cache, context);
    CHECK(worst_difference(one, slice(whole, 1, t, t + 1)) < 1e-12);
  }
  CHECK_FALSE(attention_capabilities("mixed_heads", options).any_length);
  CHECK(attention_capabilities("mixed_heads", {}).any_length);

  options.set("longformer.windw", std::int64_t{2});
  CHECK(contains(error_of([&] { make("mixed_heads", options); }), "windw"));
  Options linformer = options_of({{"parts", Texts{"dot_product", "linformer"}}});
  CHECK(contains(error_of([&] { make("mixed_heads", linformer, 4, true); }), "mixes all positions"));
  linformer.set("part_heads", Doubles{3, 3});
  CHECK(contains(error_of([&] { make("mixed_heads", linformer); }), "6 heads"));
  const Options fastformer = options_of({{"parts", Texts{"dot_product", "fastformer"}}});
  CHECK(contains(error_of([&] { make("mixed_heads", fastformer); }), "heads of a width of their own"));
}

TEST_CASE("fastformer: equal global keys are one, and without a key the global query meets the values") {
  const Tensor x = uniform_numbers(41, {2, 5, 8}, 3);
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const auto with_keys = [&](std::int64_t count) {
      return make("fastformer", options_of({{"global_keys", count}}), 2, causal);
    };
    const auto one = with_keys(1), three = with_keys(3), none = with_keys(0);
    for (const std::string name : {"query", "key", "query_score", "output"})
      set(*three, name + ".weight", find(*one, name + ".weight")->detach());
    const Tensor score = find(*one, "key_score.weight")->detach();
    set(*three, "key_score.weight", concat({score, score, score}, 0));
    CHECK(worst_difference(run(*one, x), run(*three, x)) < 1e-14);
    set(*three, "key_score.weight", concat({score, score * 1e5, score * -1e5}, 0));
    CHECK(worst_difference(run(*one, x), run(*three, x)) > 1e-9);
    CHECK(none->parameter_count() == 2 * 8 * 8 + 2 * 8);
    CHECK_FALSE(has_name(*none, "key.weight"));
  }
  const auto layer = make("fastformer", options_of({{"global_keys", 0}}), 1);
  const Tensor q = linear(x, find(*layer, "query.weight")->detach());
  const Tensor scores =
      linear(q, find(*layer, "query_score.weight")->detach()) / std::sqrt(8.0);  // [B, N, 1]
  const Tensor global_query = sum(softmax(scores, 1) * q, 1, true);
  const Tensor expected = linear(global_query * q, find(*layer, "output.weight")->detach()) + q;
  CHECK(worst_difference(run(*layer, x), expected) < 1e-14);
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
  CHECK(contains(error_of([&] { apply_preset(config, "hc-al"); }), "hc-all"));
}
