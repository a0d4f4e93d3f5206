// What a program writes every day, on a Vulkan device: tensors that move, errors that come later, sampling,
// mixed precision in a loop of one's own. ops_test.cpp and vulkan_ops_test.cpp compare the ops.

#include "heed/models/decoding.h"
#include "heed/models/layers.h"
#include "heed/models/search.h"
#include "heed/tests/model_support.h"
#include "heed/tests/vulkan_support.h"
#include "heed/training/precision.h"

VULKAN_TEST("vulkan: tensors move between devices, and their gradients back") {
  const Tensor p = parameter(Tensor::from<float>({1, 2, 3}, {3}));
  const Tensor there = p.to(device);
  CHECK(there.device() == device);
  const Tensor back = (there * there).to(Device{});
  CHECK(back.to_vector<float>() == Floats{1, 4, 9});
  backward(sum(back));
  CHECK(gradient(p).device() == Device{});
  CHECK(gradient(p).to_vector<float>() == Floats{2, 4, 6});
  const Tensor transposed = transpose(Tensor::from<float>({{1, 2}, {3, 4}}).to(device), 0, 1);
  CHECK(transposed.to(Device{}).to_vector<float>() == Floats{1, 3, 2, 4});
  CHECK_ERROR(Tensor::ones({1}, DType::f64).to(device), "to: f64 exists on the CPU only");
  CHECK_ERROR(there.to(DType::f16).to(Device{}), "to: f16 exists on Vulkan devices only");
  CHECK(there.to(DType::f16).to(DType::f32).to(Device{}).to_vector<float>() == Floats{1, 2, 3});
}

VULKAN_TEST("vulkan: a tensor prints with its device") {
  std::ostringstream text;
  text << Tensor::from<float>({1, 2.5}, {2}).to(device).to(DType::f16);
  CHECK(text.str() == "[1.0, 2.5] f16 [2] " + name_of(device));
  std::ostringstream large;
  large << Tensor::arange(2000, DType::i32, device);
  CHECK(large.str() == "[   0,    1,    2, ..., 1997, 1998, 1999] i32 [2000] " + name_of(device));
}

VULKAN_TEST("vulkan: an index out of range is reported by the next read of anything") {
  const Tensor table = Tensor::ones({4, 2}, DType::f32, device),
               other = Tensor::ones({3}, DType::f32, device);
  CHECK(other.to_vector<float>() == Floats{1, 1, 1});
  for (int round = 0; round < 20; ++round) {
    const Tensor wrong = embedding(table, Tensor::full({1}, 4, DType::i32, device));
    // A tensor that has nothing to do with it, and was read before.
    CHECK_ERROR(other.to_vector<float>(), "outside [0, 4)");
    CHECK(other.to_vector<float>() == Floats{1, 1, 1});  // once
  }
}

VULKAN_TEST("vulkan: synchronize reports what nobody has read") {
  CHECK_NOTHROW(synchronize(device));
  { const Tensor wrong = one_hot(Tensor::full({2}, 7, DType::i32, device), 3); }
  CHECK_ERROR(synchronize(device), "outside [0, 3)");
  CHECK_NOTHROW(synchronize(device));
  CHECK_NOTHROW(synchronize(Device{}));
}

VULKAN_TEST("vulkan: an assignment between forward and backward is seen there, too") {
  const Tensor w = parameter(Tensor::ones({2}, DType::f32, device)),
               x = Tensor::ones({2}, DType::f32, device);
  const Tensor loss = sum(w * x);
  x.assign(std::span<const float>(Floats{3, 3}));
  CHECK_ERROR(backward(loss), "overwritten");
}

// --- sampling: logits are read by the host, which alone has f64

namespace {

/// Whose tokens differ enough in their logits to be drawn alike on both devices.
TransformerConfig sure_config() {
  TransformerConfig config = tiny_config();
  config.embedding_deviation = 2;
  return config;
}

}  // namespace

VULKAN_TEST("vulkan: a language model generates as on the CPU") {
  const TransformerConfig config = sure_config();
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
  CHECK(texts(device, 0) == texts({}, 0));
  CHECK(texts(device, 1) == texts({}, 1));
  CHECK(texts({}, 1)[0] != texts({}, 1)[1]);
}

