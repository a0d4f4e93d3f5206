
#include "heed/models/attention/attention.h"
#include "heed/tests/model_support.h"

// The settings of the attention variants beyond their defaults, and the lengths that are easily got wrong.

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

Tensor mask_of(const Ints& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

Tensor run(Attention& layer, const AttentionInput& input) {
  Context context = Context::inference();
  return layer(input, context);
}

}  // namespace

TEST_CASE("hard-coded attention: gamma counts the position of a decoding step across to a memory") {
  AttentionConfig config = config_for("hard_coded_gaussian");
  config.cross = true;
  config.options.set("gamma", 0.7);
  const auto layer = layer_of("hard_coded_gaussian", config);
  AttentionInput input{normal_numbers(17, {2, 5, 8}, 1), {}, normal_numbers(17, {2, 4, 8}, 2), {}};
  const Tensor x = input.x, whole = run(*layer, input);
  AttentionCache cache;
  Context context = Context::inference();
  for (std::int64_t t = 0; t < 5; ++t) {
    input.x = slice(x, 1, t, t + 1);
    CHECK(worst_difference(layer->step(input, cache, context), slice(whole, 1, t, t + 1)) < 1e-12);
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
    Ints real(length, 1);
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
