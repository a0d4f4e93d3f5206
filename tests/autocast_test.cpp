// Mixed precision in loops of one's own, on the CPU: in f32 it changes nothing, and what cannot be is
// refused.

#include <doctest/doctest.h>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/file.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/training/precision.h"

using namespace heed;

namespace {

Tensor inputs() {
  return uniform({6, 4}, -1, 1, {1, 0, 0});
}
Tensor loss_of(const Linear& layer) {
  return mean(square(layer(inputs()) - 1));
}

}  // namespace

TEST_CASE("autocast: what docs/embedding.md quotes stands in the example") {
  const std::string doc = read_file(HEED_SOURCE_DIR "/docs/embedding.md"),
                    example = read_file(HEED_SOURCE_DIR "/examples/embed/autocast.cpp");
  const std::size_t begin = doc.find("  heed::Autocast autocast(network"), end = doc.find("```", begin);
  REQUIRE(begin != std::string::npos);
  CHECK(example.find(doc.substr(begin, end - begin)) != std::string::npos);
}

TEST_CASE("autocast: in f32 a loop gets the bits that it gets without") {
  Initialiser one(3), other(3);
  Linear plain(4, 2, true, one), cast(4, 2, true, other);
  Optimizer plain_adam(plain.parameters(), {}), cast_adam(cast.parameters(), {});
  Autocast autocast(cast, Precision::f32);
  CHECK(autocast.dtype() == DType::f32);
  CHECK(autocast.loss_scale() == nullptr);
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = loss_of(plain);
    backward(loss);
    plain_adam.clip(0.5);
    plain_adam.step(0.1);
    plain_adam.zero_gradients();
    CHECK(autocast.backward([&] { return loss_of(cast); }).item() == loss.item());
    cast_adam.clip(0.5);
    autocast.step(cast_adam, 0.1);
  }
  CHECK(cast.weight.to_vector<float>() == plain.weight.to_vector<float>());
  CHECK(cast.bias.to_vector<float>() == plain.bias.to_vector<float>());
  CHECK_FALSE(gradient(cast.weight).defined());
}

TEST_CASE("autocast: what cannot be is an error, and the model stays as it was") {
  Initialiser initialiser(3);
  Linear layer(4, 2, true, initialiser);
  Optimizer adam(layer.parameters(), {});
  CHECK_THROWS_WITH_AS(Autocast(layer, Precision::f16), doctest::Contains("needs a Vulkan device"), Error);
  Autocast autocast(layer, Precision::f32);
  CHECK_THROWS_WITH_AS(autocast.loss_scale_state(), doctest::Contains("only f16 has a loss scale"), Error);
  CHECK_THROWS_WITH_AS(autocast.backward([&] { return layer(inputs()); }), doctest::Contains("[6, 2]"),
                       Error);
  CHECK_THROWS_WITH_AS(autocast.backward([] { return Tensor(); }), doctest::Contains("there is none"), Error);
  CHECK_THROWS_WITH_AS(autocast.backward([&] { return autocast.backward([&] { return loss_of(layer); }); }),
                       doctest::Contains("within backward()"), Error);
  CHECK_THROWS_WITH_AS(autocast.backward([&] {
    autocast.step(adam, 0.1);
    return loss_of(layer);
  }),
                       doctest::Contains("within backward()"), Error);
  CHECK_FALSE(gradient(layer.weight).defined());
  CHECK_THROWS_WITH_AS(autocast.step(adam, 0.1), doctest::Contains("no parameter has a gradient"), Error);
  autocast.backward([&] { return loss_of(layer); });
  CHECK(gradient(layer.weight).defined());
}
