// Sampling on a device: logits are read by the host, which alone has f64.

#include <doctest/doctest.h>

#include "heed/models/decoding.h"
#include "heed/models/search.h"
#include "model_support.h"
#include "vulkan_support.h"

using namespace heed;
using namespace heed::test;

TEST_CASE("vulkan: a language model generates as on the CPU") {
  const auto device = vulkan_test_device();
  if (!device) return;
  TransformerConfig config = test::tiny_config();
  config.embedding_deviation = 2;
  const Tokens prompt = {3, 7, 1};
  const auto texts = [&](Device where, double temperature) {
    LanguageModel model(config);
    model.to(DType::f32, where);
    GenerationOptions options;
    options.tokens = 12;
    options.context = 8;
    options.sampling.temperature = temperature;
    return generate(model, prompt, 3, options);
  };
  CHECK(texts(*device, 0) == texts({}, 0));
  CHECK(texts(*device, 1) == texts({}, 1));
  CHECK(texts({}, 1)[0] != texts({}, 1)[1]);
}

TEST_CASE("vulkan: translations are drawn as on the CPU") {
  const auto device = vulkan_test_device();
  if (!device) return;
  TransformerConfig config = test::tiny_config();
  config.embedding_deviation = 2;
  const std::vector<Tokens> sources = {{4, 5, 6}, {7, 8}};
  const auto texts = [&](Device where) {
    EncoderDecoder model(config);
    model.to(DType::f32, where);
    EncoderDecoderSteps steps(model, pad_tokens(sources, where));
    const std::vector<std::int32_t> first = {1, 1};
    const std::vector<std::int64_t> lengths = {8, 8};
    return sample(steps, first, lengths, {}, 2, 3);
  };
  CHECK(texts(*device) == texts({}));
}
