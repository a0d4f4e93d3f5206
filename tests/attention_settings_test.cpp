#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "model_support.h"

// The settings of the attention variants beyond their defaults, and the lengths that are easily got wrong.

using namespace heed;
using namespace heed::test;

namespace {

constexpr std::int64_t longest = 9;

AttentionConfig config_for(std::string_view variant) {
  AttentionConfig config;
  config.width = 8;
  config.heads = 2;
  config.bias = true;
  config.max_length = attention_variant(variant).capabilities.any_length ? 0 : longest;
  config.seed = 3;
  return config;
}

std::unique_ptr<Attention> layer_of(std::string_view variant, const AttentionConfig& config) {
  auto layer = make_attention(variant, config);
  layer->to(DType::f64, {});
  return layer;
}

Tensor mask_of(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

Tensor run(Attention& layer, const AttentionInput& input) {
  Context context = Context::inference();
  return layer(input, context);
}

std::map<std::string, Tensor> parameters_of(Attention& layer) {
  std::map<std::string, Tensor> values;
  for (const NamedTensor& entry : layer.parameters()) values[entry.name] = *entry.tensor;
  return values;
}

struct OtherSettings {
  std::string variant;
  Options options;
  bool cross = false;
};

std::vector<OtherSettings> other_settings() {
  using Texts = std::vector<std::string>;
  using Numbers = std::vector<double>;
  return {
      {"hard_coded_gaussian", options_of({{"offsets", Numbers{-1, 0, 1}}})},
      {"hard_coded_gaussian", options_of({{"sigma", 2.5}})},
      {"hard_coded_gaussian", options_of({{"offsets", Numbers{20}}})},
      {"hard_coded_gaussian", options_of({{"gamma", 0.7}}), true},
      {"linformer", options_of({{"k", 3}})},
      {"linformer", options_of({{"share_kv", true}})},
      {"linformer", options_of({{"per_head", true}})},
      {"synthesizer_dense", options_of({{"share_w2", true}})},
      {"synthesizer_dense", options_of({{"logit_bias", false}})},
      {"synthesizer_dense", options_of({{"hidden", 5}})},
      {"synthesizer_random", options_of({{"deviation", 1.5}})},
      {"synthesizer_random_fixed", options_of({{"deviation", 1.5}})},
      {"synthesizer_factorized_random", options_of({{"k", 3}})},
      {"synthesizer_factorized_dense", options_of({{"tiling", "outer"}})},
      {"synthesizer_factorized_dense", options_of({{"a", 2}, {"b", 6}})},
      {"synthesizer_mixture", options_of({{"components", Texts{"dense", "random", "random_fixed",
                                                               "fact_dense", "fact_random", "dot"}}})},
      {"synthesizer_mixture", options_of({{"components", Texts{"dense", "fact_random", "dot"}}})},
      {"synthesizer_mixture", options_of({{"components", Texts{"random", "fact_random"}}})},
  };
}

AttentionInput input_for(const AttentionConfig& config) {
  AttentionInput input;
  input.x = normal_numbers(17, {2, 5, 8}, 1);
  input.mask = mask_of({1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 5});
  if (config.cross) {
    input.memory = normal_numbers(17, {2, 4, 8}, 2);
    input.memory_mask = mask_of({1, 1, 1, 1, 1, 1, 0, 0}, {2, 4});
  }
  return input;
}

/// O of hard-coded attention with the whole matrix A, as section 3 of the paper writes it.
Tensor dense_gaussian(Attention& layer, const AttentionInput& input, const std::vector<double>& offsets,
                      double sigma, double gamma) {
  const AttentionConfig& config = layer.config();
  const Tensor& memory = config.cross ? input.memory : input.x;
  const std::int64_t queries = input.x.size(1), keys = memory.size(1);
  std::vector<double> a;
  for (std::int64_t h = 0; h < config.heads; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      const double centre =
          gamma * static_cast<double>(i) + offsets[static_cast<std::size_t>(h) % offsets.size()];
      for (std::int64_t j = 0; j < keys; ++j) {
        const double z = (static_cast<double>(j) - centre) / sigma;
        a.push_back(
            config.causal && j > i ? 0 : std::exp(-z * z / 2) / (sigma * std::sqrt(2 * std::numbers::pi)));
      }
    }
  }
  auto values = parameters_of(layer);
  const Tensor v = split_heads(linear(memory, values["value.weight"], values["value.bias"]), config.heads);
  const Tensor av = matmul(Tensor::from(a, {config.heads, queries, keys}), v);
  return linear(merge_heads(av), values["output.weight"], values["output.bias"]);
}

}  // namespace

