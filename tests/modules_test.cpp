// Modules of an application's own: names, sequences and lists of layers, summaries, and optimizers over them.

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/language_model.h"
#include "heed/models/layers.h"
#include "heed/training/checkpoint.h"
#include "heed/training/optimizer.h"
#include "model_support.h"

using namespace heed;
using namespace heed::test;
using Floats = std::vector<float>;

namespace {

/// Registers what it is told to.
class Loose : public Module {
 public:
  using Module::add_buffer;
  using Module::add_module;
  using Module::add_parameter;
  Tensor first, second;
};

Tensor parameter_of(std::initializer_list<float> values) {
  return parameter(Tensor::from(values, {static_cast<std::int64_t>(values.size())}));
}

Floats values_of(const Tensor& x) {
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
  CHECK_THROWS_WITH_AS(module.add_parameter("weight", module.second, Tensor::ones({1})),
                       doctest::Contains(taken), Error);
  CHECK_THROWS_WITH_AS(module.add_buffer("weight", module.second, Tensor::ones({1})),
                       doctest::Contains(taken), Error);
  CHECK_THROWS_WITH_AS(module.add_module("weight", part), doctest::Contains(taken), Error);
  module.add_module("part", part);
  CHECK_THROWS_WITH_AS(module.add_module("part", other), doctest::Contains("'part' has the name"), Error);
  CHECK_THROWS_WITH_AS(module.add_parameter("", module.second, Tensor::ones({1})),
                       doctest::Contains("needs a name"), Error);
  CHECK(names_of(module.parameters()) == std::vector<std::string>{"weight"});
  CHECK_FALSE(module.second.defined());
}

TEST_CASE("modules: no module is a part of itself, by whatever way") {
  Loose module, part, shared, other;
  CHECK_THROWS_WITH_AS(module.add_module("me", module), doctest::Contains("is the module itself"), Error);
  module.add_module("part", part);
  module.add_module("shared", shared);
  other.add_module("shared", shared);
  const char* circle = "\"top\" holds the module that it is to be a part of";
  CHECK_THROWS_WITH_AS(part.add_module("top", module), doctest::Contains(circle), Error);
  CHECK_THROWS_WITH_AS(shared.add_module("top", other), doctest::Contains(circle), Error);
  CHECK(module.parameters().empty());
}

TEST_CASE("modules: an optimizer refuses what would lose moments") {
  Tensor a = parameter_of({1}), b = parameter_of({2});
  CHECK_THROWS_WITH_AS(Optimizer({{"a", &a}, {"b", nullptr}}, {}),
                       doctest::Contains("\"b\" has a null address instead of a tensor"), Error);
  CHECK_THROWS_WITH_AS(Optimizer({{"a", &a}, {"a", &b}}, {}),
                       doctest::Contains("two parameters are called \"a\""), Error);
  CHECK_THROWS_WITH_AS(Optimizer({{"a", &a}, {"b", &a}}, {}), doctest::Contains("given twice"), Error);
  Tensor tied = a;  // another handle of one leaf, which would be stepped twice
  CHECK_THROWS_WITH_AS(Optimizer({{"a", &a}, {"tied", &tied}}, {}), doctest::Contains("given twice"), Error);
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
  CHECK(values_of(net(x, first)) != values_of(net(x, second)));  // the dropout of the layer in the middle
  CHECK(values_of(net(x)) == values_of(net(x)));
  CHECK(in.path() == "0");
  CHECK(out.path() == "3");
  CHECK_THROWS_WITH_AS(net.add({}), doctest::Contains("step 4 is an empty function"), Error);
  CHECK(values_of(Sequential()(x)) == values_of(x));

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
  CHECK_THROWS_WITH_AS(Optimizer(bad, {}), doctest::Contains("rate of a group is -1"), Error);
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
    CHECK(values_of(*parameters[0].tensor)[0] == doctest::Approx(matrix));
    for (std::size_t i = 1; i < parameters.size(); ++i)
      CHECK(values_of(*parameters[i].tensor)[0] == doctest::Approx(vector));
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
  CHECK_THROWS_WITH_AS(sgd.clip(0), doctest::Contains("must be positive"), Error);
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
  const std::vector<double> before = theirs.front().tensor->to_doubles();
  Tensor& first = *model.parameters().front().tensor;
  const std::vector<double> ones(static_cast<std::size_t>(first.count()), 1);
  first.assign<double>(ones);
  CHECK(theirs.front().tensor->to_doubles() == before);
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
  CHECK_THROWS_WITH_AS(last.next(), doctest::Contains("no step comes after number 4294967295"), Error);
}
