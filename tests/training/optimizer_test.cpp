// Optimizers: their kernels, and rates of parts.

#include "heed/training/optimizer.h"
#include "heed/core/low_precision.h"
#include "heed/models/layers.h"
#include "heed/tests/kernel_check.h"

namespace {

// Small, ragged and more than one piece.
const std::vector<std::int64_t> sizes = {1, 7, 16, 100, 40003, 65536};

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
Doubles all_values(const std::vector<Tensor>& list) {
  Doubles all;
  for (const Tensor& tensor : list)
    for (const double value : values_of<T>(tensor)) all.push_back(value);
  return all;
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
  const Doubles sums = values_of<double>(out);
  for (std::size_t i = 0; i < list.size(); ++i) {
    double expected = 0;
    for (double value : values_of<T>(list[i])) expected += value * value;
    CHECK(std::abs(sums[i] - expected) <= 1e-12 * expected);
  }
}

TEST_CASE("sums of squares show a NaN, and do not overflow where f32 would") {
  Doubles large(100, 1e25), bad(100, 1.0);
  bad[99] = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Tensor> list = {tensor_of<float>(large, {100}), tensor_of<float>(bad, {100}),
                                    Tensor::empty({0})};
  const Tensor out = Tensor::empty({3}, DType::f64);
  cpu_backend.sums_of_squares(list, out);
  const Doubles sums = values_of<double>(out);
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

// --- Muon.

namespace {

/// As torch.optim.Muon has it (its documentation, version 2.9): X = G / max(|G|, 1e-7), then five times
/// X = a X + (b A + c A^2) X with A = X X'.
Tensor newton_schulz(const Tensor& x) {
  if (x.size(0) > x.size(1)) return transpose(newton_schulz(transpose(x, 0, 1)), 0, 1);
  Tensor y = x / std::max(norm(x).item(), 1e-7);
  for (int i = 0; i < 5; ++i) {
    const Tensor gram = matmul(y, transpose(y, 0, 1));
    y = 3.4445 * y + matmul(-4.775 * gram + 2.0315 * matmul(gram, gram), y);
  }
  return y;
}

Tensor drawn_matrix(std::int64_t rows, std::int64_t columns, std::uint32_t stream, double scale = 1) {
  return tensor_of<double>(numbers(rows * columns, -scale, scale, stream), {rows, columns});
}

void give(const Tensor& leaf, const Tensor& gradient) {
  zero_gradient(leaf);
  backward(sum(leaf * cast(gradient, leaf.dtype())));
}

/// The step that a matrix takes from 0 with a gradient of this size, beside the reference.
double error_of_step(double scale) {
  const Tensor gradient = drawn_matrix(8, 12, 3, scale);
  Tensor leaf = parameter(Tensor::zeros({8, 12}));
  give(leaf, gradient);
  Optimizer optimizer({{"w", &leaf}}, {.kind = OptimizerKind::muon,
                                       .muon = {.momentum = 0, .adjustment = RateAdjustment::original}});
  optimizer.step(1);
  return worst_error(leaf.to_doubles(), (-newton_schulz(gradient)).to_doubles());
}

}  // namespace

TEST_CASE_TEMPLATE("Muon takes the step that torch.optim.Muon documents", T, float, double) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes = {{8, 8},   {5, 9},  {9, 5}, {8, 8},
                                                                     {40, 17}, {2, 70}, {9, 5}};
  for (const bool nesterov : {false, true}) {
    for (const RateAdjustment adjustment : {RateAdjustment::original, RateAdjustment::match_rms_adamw}) {
      std::vector<Tensor> expected, moments, leaves;
      for (std::uint32_t i = 0; i < shapes.size(); ++i) {
        expected.push_back(drawn_matrix(shapes[i].first, shapes[i].second, i));
        leaves.push_back(parameter(cast(expected[i], dtype_of<T>)));
        moments.push_back(expected[i] * 0);
      }
      std::vector<NamedTensor> named;
      for (Tensor& leaf : leaves) named.push_back({concat_text("w", named.size()), &leaf});
      Optimizer optimizer(
          named, {.kind = OptimizerKind::muon,
                  .weight_decay = 0.1,
                  .muon = {.momentum = 0.8, .nesterov = nesterov, .adjustment = adjustment, .rate = 0.5}});
      for (std::uint32_t step = 1; step <= 3; ++step) {
        for (std::uint32_t i = 0; i < shapes.size(); ++i) {
          const Tensor gradient = drawn_matrix(shapes[i].first, shapes[i].second, 100 * step + i);
          give(leaves[i], gradient);
          const Tensor part = gradient * (0.2 * 0.25);
          moments[i] = moments[i] * 0.8 + part;
          const Tensor direction = nesterov ? moments[i] * 0.8 + part : moments[i];
          const auto [rows, columns] = shapes[i];
          const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
          const double factor = adjustment == RateAdjustment::original
                                    ? std::sqrt(std::max(1.0, ratio))
                                    : 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
          expected[i] = expected[i] * (1 - 0.05 * 0.1) - newton_schulz(direction) * (0.05 * factor);
        }
        optimizer.step(0.1, tensor_of<T>({0.25}, {1}));
      }
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        CAPTURE(i);
        CHECK(worst_error(leaves[i].to_doubles(), expected[i].to_doubles()) <= 5 * tolerance<T>);
      }
    }
  }
}

