// The trainer on a Vulkan device: the losses of the CPU, no wait inside a step, and what happens when a
// gradient is not finite.

#include "heed/backends/vulkan/gpu.h"
#include "heed/tests/kernel_check.h"
#include "heed/tests/vulkan_support.h"
#include "heed/training/trainer.h"

namespace {

/// Logits of the next token from the present one alone.
class Bigrams : public Module {
 public:
  Bigrams(std::int64_t vocabulary, Device device) {
    const auto on_device = [&](const Tensor& x) {
      return Tensor::from(x.to_vector<float>(), x.shape(), device);
    };
    add_parameter("table", table,
                  on_device(tensor_of<float>(numbers(vocabulary * vocabulary), {vocabulary, vocabulary})));
    add_parameter("weight", weight, Tensor::ones({vocabulary}, DType::f32, device));
    add_parameter("bias", bias, Tensor::zeros({vocabulary}, DType::f32, device));
  }
  Tensor operator()(const Tensor& ids) const { return layer_norm(embedding(table, ids), weight, bias); }

  Tensor table, weight, bias;
};

class BigramObjective : public Objective {
 public:
  explicit BigramObjective(Device device) : device_(device), model_(vocabulary, device) {}

  Bigrams& model() override { return model_; }
  std::int64_t batches(std::int64_t) override { return 4; }
  Loss loss(std::int64_t, std::int64_t batch, Context&) override {
    Ints ids, next;
    for (std::int32_t i = 0; i < tokens; ++i) {
      ids.push_back((i * i + static_cast<std::int32_t>(batch)) % vocabulary);
      next.push_back((3 * ids.back() + 1) % vocabulary);
    }
    const Shape shape{tokens};
    const Tensor losses =
        cross_entropy(model_(Tensor::from(ids, shape, device_)), Tensor::from(next, shape, device_), 0.1);
    return {sum(losses) * (batch == poisoned_batch ? std::numeric_limits<double>::quiet_NaN() : 1.0), tokens};
  }

  std::int64_t poisoned_batch = -1;

 private:
  static constexpr std::int32_t vocabulary = 19, tokens = 90;
  Device device_;
  Bigrams model_;
};

TrainerOptions bigram_options(std::int64_t steps) {
  TrainerOptions options;
  options.steps = steps;
  options.schedule = {ScheduleKind::constant, 0.05, 0, 0};
  options.clip_norm = 0.5;
  options.accumulation = 2;
  options.ema_decay = 0.9;
  return options;
}

Doubles bigram_losses(Device device) {
  BigramObjective objective(device);
  Doubles losses;
  TrainerOptions options = bigram_options(12);
  options.log_every = 3;
  Trainer(objective, options,
          {.progress =
               [&](const Progress& p) {
                 losses.insert(losses.end(), {p.loss, p.gradient_norm});
               }})
      .run();
  return losses;
}

Floats table_after(BigramObjective& objective, std::int64_t steps) {
  Trainer(objective, bigram_options(steps)).run();
  return objective.model().table.to_vector<float>();
}

}  // namespace

VULKAN_TEST("vulkan: training gives the losses of the CPU, twice the same") {
  const Doubles expected = bigram_losses({}), found = bigram_losses(device);
  CHECK(expected.size() == 8);
  CHECK(expected[6] < 0.8 * expected[0]);
  CHECK(worst_error(found, expected) < 1e-5);
  CHECK(bigram_losses(device) == found);
}

VULKAN_TEST("vulkan: no step of training waits for the device") {
  // The record at the end waits, unless the device has caught up by then: sooner or later it has not.
  bool end_waited = false;
  for (int attempt = 0; attempt < 10 && !end_waited; ++attempt) {
    BigramObjective objective(device);
    std::vector<std::int64_t> waits;
    const auto count_waits = [&] {
      waits.push_back(vulkan::gpu(device.index).stream().counters().waits);
      return false;
    };
    Trainer(objective, bigram_options(20), {.stop_requested = count_waits}).run();
    REQUIRE(waits.size() == 20);
    CHECK(waits[18] == waits[0]);
    end_waited = waits[19] > waits[18];
  }
  CHECK(end_waited);
}

VULKAN_TEST("vulkan: what is not finite changes nothing, and is named when somebody asks") {
  BigramObjective objective(device), good(device);
  const Floats expected = table_after(good, 3);
  Trainer trainer(objective, bigram_options(9), {.stop_requested = [&, step = 0]() mutable {
                    if (++step == 3)
                      objective.poisoned_batch = 2;  // of step 4; later steps have good batches too
                    return false;
                  }});
  CHECK_ERROR(trainer.run(),
              "training stopped in step 4, before changing the weights: the gradient of \"table\"");
  CHECK(objective.model().table.to_vector<float>() == expected);
}
