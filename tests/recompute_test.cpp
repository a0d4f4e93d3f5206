// A model that recomputes its layers in backward trains as one that keeps everything, in less memory.

#include <doctest/doctest.h>

#include <cmath>

#include "heed/core/backend.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/transformer.h"
#include "heed/tests/model_support.h"

using namespace heed;

namespace {

struct Outcome {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
  std::size_t peak_bytes = 0;
};

/// One step with dropout of a model with four layers a side.
Outcome train_step(bool recompute) {
  TransformerConfig config = test::tiny_config();
  config.encoder_layers = config.decoder_layers = 4;
  config.dropout = config.attention_dropout = 0.2;
  config.max_length = 64;
  config.recompute_layers = recompute;
  EncoderDecoder model(config);
  model.to(DType::f64, {});
  const std::vector<Tokens> sources(8, Tokens(40, 3)), targets(8, Tokens(30, 5));
  const TranslationBatch batch = make_translation_batch(sources, targets, 1, 2);
  Context context = Context::train(7, 1);
  const auto before = memory_stats().current_bytes;
  reset_peak_memory();
  const Tensor loss = model.loss(batch, 0.1, context).mean();
  backward(loss);
  Outcome outcome{loss.item(), {}, memory_stats().peak_bytes - before};
  for (const NamedTensor& entry : model.parameters())
    outcome.gradients.push_back(gradient(*entry.tensor).to_vector<double>());
  return outcome;
}

}  // namespace

TEST_CASE("recompute: the same loss, the same gradients, less memory") {
  const Outcome kept = train_step(false), recomputed = train_step(true);
  CHECK(recomputed.loss == kept.loss);
  REQUIRE(recomputed.gradients.size() == kept.gradients.size());
  for (std::size_t t = 0; t < kept.gradients.size(); ++t) {
    for (std::size_t i = 0; i < kept.gradients[t].size(); ++i)
      CHECK(std::abs(recomputed.gradients[t][i] - kept.gradients[t][i]) <= 1e-12);
  }
  CHECK(recomputed.peak_bytes * 2 < kept.peak_bytes);
}

TEST_CASE(
    "recompute: a parameter that is overwritten before backward is an error, one that is not read is not") {
  const Tensor x = parameter(Tensor::ones({2, 3})), weight = parameter(Tensor::ones({4, 3})),
               factor = parameter(Tensor::ones({4})), other = parameter(Tensor::ones({4}));
  for (const Tensor* changed : {&weight, &factor, &other}) {
    Random random(1, 0);
    const Tensor out = recompute_in_backward(
        [&](std::span<const Tensor> inputs, Random&) { return linear(inputs[0], weight) * factor; }, {x},
        random);
    const std::vector<float> twos(static_cast<std::size_t>(changed->count()), 2);
    Tensor(*changed).assign(std::span<const float>(twos));
    if (changed == &other)
      backward(sum(out));
    else
      CHECK_THROWS_WITH_AS(backward(sum(out)), doctest::Contains("overwritten"), Error);
  }
}

TEST_CASE("recompute: a layer that leaves something in the context is refused") {
  const auto layer = [](const Tensor& x, const Tensor&, Context& context) {
    context.losses.push_back({"clusters", 1, x});
    return x;
  };
  const Tensor x = parameter(Tensor::ones({1}));
  Context context = Context::train(1, 1);
  CHECK_THROWS_WITH_AS(recomputed_layer(layer, x, {}, context), doctest::Contains("recompute_layers"), Error);
  CHECK(context.losses.empty());
}
