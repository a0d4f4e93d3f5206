// Frozen parts and learning rates of parts.

#include <doctest/doctest.h>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/layers.h"
#include "heed/training/optimizer.h"

using namespace heed;

namespace {

class TwoLayers : public Module {
 public:
  explicit TwoLayers(const char* name_of_second = "second", Initialiser initialiser = Initialiser(1))
      : first(3, 3, true, initialiser), second(3, 2, true, initialiser) {
    add_module("first", first);
    add_module(name_of_second, second);
  }
  Linear first, second;
};

std::vector<float> values(const Tensor& tensor) {
  return tensor.detach().to_vector<float>();
}

/// The weights of the second layer after one step of plain descent.
std::vector<float> after_step(const std::vector<PartRate>& part_rates, double rate) {
  TwoLayers model;
  const TrainedParameters trained = trained_parameters(model, part_rates);
  Optimizer optimizer(trained.parameters, {.kind = OptimizerKind::sgd, .beta1 = 0}, trained.rates);
  backward(sum(square(model.second(model.first(Tensor::from(std::vector<float>{1, 2, 3}, {1, 3}))))));
  optimizer.step(rate);
  return values(model.second.weight);
}

}  // namespace

TEST_CASE("A part learns at its own rate, a frozen one keeps its bits") {
  CHECK(after_step({{"second", 0.25}}, 0.4) == after_step({}, 0.1));
  CHECK(after_step({{"second", 4}, {"second.weight", 1}}, 0.1) == after_step({}, 0.1));
  CHECK(after_step({{"second", 0}}, 0.1) == values(TwoLayers().second.weight));
  CHECK(after_step({{"second", 1}}, 0.1) != values(TwoLayers().second.weight));
}

TEST_CASE("Parts that do not exist, stand twice or leave nothing to train are refused") {
  TwoLayers model;
  const auto refused = [&](const std::vector<PartRate>& part_rates, const char* why) {
    CHECK_THROWS_WITH_AS(trained_parameters(model, part_rates), doctest::Contains(why), Error);
  };
  refused({{"sec", 0}}, "no part \"sec\"");
  TwoLayers alike("fir");  // the beginning of another's name
  CHECK_THROWS_WITH_AS(trained_parameters(alike, std::vector<PartRate>{{"sec", 0}}),
                       doctest::Contains("it has first, fir"), Error);
  refused({{"first", 0}, {"first", 1}}, "two learning rates");
  refused({{"first", -1}}, "must not be negative");
  refused({{"first", 0}, {"second", 0}}, "nothing is left to train");
}
