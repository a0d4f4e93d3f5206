// Several threads of an application: many may compute with one model, and train models of their own.

#include "heed/models/attention/attention.h"
#include "heed/models/classifier.h"
#include "heed/models/language_model.h"
#include "heed/tests/model_support.h"
#include "heed/training/optimizer.h"

namespace {

Tokens some_tokens(std::int64_t length) {
  Tokens tokens;
  for (std::int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<std::int32_t>(3 + i * i % 8));
  return tokens;
}

/// Lengths in an order of its own for each thread, so that what depends on the length is made by several at
/// once.
constexpr std::int64_t lengths[] = {12, 3, 7, 12, 1, 9, 5, 11};
std::int64_t length_of(std::size_t thread, std::size_t i) {
  return lengths[(i * (2 * thread + 1) + thread) % std::size(lengths)];
}

/// Whether every thread gets what one alone does, bit for bit: `outputs` of fresh models made by `make`.
template <class Make, class Output>
bool same_in_threads(const Make& make, const Output& output) {
  std::vector<Floats> alone(13);
  {
    const auto model = make();
    for (const std::int64_t length : lengths)
      alone[static_cast<std::size_t>(length)] = output(*model, length).template to_vector<float>();
  }
  const auto model = make();
  std::vector<char> right(4, 1);
  at_once(right.size(), [&](std::size_t thread) {
    for (std::size_t i = 0; i < std::size(lengths); ++i) {
      const std::int64_t length = length_of(thread, i);
      if (output(*model, length).template to_vector<float>() != alone[static_cast<std::size_t>(length)])
        right[thread] = 0;
    }
  });
  return std::ranges::count(right, 1) == 4;
}

}  // namespace

TEST_CASE("threads: many compute with one classifier, of every attention") {
  for (const AttentionVariant& variant : attention_variants()) {
    CAPTURE(variant.name);
    const auto make = [&] {
      TransformerConfig config = tiny_config();
      config.encoder_attention = {{variant.name, 0, {}}};
      return std::make_unique<EncoderClassifier>(config);
    };
    const auto output = [](EncoderClassifier& model, std::int64_t length) {
      const NoGrad no_grad;
      Context context = Context::inference();
      return model.logits(pad_tokens(std::vector<Tokens>{some_tokens(length), some_tokens(1)}), context);
    };
    CHECK(same_in_threads(make, output));
  }
}

TEST_CASE("threads: many compute with one language model, of every causal attention") {
  for (const AttentionVariant& variant : attention_variants()) {
    if (!variant.capabilities.causal) continue;
    CAPTURE(variant.name);
    const auto make = [&] {
      TransformerConfig config = tiny_config();
      config.decoder_attention = {{variant.name, 0, {}}};
      return std::make_unique<LanguageModel>(config);
    };
    const auto output = [](LanguageModel& model, std::int64_t length) {
      const NoGrad no_grad;
      Context context = Context::inference();
      return model.logits(model.hidden(pad_tokens(std::vector<Tokens>{some_tokens(length)}), context));
    };
    CHECK(same_in_threads(make, output));
  }
}

TEST_CASE("threads: each trains a model of its own, to the weights that it gets alone") {
  const auto trained = [](std::size_t seed) {
    TransformerConfig config = tiny_config();
    config.seed = static_cast<std::int64_t>(seed + 1);
    config.dropout = 0.2;
    LanguageModel model(config);
    Optimizer optimizer(model.parameters(), {});
    for (std::uint32_t step = 1; step <= 5; ++step) {
      Context context = Context::train(seed, step);
      const auto batch = make_language_model_batch(std::vector<Tokens>{some_tokens(8), some_tokens(12)});
      backward(objective(model.loss(batch, 0.1, context), context));
      optimizer.step(0.01);
      optimizer.zero_gradients();
    }
    Floats weights;
    for (const NamedTensor& one : model.parameters()) {
      const Floats values = one.tensor->to_vector<float>();
      weights.insert(weights.end(), values.begin(), values.end());
    }
    return weights;
  };
  std::vector<Floats> alone, together(3);
  for (std::size_t i = 0; i < together.size(); ++i) alone.push_back(trained(i));
  at_once(together.size(), [&](std::size_t i) { together[i] = trained(i); });
  CHECK(together == alone);
  CHECK(alone[0] != alone[1]);
}