TEST_CASE("attention settings: gradients, and single steps against the whole sequence") {
  for (const OtherSettings& setting : other_settings()) {
    AttentionConfig config = config_for(setting.variant);
    config.options = setting.options;
    config.cross = setting.cross;
    config.causal = !config.cross && attention_variant(setting.variant).capabilities.causal;
    CAPTURE(setting.variant);
    CAPTURE(setting.options.values().begin()->first);
    const auto layer = layer_of(setting.variant, config);
    AttentionInput input = input_for(config);
    const GradcheckResult of_parameters = gradcheck_parameters(*layer, [&] { return run(*layer, input); });
    CAPTURE(of_parameters.worst_error);
    CHECK(of_parameters.passed);

    if (!config.causal && !config.cross) continue;
    input.mask = {};
    const Tensor whole = run(*layer, input);
    AttentionCache cache;
    for (std::int64_t t = 0; t < 5; ++t) {
      Context context = Context::inference();
      AttentionInput one = input;
      one.x = slice(input.x, 1, t, t + 1);
      CHECK(worst_difference(layer->step(one, cache, context), contiguous(slice(whole, 1, t, t + 1))) <
            1e-12);
    }
  }
}

TEST_CASE("attention: one position, all positions and too many positions, for every variant") {
  for (const AttentionVariant& variant : attention_variants()) {
    CAPTURE(variant.name);
    const auto layer = layer_of(variant.name, config_for(variant.name));
    const Tensor x = normal_numbers(17, {2, longest + 2, 8}, 4);
    for (const std::int64_t length : {std::int64_t{1}, longest}) {
      const AttentionInput input{contiguous(slice(x, 1, 0, length))};
      const Tensor out = run(*layer, input);
      CHECK(out.shape() == input.x.shape());
      AttentionInput all_real = input;
      all_real.mask = Tensor::ones({2, length}, DType::i32);
      CHECK(worst_difference(run(*layer, all_real), out) < 1e-12);
    }
    if (variant.capabilities.any_length) continue;
    const std::string message = error_of([&] { run(*layer, {x, {}, {}, {}}); });
    CHECK(contains(message, " 9"));
    CHECK(contains(message, " 11"));
  }
}

TEST_CASE("hard-coded attention: the band is the whole matrix, over many blocks") {
  const std::int64_t length = 150;  // no multiple of a block
  for (const bool causal : {false, true}) {
    AttentionConfig config = config_for("hard_coded_gaussian");
    config.causal = causal;
    const auto layer = layer_of("hard_coded_gaussian", config);
    const AttentionInput input{normal_numbers(17, {2, length, 8}, 7)};
    const std::vector<double> offsets{-1, causal ? 0.0 : 1.0};
    CHECK(worst_difference(run(*layer, input), dense_gaussian(*layer, input, offsets, 1, 1)) < 1e-13);
  }
  for (const double gamma : {0.4, 1.0, 1.3}) {
    AttentionConfig config = config_for("hard_coded_gaussian");
    config.cross = true;
    config.options.set("gamma", gamma);
    config.options.set("sigma", 1.5);
    const auto layer = layer_of("hard_coded_gaussian", config);
    const AttentionInput input{
        normal_numbers(17, {2, length, 8}, 8), {}, normal_numbers(17, {2, 131, 8}, 9), {}};
    CHECK(worst_difference(run(*layer, input), dense_gaussian(*layer, input, {-1, 1}, 1.5, gamma)) < 1e-13);
  }
}

TEST_CASE("hard-coded attention: settings that make no sense are explained") {
  const auto message = [](const char* name, Options::Value value) {
    AttentionConfig config = config_for("hard_coded_gaussian");
    config.options.set(name, std::move(value));
    return error_of([&] { make_attention("hard_coded_gaussian", config); });
  };
  CHECK(contains(message("sigma", 0.0), "'sigma' must be 1e-06 to 1e+06, is 0"));
  CHECK(contains(message("gamma", 1.2), "only cross-attention"));
  CHECK(contains(message("offsets", std::vector<double>{}), "at least one"));
}