TEST_CASE("Muon's steps are right at every magnitude of the gradient") {
  for (const double scale : {0.0, 1e-38, 1e-30, 1e-12, 1e-7, 1e-3, 1.0, 1e18, 1e30, 1e38}) {
    CAPTURE(scale);
    CHECK(error_of_step(scale) <= 3e-6);
  }
  // Of 1e-38 the step is not 0 either: that of the norm's least value, 1e-7.
  const Tensor tiny = orthogonalised(Tensor::full({2, 2}, 1e-38));
  CHECK(tiny.to_doubles()[0] > 1e-30);
  // One matrix among others neither hides them nor is hidden.
  const Tensor both = Tensor::from(Floats{1e38f, 0, 0, 1e38f, 1e-38f, 0, 0, 1, 0, 0, 0, 0}, {3, 2, 2});
  const Doubles found = orthogonalised(both).to_doubles();
  CHECK(found[0] == doctest::Approx(found[3]));
  CHECK(found[0] > 0.5);
  CHECK(found[7] > 0.5);
  CHECK(found[8] == 0);
}

TEST_CASE("orthogonalised() brings singular values near 1, and refuses what is no matrix") {
  const Tensor x = uniform({3, 20, 31}, -1, 1, {5, 0, 1});
  const Tensor y = orthogonalised(x), gram = matmul(y, transpose(y, 1, 2));
  // The sum of the squares of singular values between 0.68 and 1.14, and of their fourth powers.
  CHECK(sum(square(y)).item() / 60 == doctest::Approx(0.85).epsilon(0.15));
  CHECK(sum(square(gram)).item() / 60 == doctest::Approx(0.75).epsilon(0.3));
  CHECK(orthogonalised(Tensor::empty({0, 3, 4})).count() == 0);
  CHECK_ERROR(orthogonalised(Tensor::ones({3})), "matrices");
  CHECK_ERROR(orthogonalised(Tensor::ones({3, 3}), 0), "at least 1");
}

TEST_CASE("orthogonalised() is right for singular values of all magnitudes, long matrices and square ones") {
  for (const std::int64_t columns : {7, 64}) {
    Initialiser initialiser(1);
    Floats values;
    for (int i = 0; i < 7; ++i) values.push_back(std::pow(10.0F, static_cast<float>(-i)));
    const Tensor x = matmul(initialiser.orthogonal(7, 7),
                            initialiser.orthogonal(7, columns) * Tensor::from(values, {7, 1}));
    for (const Tensor& matrix : {x, contiguous(transpose(x, 0, 1))}) {
      const Doubles expected = orthogonalised(cast(matrix, DType::f64)).to_doubles();
      CHECK(worst_error(values_of<float>(orthogonalised(matrix)), expected) < 1e-3);
    }
  }
}

TEST_CASE("Muon's matrices have the same bits for any number of threads, alone or together") {
  std::vector<Tensor> gradients;
  for (std::uint32_t i = 0; i < 5; ++i) gradients.push_back(random_floats({70, 130}, i));
  gradients.push_back(random_floats({300, 200}, 9));
  const auto after_steps = [&](std::size_t first, std::size_t last) {
    std::vector<Tensor> leaves;
    std::vector<NamedTensor> named;
    for (std::size_t i = first; i < last; ++i)
      leaves.push_back(parameter(random_floats(gradients[i].shape(), 50 + static_cast<std::uint32_t>(i))));
    for (Tensor& leaf : leaves) named.push_back({concat_text("w", named.size()), &leaf});
    Optimizer optimizer(named, {.kind = OptimizerKind::muon});
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = first; i < last; ++i) {
        zero_gradient(leaves[i - first]);
        backward(sum(leaves[i - first] * gradients[i]));
      }
      optimizer.step(0.1);
    }
    for (Tensor& leaf : leaves) leaf = leaf.detach();
    return leaves;
  };
  check_thread_identity([&] { return after_steps(0, gradients.size()); });
  const std::vector<Tensor> together = after_steps(0, gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    CAPTURE(i);
    CHECK(bits_of(after_steps(i, i + 1)[0]) == bits_of(together[i]));
  }
}