VULKAN_TEST("vulkan: translations are drawn as on the CPU") {
  const TransformerConfig config = sure_config();
  const std::vector<Tokens> sources = {{4, 5, 6}, {7, 8}};
  const auto texts = [&](Device where) {
    EncoderDecoder model(config);
    model.to(DType::f32, where);
    EncoderDecoderSteps steps(model, pad_tokens(sources, where));
    const Ints first = {1, 1};
    const std::vector<std::int64_t> lengths = {8, 8};
    return sample(steps, first, lengths, {}, Tokens{2}, 3);
  };
  CHECK(texts(device) == texts({}));
}

// --- mixed precision: halves within, f32 without, and the loss scale of f16

namespace {

struct Loop {
  explicit Loop(Device device) : layer(4, 2, true, initialiser), device(device) {
    layer.to(DType::f32, device);
  }
  Tensor loss(DType dtype, double factor = 1) const {
    const Tensor x = uniform({6, 4}, -1, 1, {1, 0, 0}, DType::f32, device).to(dtype);
    const Tensor found = layer(x);
    CHECK(found.dtype() == dtype);
    return mean(square(found.to(DType::f32) - 1)) * factor;
  }
  Initialiser initialiser{3};
  Linear layer;
  Device device;
};

}  // namespace

VULKAN_TEST("vulkan autocast: gradients of both halves are near those of f32, and add up") {
  Loop exact({});
  backward(exact.loss(DType::f32));
  for (const auto& half : {std::pair(Precision::f16, 2e-3), std::pair(Precision::bf16, 2e-2)}) {
    const auto [precision, tolerance] = half;
    CAPTURE(name_of(half.first));
    Loop loop(device);
    Autocast autocast(loop.layer, precision);
    const Tensor loss = autocast.backward([&] { return loop.loss(autocast.dtype()); });
    CHECK(loss.dtype() == DType::f32);
    CHECK_FALSE(loss.tracked());
    CHECK(loop.layer.weight.dtype() == DType::f32);
    const Tensor once = gradient(loop.layer.weight) * 1.0;
    CHECK(once.dtype() == DType::f32);
    CHECK(worst_difference(once, gradient(exact.layer.weight)) < tolerance);
    CHECK(worst_difference(once, gradient(exact.layer.weight)) > 0);  // it was computed in halves
    autocast.backward([&] { return loop.loss(autocast.dtype()); });
    CHECK(worst_difference(gradient(loop.layer.weight), once * 2) < 1e-6);
  }
}

VULKAN_TEST("vulkan autocast: an overflow leaves the weights, halves the scale and is counted") {
  Loop loop(device);
  Optimizer adam(loop.layer.parameters(), {});
  Autocast autocast(loop.layer, Precision::f16, {.scale = 64});
  const Floats before = loop.layer.weight.to_vector<float>();
  autocast.backward([&] { return loop.loss(DType::f16, 1e6); });
  adam.clip(1);
  autocast.step(adam, 0.1);
  CHECK(loop.layer.weight.to_vector<float>() == before);
  CHECK(autocast.loss_scale_state().scale == 32);
  CHECK(autocast.loss_scale_state().skipped == 1);
  // A gradient that f16 holds only thanks to the scale.
  Loop tiny(device);
  Autocast scaled(tiny.layer, Precision::f16, {.scale = 0x1p16});
  scaled.backward([&] { return tiny.loss(DType::f16, 1e-7); });
  CHECK(gradient(tiny.layer.weight).to_doubles()[0] != 0);
  autocast.backward([&] { return loop.loss(DType::f16); });
  adam.clip(1);
  autocast.step(adam, 0.1);
  CHECK(loop.layer.weight.to_vector<float>() != before);
  for (const double weight : loop.layer.weight.to_doubles()) CHECK(std::isfinite(weight));
  CHECK(autocast.loss_scale_state().skipped == 1);
  CHECK_ERROR(Autocast(loop.layer, Precision::f16, {.scale = 0}), "loss scale is 0");
}
