// Every attention variant in half precision: a layer's output, gradients and auxiliary losses against f32,
// and training.

#include "heed/models/attention/attention.h"
#include "heed/models/classifier.h"
#include "heed/tests/vulkan_support.h"
#include "heed/training/trainer.h"

namespace {

constexpr std::int64_t length = 12;

/// Tells sequences of small tokens from those of large ones.
class SizeObjective : public Objective {
 public:
  SizeObjective(const std::string& attention, Device device) : model_(config_with(attention)) {
    model_.to(DType::f32, device);
  }
  EncoderClassifier& model() override { return model_; }
  std::int64_t batches(std::int64_t) override { return 4; }
  Loss loss(std::int64_t, std::int64_t number, Context& context) override {
    std::vector<Tokens> texts(6);
    Ints classes;
    for (std::size_t s = 0; s < texts.size(); ++s) {
      classes.push_back(static_cast<std::int32_t>(s % 2));
      for (std::size_t i = 0; i < 5 + s; ++i)
        texts[s].push_back(
            static_cast<std::int32_t>(3 + 8 * (s % 2) + (s + i + static_cast<std::size_t>(number)) % 8));
    }
    const std::int64_t count = static_cast<std::int64_t>(texts.size());
    const Tensor logits = model_.logits(pad_tokens(texts, model_.device()), context);
    return {sum(cross_entropy(logits, Tensor::from(classes, {count}, model_.device()))), count};
  }

 private:
  static TransformerConfig config_with(const std::string& attention) {
    TransformerConfig config;
    config.width = 16;
    config.heads = 2;
    config.feed_forward = 24;
    config.encoder_layers = 2;
    config.source_vocabulary = 20;
    config.classes = 2;
    config.max_length = length;
    config.dropout = 0.1;
    config.encoder_attention[0].name = attention;
    return config;
  }
  EncoderClassifier model_;
};

/// The losses by name, of all progress records.
Doubles half_losses(const std::string& attention, Device device, Precision precision) {
  SizeObjective objective(attention, device);
  TrainerOptions options;
  options.steps = 3;
  options.log_every = 1;
  options.seed = 5;
  options.precision = precision;
  options.schedule = {ScheduleKind::constant, 3e-3, 0, 0};
  Doubles losses;
  Trainer(objective, options, {.progress = [&](const Progress& p) { losses.push_back(p.loss); }}).run();
  return losses;
}

}  // namespace

VULKAN_TEST("vulkan: every attention trains in half precision as it does in f32") {
  for (const AttentionVariant& variant : attention_variants()) {
    CAPTURE(variant.name);
    const Doubles expected = half_losses(variant.name, {}, Precision::f32);
    for (const Precision precision : {Precision::f16, Precision::bf16}) {
      CAPTURE(name_of(precision));
      Doubles found;
      REQUIRE_NOTHROW(found = half_losses(variant.name, device, precision));
      REQUIRE(found.size() == expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(found[i] == doctest::Approx(expected[i]).epsilon(0.1));
    }
  }
}

VULKAN_TEST("vulkan: the causal forms of every attention run in half precision, forward and backward") {
  for (const AttentionVariant& variant : attention_variants()) {
    if (!variant.capabilities.causal) continue;
    CAPTURE(variant.name);
    AttentionConfig config;
    config.width = 16;
    config.heads = 2;
    config.causal = true;
    config.max_length = length;
    const auto layer = make_attention(variant.name, config);
    layer->to(DType::f32, device);
    std::vector<Tensor> weights;
    for (const NamedTensor& entry : layer->parameters()) {
      weights.push_back(*entry.tensor);
      *entry.tensor = cast(weights.back(), DType::f16);
    }
    Context context = Context::train(1, 1);
    const Tensor x = parameter(normal({2, length, 16}, 0, 1, {1, 0, 0}, DType::f32, device));
    const Tensor mask = Tensor::ones({2, length}, DType::i32, device);
    Tensor loss = sum(cast((*layer)({cast(x, DType::f16), mask, {}, {}}, context), DType::f32));
    for (const AuxiliaryLoss& each : context.losses)
      loss = loss + reshape(each.value, {}).to(DType::f32) * each.weight;
    REQUIRE_NOTHROW(backward(loss));
    REQUIRE(gradient(x).defined());
    for (const double slope : gradient(x).to_doubles()) REQUIRE(std::isfinite(slope));
  }
}