TEST_CASE("mixture of synthesizers: the softmax of alpha weighs the logits of its components") {
  AttentionConfig config = config_for("synthesizer_mixture");
  config.bias = false;
  config.options.set("components", std::vector<std::string>{"random", "dot"});
  const auto layer = layer_of("synthesizer_mixture", config);
  const Tensor x = normal_numbers(17, {2, 6, 8}, 10);
  const std::vector<double> alpha{0.3, -1.2, 0.9, 2.0};  // [random of both heads, dot of both heads]
  for (const NamedTensor& entry : layer->parameters())
    if (entry.name == "logits.alpha") *entry.tensor = parameter(Tensor::from(alpha, {2, 2}));

  auto values = parameters_of(*layer);
  const Tensor r = slice(slice(values["logits.random.R"], 1, 0, 6), 2, 0, 6);
  const Tensor q = split_heads(linear(x, values["logits.dot.query.weight"]), 2),
               k = split_heads(linear(x, values["logits.dot.key.weight"]), 2);
  const auto share = [&](std::size_t m, std::size_t h) {
    return std::exp(alpha[2 * m + h]) / (std::exp(alpha[h]) + std::exp(alpha[2 + h]));
  };
  const auto weight = [&](std::size_t m) {
    return Tensor::from(std::vector<double>{share(m, 0), share(m, 1)}, {1, 2, 1, 1});
  };
  const Tensor s = unsqueeze(r, 0) * weight(0) + matmul(q, transpose(k, 2, 3)) / 2.0 * weight(1);
  const Tensor v = split_heads(linear(x, values["value.weight"]), 2);
  const Tensor expected = linear(merge_heads(matmul(softmax(s), v)), values["output.weight"]);
  CHECK(worst_difference(run(*layer, {x, {}, {}, {}}), expected) < 1e-12);
}

TEST_CASE("synthesizers: a matrix of logits that is made for some rows at a time") {
  constexpr std::int64_t length = 3000;  // with 2 heads 18 million logits, of which 16.8 are made at once
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    AttentionConfig config = config_for("synthesizer_factorized_dense");
    config.width = 4;
    config.max_length = length;
    config.causal = causal;
    config.dropout = 0.25;
    const auto layer = layer_of("synthesizer_factorized_dense", config);
    const Tensor x = normal_numbers(17, {1, length, 4}, 30);
    std::vector<std::int32_t> real(length, 1);
    std::fill(real.end() - 7, real.end(), 0);
    const AttentionInput input{x, mask_of(real, {1, length}), {}, {}};

    // The last rows beside the same asked by themselves, as a decoder does.
    if (causal) {
      const Tensor whole = run(*layer, input);
      AttentionCache cache;
      Context context = Context::inference();
      const auto ask = [&](std::int64_t begin, std::int64_t end) {
        return layer->step({slice(x, 1, begin, end), slice(input.mask, 1, begin, end), {}, {}}, cache,
                           context);
      };
      ask(0, length - 30);
      const Tensor last = ask(length - 30, length);
      CHECK(worst_difference(slice(whole, 1, length - 30, length - 7), slice(last, 1, 0, 23)) < 1e-12);
    }
    // The slope along a direction, with the same dropout each time.
    const Tensor direction = normal_numbers(17, {1, length, 4}, 31),
                 weights = normal_numbers(17, {1, length, 4}, 32);
    const auto value = [&](const Tensor& at) {
      Context context = Context::train(5, 1);
      return sum((*layer)({at, input.mask}, context) * weights);
    };
    const Tensor tracked = parameter(x);
    backward(value(tracked));
    const double slope = sum(gradient(tracked) * direction).item(), step = 1e-7;
    const double measured =
        (value(x + direction * step).item() - value(x - direction * step).item()) / (2 * step);
    CHECK(std::abs(slope - measured) < 1e-5 * std::max(1.0, std::abs(measured)));
  }
}

TEST_CASE("synthesizers: settings that make no sense are explained") {
  const auto message = [](const char* variant, const char* name, Options::Value value) {
    AttentionConfig config = config_for(variant);
    config.options.set(name, std::move(value));
    return error_of([&] { make_attention(variant, config); });
  };
  using Texts = std::vector<std::string>;
  CHECK(contains(message("synthesizer_mixture", "components", Texts{"dens"}), "did you mean 'dense'"));
  CHECK(contains(message("synthesizer_mixture", "components", Texts{"dot", "dot"}), "'dot' twice"));
  CHECK(contains(message("synthesizer_mixture", "components", Texts{}), "at least one"));
  CHECK(contains(message("synthesizer_mixture", "tiling", std::string("tile")), "no setting 'tiling'"));
  CHECK(
      contains(message("synthesizer_factorized_dense", "tiling", std::string("tiles")), "'tile' or 'outer'"));
  CHECK(contains(message("synthesizer_factorized_dense", "b", std::int64_t{2}), "a = 3, b = 2 for 9"));
  CHECK(contains(message("synthesizer_factorized_random", "k", std::int64_t{0}),
                 "'k' must be 1 to 65536, is 0"));
  CHECK(contains(message("linformer", "k", std::int64_t{-1}), "'k' must be 1 to 65536, is -1"));
}