TEST_CASE("Muon steps hidden maps as matrices, and all else as AdamW does") {
  class Net : public Module {
   public:
    explicit Net(Initialiser initialiser = Initialiser(1))
        : table(7, 4, 1, initialiser),
          hidden(4, 6, true, initialiser),
          column(6, 1, false, initialiser),
          last(6, 5, false, initialiser) {
      set_hidden_map(last.weight, false);
      add_module("table", table);
      add_module("hidden", hidden);
      add_module("column", column);
      add_module("last", last);
    }
    Embedding table;
    Linear hidden, column, last;
  };
  const auto stepped = [](OptimizerKind kind, Net& net) {
    net.to(DType::f64, {});  // which keeps what is a hidden map
    Optimizer optimizer(net.parameters(), {.kind = kind, .weight_decay = 0.1});
    for (const NamedTensor& one : net.parameters()) backward(sum(square(*one.tensor)));
    optimizer.step(0.1);
    return optimizer.state();
  };
  Net muon, adamw;
  const auto state = stepped(OptimizerKind::muon, muon), other = stepped(OptimizerKind::adamw, adamw);
  CHECK(state.size() == other.size() - 1);
  CHECK_FALSE(state.contains("second_moment.hidden.weight"));
  for (std::size_t i = 0; i < muon.parameters().size(); ++i) {
    const NamedTensor mine = muon.parameters()[i];
    CAPTURE(mine.name);
    CHECK((mine.tensor->to_doubles() == adamw.parameters()[i].tensor->to_doubles()) ==
          (mine.name != "hidden.weight"));
  }
  CHECK(is_hidden_map(parameter(Tensor::ones({2, 2}))));
  CHECK_FALSE(is_hidden_map(Tensor::ones({2, 2})));
  CHECK_ERROR(set_hidden_map(Tensor::ones({2}), true), "leaf");
}

TEST_CASE("Parameters of several types are stepped together as they are alone") {
  const Doubles first = {1, -2, 3, 4, 0.5, -6};
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::muon}) {
    CAPTURE(name_of(kind));
    const auto stepped = [&](std::vector<DType> types) {
      std::vector<Tensor> leaves;
      for (const DType type : types) leaves.push_back(parameter(cast(Tensor::from(first, {2, 3}), type)));
      std::vector<NamedTensor> named;
      for (std::size_t i = 0; i < leaves.size(); ++i) named.push_back({std::to_string(i), &leaves[i]});
      Optimizer optimizer(named, {.kind = kind});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_gradients();
        for (const Tensor& leaf : leaves) backward(sum(leaf * leaf));
        optimizer.step(0.1, Tensor::full({1}, 0.5));
      }
      std::vector<Doubles> values;
      for (const Tensor& leaf : leaves) values.push_back(leaf.detach().to_doubles());
      return values;
    };
    const auto both = stepped({DType::f32, DType::f64, DType::f32});
    CHECK(both[0] == stepped({DType::f32})[0]);
    CHECK(both[1] == stepped({DType::f64})[0]);
    CHECK(both[2] == both[0]);
    CHECK(both[0] != first);
  }
}

TEST_CASE("Muon in bf16 is near to f32, and a step that is skipped changes nothing") {
  const auto stepped = [](MatmulPrecision products, std::int32_t skip) {
    Tensor leaf = parameter(random_floats({64, 96}, 1));
    backward(sum(leaf * random_floats({64, 96}, 2)));
    Optimizer optimizer({{"w", &leaf}}, {.kind = OptimizerKind::muon, .weight_decay = 0.1});
    optimizer.compute_in(DType::f32, products);
    optimizer.step(0.1, {}, Tensor::full({1}, skip, DType::i32));
    return std::pair(values_of<float>(leaf), values_of<float>(optimizer.state().at("first_moment.w")));
  };
  const auto exact = stepped(MatmulPrecision::highest, 0), rounded = stepped(MatmulPrecision::medium, 0);
  CHECK(worst_error(rounded.first, exact.first) < 1e-2);
  CHECK((rounded.first != exact.first) == is_fast(MatmulPrecision::medium));
  CHECK(rounded.second == exact.second);
  const auto left = stepped(MatmulPrecision::highest, 1);
  CHECK(left.first == values_of<float>(random_floats({64, 96}, 1)));
  CHECK(left.second == Doubles(64 * 96, 0));
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
Floats after_step(const std::vector<PartRate>& part_rates, double rate) {
  TwoLayers model;
  const TrainedParameters trained = trained_parameters(model, part_rates);
  Optimizer optimizer(trained.parameters, {.kind = OptimizerKind::sgd, .beta1 = 0}, trained.rates);
  backward(sum(square(model.second(model.first(Tensor::from(Floats{1, 2, 3}, {1, 3}))))));
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
    CHECK_ERROR(trained_parameters(model, part_rates), why);
  };
  refused({{"sec", 0}}, "no part \"sec\"");
  TwoLayers alike("fir");  // the beginning of another's name
  CHECK_ERROR(trained_parameters(alike, std::vector<PartRate>{{"sec", 0}}), "it has first, fir");
  refused({{"first", 0}, {"first", 1}}, "two learning rates");
  refused({{"first", -1}}, "must not be negative");
  refused({{"first", 0}, {"second", 0}}, "nothing is left to train");
}
