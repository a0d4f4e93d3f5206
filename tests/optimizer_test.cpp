// Optimizers: their kernels, and rates of parts.

#include <doctest/doctest.h>

#include <limits>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/layers.h"
#include "heed/tests/kernel_check.h"
#include "heed/training/optimizer.h"

using namespace heed;
using namespace heed::test;

namespace {

// Small, ragged and more than one piece.
const std::vector<std::int64_t> sizes = {1, 7, 16, 100, 40003, 65536};

std::vector<double> flatten(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

template <class T>
std::vector<Tensor> tensors(double low, double high, std::uint32_t stream) {
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    result.push_back(
        tensor_of<T>(numbers(sizes[i], low, high, 10 * stream + static_cast<std::uint32_t>(i)), {sizes[i]}));
  }
  return result;
}

template <class T>
std::vector<double> all_values(const std::vector<Tensor>& list) {
  std::vector<std::vector<double>> parts;
  for (const Tensor& tensor : list) parts.push_back(values_of<T>(tensor));
  return flatten(parts);
}

/// The state of an optimizer over all tensors.
template <class T>
struct State {
  std::vector<Tensor> parameters = tensors<T>(-1, 1, 1), gradients = tensors<T>(-1, 1, 2);
  std::vector<Tensor> first = tensors<T>(-0.1, 0.1, 3), second = tensors<T>(0, 0.1, 4);

  OptimizerStep step() const {
    OptimizerStep result;
    result.parameters = parameters;
    result.gradients = gradients;
    result.first_moment = first;
    result.second_moment = second;
    result.learning_rate = 0.01;
    return result;
  }
};

}  // namespace

TEST_CASE_TEMPLATE("Adam and AdamW take the published step", T, float, double) {
  for (bool decoupled : {false, true}) {
    for (double decay : {0.0, 0.1}) {
      for (bool scaled : {false, true}) {
        CAPTURE(decoupled);
        CAPTURE(decay);
        CAPTURE(scaled);
        const State<T> state;
        auto p = all_values<T>(state.parameters), m = all_values<T>(state.first),
             v = all_values<T>(state.second);
        const auto g = all_values<T>(state.gradients);
        OptimizerStep step = state.step();
        step.decoupled_decay = decoupled;
        step.weight_decay = decay;
        step.step = 3;
        if (scaled) step.gradient_scale = tensor_of<T>({0.25}, {1});
        cpu_backend.adam(step);
        for (std::size_t i = 0; i < p.size(); ++i) {
          double gradient = g[i] * (scaled ? 0.25 : 1);
          if (decoupled) p[i] -= step.learning_rate * decay * p[i];
          if (!decoupled) gradient += decay * p[i];
          m[i] = 0.9 * m[i] + 0.1 * gradient;
          v[i] = 0.999 * v[i] + 0.001 * gradient * gradient;
          const double mean = m[i] / (1 - std::pow(0.9, 3)), square = v[i] / (1 - std::pow(0.999, 3));
          p[i] -= step.learning_rate * mean / (std::sqrt(square) + step.epsilon);
        }
        CHECK(worst_error(all_values<T>(state.parameters), p) <= tolerance<T>);
        CHECK(worst_error(all_values<T>(state.first), m) <= tolerance<T>);
        CHECK(worst_error(all_values<T>(state.second), v) <= tolerance<T>);
      }
    }
  }
}

TEST_CASE_TEMPLATE("gradient descent with and without momentum", T, float, double) {
  for (bool with_momentum : {false, true}) {
    for (double decay : {0.0, 0.1}) {
      const State<T> state;
      auto p = all_values<T>(state.parameters), u = all_values<T>(state.first);
      const auto g = all_values<T>(state.gradients);
      OptimizerStep step = state.step();
      step.second_moment = {};
      if (!with_momentum) step.first_moment = {};
      step.beta1 = 0.8;
      step.weight_decay = decay;
      cpu_backend.sgd(step);
      for (std::size_t i = 0; i < p.size(); ++i) {
        double direction = g[i] + decay * p[i];
        if (with_momentum) u[i] = direction = 0.8 * u[i] + direction;
        p[i] -= step.learning_rate * direction;
      }
      CHECK(worst_error(all_values<T>(state.parameters), p) <= tolerance<T>);
      CHECK(worst_error(all_values<T>(state.first), u) <= tolerance<T>);
    }
  }
}

TEST_CASE_TEMPLATE("sums of squares are accumulated in double", T, float, double) {
  const std::vector<Tensor> list = tensors<T>(-1e4, 1e4, 5);
  const Tensor out = Tensor::empty({static_cast<std::int64_t>(list.size())}, DType::f64);
  cpu_backend.sums_of_squares(list, out);
  const std::vector<double> sums = values_of<double>(out);
  for (std::size_t i = 0; i < list.size(); ++i) {
    double expected = 0;
    for (double value : values_of<T>(list[i])) expected += value * value;
    CHECK(std::abs(sums[i] - expected) <= 1e-12 * expected);
  }
}

TEST_CASE("sums of squares show a NaN, and do not overflow where f32 would") {
  std::vector<double> large(100, 1e25), bad(100, 1.0);
  bad[99] = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Tensor> list = {tensor_of<float>(large, {100}), tensor_of<float>(bad, {100}),
                                    Tensor::empty({0})};
  const Tensor out = Tensor::empty({3}, DType::f64);
  cpu_backend.sums_of_squares(list, out);
  const std::vector<double> sums = values_of<double>(out);
  CHECK(sums[0] == doctest::Approx(1e52));
  CHECK(std::isnan(sums[1]));
  CHECK(sums[2] == 0);
}

TEST_CASE("optimizers have the same bits for any number of threads") {
  check_thread_identity([] {
    const State<float> state;
    OptimizerStep step = state.step();
    step.weight_decay = 0.01;
    cpu_backend.adam(step);
    cpu_backend.sgd(step);
    const Tensor sums = Tensor::empty({static_cast<std::int64_t>(sizes.size())}, DType::f64);
    cpu_backend.sums_of_squares(state.parameters, sums);
    std::vector<Tensor> results = {sums};
    for (const auto* list : {&state.parameters, &state.first, &state.second}) {
      results.insert(results.end(), list->begin(), list->end());
    }
    return results;
  });
}

// --- Frozen parts and learning rates of parts.

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

/// The weights of the second layer after one step of plain descent.
std::vector<float> after_step(const std::vector<PartRate>& part_rates, double rate) {
  TwoLayers model;
  const TrainedParameters trained = trained_parameters(model, part_rates);
  Optimizer optimizer(trained.parameters, {.kind = OptimizerKind::sgd, .beta1 = 0}, trained.rates);
  backward(sum(square(model.second(model.first(Tensor::from(std::vector<float>{1, 2, 3}, {1, 3}))))));
  optimizer.step(rate);
  return model.second.weight.to_vector<float>();
}

}  // namespace

TEST_CASE("A part learns at its own rate, a frozen one keeps its bits") {
  CHECK(after_step({{"second", 0.25}}, 0.4) == after_step({}, 0.1));
  CHECK(after_step({{"second", 4}, {"second.weight", 1}}, 0.1) == after_step({}, 0.1));
  CHECK(after_step({{"second", 0}}, 0.1) == TwoLayers().second.weight.to_vector<float>());
  CHECK(after_step({{"second", 1}}, 0.1) != TwoLayers().second.weight.to_vector<float>());
}

TEST_CASE("Parts that do not exist, are named twice or leave nothing to train are refused") {
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
