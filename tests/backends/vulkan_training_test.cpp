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
class CopyTask : public Task {
 public:
  explicit CopyTask(Device device) : model_(translator_config()) { model_.to(DType::f32, device); }
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
            OptimizerKind optimizer = OptimizerKind::adam) {
  CopyTask task(device);
  TrainerOptions options;
  options.optimizer.kind = optimizer;
  options.steps = 25;
  options.log_every = 1;
  options.clip_norm = 1;
  options.seed = 5;
  options.precision = precision;
  options.schedule = {ScheduleKind::constant, 3e-3, 0, 0};
  Curve curve;
  Trainer(task, options, {.progress = [&](const Progress& p) { curve.losses.push_back(p.loss); }}).run();
  for (const NamedTensor& parameter : task.model().parameters())
    for (const double weight : parameter.tensor->to_doubles()) curve.weights.push_back(weight);
  return curve;
}

double largest_difference(const Doubles& a, const Doubles& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
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

VULKAN_TEST("vulkan: muon follows the CPU, in half precision too, and repeats bit for bit") {
  const Curve expected = train({}, Precision::f32, OptimizerKind::muon);
  CHECK(expected.losses.back() < expected.losses.front() - 0.5);
  for (const auto& [precision, tolerance] :
       {std::pair(Precision::f32, 1e-3), {Precision::f16, 0.02}, {Precision::bf16, 0.1}}) {
    CAPTURE(name_of(precision));
    const Curve found = train(device, precision, OptimizerKind::muon);
    CHECK(largest_difference(found.losses, expected.losses) < tolerance);
    CHECK(train(device, precision, OptimizerKind::muon) == found);
  }
}

VULKAN_TEST("vulkan: training in half precision learns as f32 does, with f32 weights") {
  const Curve expected = train({});
  for (const auto& half : {std::pair(Precision::f16, 0.02), std::pair(Precision::bf16, 0.1)}) {
    const auto [precision, tolerance] = half;
    CAPTURE(name_of(half.first));
    const Curve found = train(device, precision);
    CHECK(found.losses != expected.losses);
    CHECK(largest_difference(found.losses, expected.losses) < tolerance);
    CHECK(train(device, precision) == found);
  }
}

TEST_CASE("half precision needs a device that has it") {
  CHECK_ERROR(train({}, Precision::f16), "needs a Vulkan device");
  const Curve exact = train({}), found = train({}, Precision::bf16);  // on the CPU
  CHECK(found.losses != exact.losses);
  CHECK(largest_difference(found.losses, exact.losses) < 0.05);
  CHECK(train({}, Precision::bf16) == found);
  CHECK_ERROR(Tensor::zeros({1}, DType::bf16), "Vulkan devices only");
  CHECK_ERROR(precision_from_name("f8"), "f32, f16, bf16");
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
