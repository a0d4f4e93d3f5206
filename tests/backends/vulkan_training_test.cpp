// Whole trainings on a Vulkan device: the loss curve of the CPU, the same bits again, half precision.

#include "heed/models/encoder_decoder.h"
#include "heed/models/loss.h"
#include "heed/tests/vulkan_support.h"
#include "heed/training/trainer.h"

namespace {

TransformerConfig translator_config() {
  TransformerConfig config;
  config.width = 32;
  config.heads = 4;
  config.feed_forward = 48;
  config.encoder_layers = 1;
  config.decoder_layers = 1;
  config.source_vocabulary = 20;
  config.target_vocabulary = 20;
  config.max_length = 16;
  config.dropout = 0.1;
  config.tie_embeddings = "all";
  return config;
}

/// Learns to copy sequences of tokens.
class CopyObjective : public Objective {
 public:
  explicit CopyObjective(Device device) : model_(translator_config()) { model_.to(DType::f32, device); }
  EncoderDecoder& model() override { return model_; }
  std::int64_t batches(std::int64_t) override { return 5; }
  Loss loss(std::int64_t, std::int64_t number, Context& context) override {
    std::vector<Ints> texts(8);
    for (std::size_t s = 0; s < texts.size(); ++s)
      for (std::size_t i = 0; i < 3 + (s + static_cast<std::size_t>(number)) % 5; ++i)
        texts[s].push_back(
            static_cast<std::int32_t>(3 + (7 * s + 5 * i + static_cast<std::size_t>(number)) % 17));
    const TranslationBatch batch = make_translation_batch(texts, texts, 1, 2, model_.device());
    return model_.loss(batch, 0.1, context);
  }

 private:
  EncoderDecoder model_;
};

/// The losses of all steps, and the weights at the end.
struct Curve {
  Doubles losses, weights;
  friend bool operator==(const Curve&, const Curve&) = default;
};

Curve train(Device device, Precision precision = Precision::f32,
            OptimizerKind optimizer = OptimizerKind::adam, std::int64_t steps = 25) {
  CopyObjective objective(device);
  TrainerOptions options;
  options.optimizer.kind = optimizer;
  options.steps = steps;
  options.log_every = 1;
  options.clip_norm = 1;
  options.seed = 5;
  options.precision = precision;
  options.schedule = {ScheduleKind::constant, 3e-3, 0, 0};
  Curve curve;
  Trainer(objective, options, {.progress = [&](const Progress& p) { curve.losses.push_back(p.loss); }}).run();
  for (const NamedTensor& parameter : objective.model().parameters())
    for (const double weight : parameter.tensor->to_doubles()) curve.weights.push_back(weight);
  return curve;
}

/// Of steps that both have.
double largest_difference(const Doubles& a, const Doubles& b) {
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

VULKAN_TEST("vulkan: 25 steps of a translator follow the CPU's loss curve, and repeat bit for bit") {
  const Curve expected = train({}), found = train(device);
  REQUIRE(expected.losses.size() == 25);
  CHECK(expected.losses.back() < expected.losses.front() - 0.5);
  CHECK(largest_difference(found.losses, expected.losses) < 1e-4);
  CHECK(largest_difference(found.weights, expected.weights) < 1e-3);
  CHECK(train(device) == found);
}

namespace {

/// A software device takes seconds for a step in half precision: 12 steps follow the curve, 4 are repeated.
void check_follows(Device device, const Curve& expected, Precision precision, OptimizerKind optimizer,
                   double tolerance) {
  CAPTURE(name_of(precision));
  const Curve found = train(device, precision, optimizer, 12);
  CHECK(largest_difference(found.losses, expected.losses) < tolerance);
  CHECK(train(device, precision, optimizer, 4).losses ==
        Doubles(found.losses.begin(), found.losses.begin() + 4));
  if (precision != Precision::f32) CHECK(found.losses[0] != expected.losses[0]);
}

}  // namespace

VULKAN_TEST(
    "vulkan: training in half precision learns as f32 does, with f32 weights, and muon as on the CPU") {
  for (const OptimizerKind optimizer : {OptimizerKind::adam, OptimizerKind::muon}) {
    const Curve expected = train({}, Precision::f32, optimizer);
    CHECK(expected.losses.back() < expected.losses.front() - 0.5);
    if (optimizer == OptimizerKind::muon) check_follows(device, expected, Precision::f32, optimizer, 1e-3);
    check_follows(device, expected, Precision::f16, optimizer, 0.02);
    check_follows(device, expected, Precision::bf16, optimizer, 0.1);
  }
}

TEST_CASE("half precision needs a device that has it") {
  CHECK_ERROR(train({}, Precision::f16), "needs a Vulkan device");
  const Curve exact = train({}), found = train({}, Precision::bf16);  // on the CPU
  CHECK((found.losses != exact.losses) == is_fast(MatmulPrecision::medium));
  CHECK(largest_difference(found.losses, exact.losses) < 0.05);
  CHECK(train({}, Precision::bf16) == found);
  CHECK_ERROR(Tensor::zeros({1}, DType::bf16), "Vulkan devices only");
  CHECK_ERROR(precision_from_name("f8"), "f32, f16, bf16, high, medium");
}

VULKAN_TEST("vulkan: the loss scale halves when gradients overflow and doubles after good steps") {
  LossScale scale(device, {64, LossScale::patience - 2, 3});
  const auto norm = [&](double value) { return Tensor::full({1}, value, DType::f32, device); };
  scale.update(norm(1));
  CHECK(scale.skip().item() == 0);
  CHECK(scale.state().scale == 64);
  scale.update(norm(1));
  CHECK(scale.state().scale == 128);
  CHECK(scale.state().good_steps == 0);
  scale.update(norm(INFINITY));
  CHECK(scale.skip().item() == 1);
  CHECK(scale.state().scale == 64);
  scale.update(norm(NAN));
  CHECK(scale.state().scale == 32);
  CHECK(scale.state().skipped == 5);
  CHECK(scale.inverse().item() == 1.0 / 32);
}
