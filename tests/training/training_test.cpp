#include <nlohmann/json.hpp>

#include "heed/base/unicode.h"
#include "heed/core/backend.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"
#include "heed/models/transformer.h"
#include "heed/tests/training_objectives.h"
#include "heed/training/checkpoint.h"
#include "heed/training/trainer.h"

namespace {

using Values = Doubles;

void check_values(const Values& a, const Values& b, double tolerance = 1e-12) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= tolerance);
}

/// A leaf whose gradient is `numbers`.
Tensor leaf_with_gradient(const Values& weights, const Values& numbers) {
  const Shape shape{static_cast<std::int64_t>(weights.size())};
  const Tensor leaf = parameter(Tensor::from(weights, shape));
  backward(sum(leaf * Tensor::from(numbers, shape)));
  return leaf;
}

/// The weights after some steps with gradient 0.3, -2, from 1, 2.
Values after_steps(const OptimizerOptions& options, int steps, double rate, const Tensor& scale = {}) {
  Tensor weight = leaf_with_gradient({1, 2}, {0.3, -2});
  Optimizer optimizer({{"w", &weight}}, options);
  for (int i = 0; i < steps; ++i) optimizer.step(rate, scale);
  CHECK(optimizer.steps() == steps);
  return weight.to_doubles();
}

/// Adam as its paper writes it, algorithm 1, with decay added to the gradient or applied to the weight.
double adam_by_hand(double w, double g0, const OptimizerOptions& o, int steps, double rate) {
  double m = 0, v = 0;
  for (int t = 1; t <= steps; ++t) {
    double g = g0;
    if (o.kind == OptimizerKind::adam) g += o.weight_decay * w;
    if (o.kind == OptimizerKind::adamw) w -= rate * o.weight_decay * w;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    w -= rate * m_hat / (std::sqrt(v_hat) + o.epsilon);
  }
  return w;
}

TrainerOptions options_for(std::int64_t steps) {
  TrainerOptions options;
  options.steps = steps;
  options.optimizer.kind = OptimizerKind::adam;
  options.schedule.learning_rate = 0.01;
  options.log_every = 5;
  options.seed = 3;
  return options;
}

/// A training that gets no better, and whose patience is three evaluations.
TrainerOptions impatient(std::int64_t steps) {
  TrainerOptions options = options_for(steps);
  options.schedule.learning_rate = 1e-37;
  options.evaluate_every = 10;
  options.patience = 3;
  return options;
}

std::vector<Floats> weights_of(Module& model) {
  std::vector<Floats> all;
  for (const NamedTensor& entry : model.state()) all.push_back(entry.tensor->to_vector<float>());
  return all;
}

}  // namespace

TEST_CASE("optimizer: Adam and AdamW follow their papers") {
  for (OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw}) {
    OptimizerOptions options;
    options.kind = kind;
    options.beta1 = 0.8;
    options.beta2 = 0.95;
    options.weight_decay = 0.1;
    options.decay_vectors = true;
    const Values expected{adam_by_hand(1, 0.3, options, 7, 0.05), adam_by_hand(2, -2, options, 7, 0.05)};
    check_values(after_steps(options, 7, 0.05), expected);
  }
}

TEST_CASE("optimizer: SGD takes its momentum, and a scale of the gradients") {
  const OptimizerOptions options{.kind = OptimizerKind::sgd, .beta1 = 0.9};
  const Tensor half = Tensor::full({1}, 0.5, DType::f64);  // velocities of 0.15 and 0.285, -1 and -1.9
  check_values(after_steps(options, 2, 0.1, half), {1 - 0.0435, 2 + 0.29});
}

TEST_CASE("optimizer: a parameter that was exchanged, and rates that are none, are refused") {
  Tensor weight = parameter(Tensor::ones({2, 3}));
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adamw}) {
    OptimizerOptions options;
    options.kind = kind;
    weight = parameter(Tensor::ones({2, 3}));
    Optimizer optimizer({{"weight", &weight}}, options);
    for (const Tensor& other :
         {Tensor::ones({64}), transpose(Tensor::ones({3, 2}), 0, 1), Tensor::ones({2, 3}, DType::f64)}) {
      weight = parameter(other);
      backward(sum(weight));
      CHECK_ERROR(optimizer.step(0.1), "\"weight\"");
    }
    CHECK_ERROR(optimizer.step(std::numeric_limits<double>::quiet_NaN()), "nan");
    CHECK_ERROR(optimizer.step(-1), "-1");
  }
}

TEST_CASE("optimizer: a parameter without a gradient is left alone") {
  Tensor with = leaf_with_gradient({1}, {1}), without = parameter(Tensor::ones({1}, DType::f64));
  Optimizer optimizer({{"with", &with}, {"without", &without}}, {.weight_decay = 0.5});
  optimizer.step(0.1);
  CHECK(with.to_doubles()[0] < 0.95);
  CHECK(without.to_doubles()[0] == 1);
  optimizer.zero_gradients();
  CHECK_ERROR(optimizer.step(0.1), "backward()");
}

TEST_CASE("optimizer: with its state restored it goes on to the same bits") {
  for (const std::string& kind : optimizer_names()) {
    CAPTURE(kind);
    OptimizerOptions options;
    options.kind = optimizer_kind(kind);
    const auto matrix_with_gradient = [](const Values& values) {
      const Tensor matrix = parameter(Tensor::from(values, {2, 3}));
      backward(sum(matrix * Tensor::from(Values{0.3, -2, 1, 0.5, 0.1, -0.7}, {2, 3})));
      return matrix;
    };
    Tensor a = leaf_with_gradient({1, 2}, {0.3, -2}), m = matrix_with_gradient({1, 2, 3, 4, 5, 6});
    Optimizer first({{"w", &a}, {"m", &m}}, options);
    for (int i = 0; i < 3; ++i) first.step(0.1);

    Tensor b = leaf_with_gradient(a.to_doubles(), {0.3, -2}), n = matrix_with_gradient(m.to_doubles());
    Optimizer second({{"w", &b}, {"m", &n}}, options);
    second.load_state(first.state());
    first.step(0.1);
    second.step(0.1);
    CHECK(a.to_doubles() == b.to_doubles());
    CHECK(m.to_doubles() == n.to_doubles());
    CHECK(second.steps() == 4);
  }
}

TEST_CASE("optimizer: a state that does not fit is refused") {
  Tensor w = leaf_with_gradient({1, 2}, {1, 1});
  Optimizer adam({{"w", &w}}, {}), sgd({{"w", &w}}, {.kind = OptimizerKind::sgd});
  auto state = adam.state();
  CHECK_ERROR(sgd.load_state(state), "unknown tensor \"second_moment.w\"");
  CHECK_ERROR(adam.load_state(sgd.state()), "\"second_moment.w\" [2] is missing");
  state["first_moment.w"] = Tensor::zeros({3}, DType::f64);
  CHECK_ERROR(adam.load_state(state), "f64 [3], but f64 [2] was expected");
  CHECK_ERROR(Optimizer({{"w", &w}}, {.beta1 = 1}), "beta1");
  CHECK_ERROR(optimizer_kind("adm"), "sgd, adam, adamw");
}

TEST_CASE("gradient norm: value, clipping and what is not finite") {
  Tensor a = leaf_with_gradient({0, 0}, {3, 0}), b = leaf_with_gradient({0}, {4});
  const std::vector<NamedTensor> parameters{{"a", &a}, {"b", &b}};
  const GradientNorm norm(parameters);
  CHECK(norm.value() == doctest::Approx(5));
  CHECK(norm.scale(0).item() == 1);
  CHECK(norm.scale(10).item() == 1);
  CHECK(norm.scale(1).item() == doctest::Approx(0.2));
  const GradientNorm divided(parameters, 10);
  CHECK(divided.value() == doctest::Approx(0.5));
  CHECK(divided.scale(0.25).item() == doctest::Approx(0.05));
  Tensor still = leaf_with_gradient({1}, {0});
  const std::vector<NamedTensor> zeros{{"still", &still}};
  CHECK(GradientNorm(zeros).scale(1).item() == 1);  // not divided by 0

  Tensor bad = leaf_with_gradient({0}, {infinity});
  const std::vector<NamedTensor> with_bad{{"a", &a}, {"layers.1.bad", &bad}};
  FiniteGuard guard;
  guard.watch(7, GradientNorm(with_bad), {});
  CHECK_ERROR(guard.check({}), "\"layers.1.bad\" is not finite");
}

TEST_CASE("finite guard: from the first bad step on nothing changes, and that step is the one it names") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [kind, spoils_gradient] : std::vector<std::pair<OptimizerKind, bool>>{
           {OptimizerKind::sgd, true}, {OptimizerKind::adamw, true}, {OptimizerKind::adam, false}}) {
    Tensor w = parameter(Tensor::full({2}, 1, DType::f64));
    Tensor v = parameter(Tensor::full({1}, 1, DType::f64));
    Optimizer optimizer({{"w", &w}, {"v", &v}}, {.kind = kind});
    FiniteGuard guard;
    LossMeter losses;
    const auto step = [&](double gradient_of_w, double gradient_of_v, double loss) {
      backward(sum(w * gradient_of_w) + sum(v * gradient_of_v));
      losses.add("loss", Tensor::full({1}, loss));
      const GradientNorm norm(optimizer.parameters());
      guard.watch(optimizer.steps() + 1, norm, losses);
      optimizer.step(0.1, norm.scale(1), guard.skip());
      optimizer.zero_gradients();
    };
    step(1, 2, 3);
    guard.check(losses);
    const Values before = w.to_doubles(), moment = optimizer.state().at("first_moment.w").to_doubles();
    CHECK(before[0] < 1);
    if (spoils_gradient) {
      step(nan, 1, 3);
      step(1, nan, 3);
    } else {
      step(1, 1, infinity);
      step(1, 1, 3);
    }
    CHECK_ERROR(guard.check(losses), "step 2");
    const char* culprit = spoils_gradient ? "the gradient of \"w\"" : "\"loss\" is inf";
    CHECK_ERROR(guard.check(losses), culprit);
    CHECK(w.to_doubles() == before);
    CHECK(optimizer.state().at("first_moment.w").to_doubles() == moment);
  }
}

TEST_CASE("schedule: the four shapes, with warm-up") {
  ScheduleOptions options{ScheduleKind::constant, 1.0, 10, 0.0};
  CHECK(learning_rate_at(options, 1, 100) == doctest::Approx(0.1));
  CHECK(learning_rate_at(options, 10, 100) == 1);
  CHECK(learning_rate_at(options, 100, 100) == 1);
  options.kind = ScheduleKind::linear;
  CHECK(learning_rate_at(options, 5, 100) == doctest::Approx(0.5));
  CHECK(learning_rate_at(options, 55, 100) == doctest::Approx(0.5));
  CHECK(learning_rate_at(options, 100, 100) == doctest::Approx(0));
  CHECK(learning_rate_at(options, 200, 100) == doctest::Approx(0));
  options.kind = ScheduleKind::cosine;
  options.final_rate = 0.2;
  CHECK(learning_rate_at(options, 55, 100) == doctest::Approx(0.6));
  CHECK(learning_rate_at(options, 32, 98) == doctest::Approx(0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5))));
  CHECK(learning_rate_at(options, 100, 100) == doctest::Approx(0.2));
  options.kind = ScheduleKind::inverse_sqrt;
  CHECK(learning_rate_at(options, 40, 100) == doctest::Approx(0.5));
  options.warmup_steps = 0;
  CHECK(learning_rate_at(options, 1, 100) == 1);
  options.learning_rate = 0;
  CHECK_ERROR(learning_rate_at(options, 1, 100), "learning_rate is 0");
}

TEST_CASE("moving average: weights that are exchanged are weights that are overwritten") {
  const Tensor weight = parameter(Tensor::ones({3}));
  Tensor member = weight;
  MovingAverage average({{"weight", &member}}, 0.9);
  const Tensor loss = sum(member * member);
  { const AveragedWeights averaged(&average); }
  CHECK_ERROR(backward(loss), "overwritten");
}

TEST_CASE("moving average: its values, and the weights come back bit for bit") {
  Tensor w = parameter(Tensor::full({2}, 1, DType::f64));
  MovingAverage average({{"w", &w}}, 0.9);
  backend_of(w).fill(2, w.detach());
  average.update(1);  // d = min(0.9, 2 / 11)
  const double expected = 1 + (1 - 2.0 / 11);
  check_values(average.state().at("w").to_doubles(), {expected, expected});
  {
    const AveragedWeights averaged(&average);
    check_values(w.to_doubles(), {expected, expected});
  }
  CHECK(w.to_doubles() == Values{2, 2});
}

TEST_CASE("trainer: accumulated batches give the gradient of all their tokens together") {
  LineObjective whole({10}), parts({3, 5, 2});
  for (LineObjective* objective : {&whole, &parts}) objective->with_auxiliary = true;
  TrainerOptions options = options_for(4);
  Trainer(whole, options).run();
  options.accumulation = 3;
  Trainer(parts, options).run();
  check_values(whole.model().weight.to_doubles(), parts.model().weight.to_doubles());
  check_values(whole.model().bias.to_doubles(), parts.model().bias.to_doubles());
  CHECK(whole.model().weight.to_doubles()[0] > 0.5);
}

TEST_CASE("trainer: of steps and epochs, the earlier end counts, and it is said") {
  LineObjective objective;
  const auto steps_of = [&](std::int64_t steps, std::int64_t epochs) {
    TrainerOptions options = options_for(steps);
    options.epochs = epochs;
    std::string said;
    const TrainResult result =
        Trainer(objective, options, {.message = [&](std::string_view text) { said += text; }}).run();
    CHECK(contains(said, concat_text("training ends after ", result.step, " steps: steps = ", steps,
                                     ", and epochs = ", epochs, " take ")) == (steps > 0));
    CHECK(result.finished);
    return result.step;
  };
  CHECK(steps_of(0, 2) == 6);
  CHECK(steps_of(5, 2) == 5);
  CHECK(steps_of(7, 2) == 6);
}

TEST_CASE("trainer: it learns, and its records are what happened") {
  LineObjective objective;
  objective.with_auxiliary = true;
  std::vector<Progress> records;
  TrainerOptions options = options_for(0);
  options.epochs = 200;
  options.schedule = {ScheduleKind::cosine, 0.05, 10, 0};
  options.evaluate_every = 100;
  options.log_every = 50;
  const TrainResult result =
      Trainer(objective, options, {.progress = [&](const Progress& p) { records.push_back(p); }}).run();
  CHECK(result.step == 600);
  CHECK(result.finished);
  CHECK_FALSE(result.stopped_early);
  REQUIRE(records.size() == 12 + 6);
  CHECK(records.back().epoch == 200);
  CHECK(records.back().is_evaluation());
  CHECK(records[0].step == 50);
  CHECK(records[0].learning_rate == doctest::Approx(learning_rate_at(options.schedule, 50, 600)));
  REQUIRE(records[0].auxiliary.size() == 1);
  CHECK(records[0].auxiliary[0].first == "size");
  CHECK(records[0].tokens_per_second > 0);
  CHECK(records[0].gradient_norm > 0);
  CHECK(records.back().metrics[0].second < 0.2 * records[0].loss);
  CHECK(result.best_metric.has_value());
}

TEST_CASE("trainer: a schedule of one's own") {
  LineObjective objective;
  Doubles rates;
  TrainerOptions options = options_for(4);
  options.log_every = 1;
  options.learning_rate = [](std::int64_t step, std::int64_t steps) {
    return 0.1 * static_cast<double>(steps - step);
  };
  Trainer(objective, options, {.progress = [&](const Progress& p) { rates.push_back(p.learning_rate); }})
      .run();
  REQUIRE(rates.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(rates[static_cast<std::size_t>(i)] == doctest::Approx(0.1 * (3 - i)));
  options.learning_rate = [](std::int64_t, std::int64_t) { return -1.0; };
  CHECK_ERROR(Trainer(objective, options).run(), "the learning rate of step 1 is -1");
}

TEST_CASE("trainer: a training of minutes says after ten steps how long it will take, and its warm-up") {
  class SlowObjective : public LineObjective {
   public:
    Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return LineObjective::loss(epoch, batch, context);
    }
  };
  const auto said = [](std::int64_t warmup, std::int64_t stop_after, std::int64_t all = 1'000'000) {
    SlowObjective objective;
    std::string text;
    std::int64_t steps = 0;
    TrainerOptions options = options_for(all);
    options.log_every = options.evaluate_every = 0;
    options.schedule.warmup_steps = warmup;
    Trainer(objective, options,
            {.message = [&](std::string_view message) { text.append(message); },
             .stop_requested = [&] { return ++steps == stop_after; }})
        .run();
    return text;
  };
  const std::string text = said(100'000, 12);
  CHECK(contains(text, "; the warm-up alone, 100000 steps (training.schedule.warmup_steps), will take "));
  CHECK(text.starts_with("training will take another "));
  CHECK(contains(text, " for its 1000000 steps (training.steps)"));
  CHECK(std::ranges::count(text, ',') == std::ranges::count(said(100'000, 20), ','));  // once
  CHECK(said(100'000, 9).empty());
  CHECK_FALSE(contains(said(100, 12), "warm-up"));
  CHECK(said(10, 12, 20).empty());
}

TEST_CASE("trainer: the recorded loss is the mean over the tokens since the last record") {
  LineObjective objective({3, 5});
  Doubles losses;
  TrainerOptions options = options_for(2);
  options.log_every = 2;
  options.schedule.learning_rate = 1e-37;  // the weights stay
  Trainer(objective, options, {.progress = [&](const Progress& p) { losses.push_back(p.loss); }}).run();
  Context context = Context::inference();
  const double first = objective.loss(0, 0, context).sum.item(),
               second = objective.loss(0, 1, context).sum.item();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0] == doctest::Approx((first + second) / 8));
}

TEST_CASE("trainer: clipping bounds the step, and the norm is reported before it") {
  LineObjective objective;
  TrainerOptions options = options_for(1);
  options.optimizer = {.kind = OptimizerKind::sgd, .beta1 = 0};
  options.schedule.learning_rate = 1;
  options.clip_norm = 0.01;
  options.log_every = 1;
  double norm = 0;
  const Values before = objective.model().weight.to_doubles(), bias = objective.model().bias.to_doubles();
  Trainer(objective, options, {.progress = [&](const Progress& p) { norm = p.gradient_norm; }}).run();
  const Values after = objective.model().weight.to_doubles(),
               bias_after = objective.model().bias.to_doubles();
  const double moved = std::hypot(after[0] - before[0], after[1] - before[1], bias_after[0] - bias[0]);
  CHECK(moved == doctest::Approx(0.01));
  CHECK(norm > 0.01);
}

TEST_CASE("trainer: NaN stops it with the step and the parameter, weights untouched") {
  LineObjective objective;
  TrainerOptions options = options_for(5);
  options.log_every = 1;
  Values at_step_2;
  const auto poison = [&](const Progress& progress) {
    if (progress.step != 2) return;
    at_step_2 = objective.model().weight.to_doubles();
    objective.poison = std::numeric_limits<double>::quiet_NaN();
  };
  Trainer trainer(objective, options, {.progress = poison});
  CHECK_ERROR(trainer.run(), "step 3");
  CHECK(objective.model().weight.to_doubles() == at_step_2);
  CHECK_FALSE(gradient(objective.model().weight).defined());
  Trainer again(objective, options);
  CHECK_ERROR(again.run(), "the gradient of \"weight\" is not finite");
}

TEST_CASE("trainer: evaluations that are only shown choose nothing and change no bit") {
  struct Trained {
    std::vector<std::int64_t> evaluations;
    TrainResult result;
    Doubles weights;
  };
  const auto trained = [](std::int64_t shown, std::int64_t steps, double rate = 0.01) {
    LineObjective objective;
    TrainerOptions options = options_for(steps);
    options.schedule.learning_rate = rate;
    options.evaluate_every = 100;
    options.patience = 1;
    options.ema_decay = 0.9;
    options.shown_evaluations = shown;
    Trained found;
    const auto note = [&](const Progress& progress) {
      if (progress.is_evaluation()) found.evaluations.push_back(progress.step);
    };
    found.result = Trainer(objective, options, {.progress = note}).run();
    found.weights = objective.model().weight.to_doubles();
    return found;
  };
  using Steps = std::vector<std::int64_t>;
  const Trained alone = trained(0, 200), among = trained(5, 200);
  CHECK(alone.evaluations == Steps{100, 200});
  CHECK(among.evaluations == Steps{40, 80, 100, 120, 160, 200});
  CHECK(trained(5, 90).evaluations == Steps{20, 40, 60, 80, 90});
  CHECK(trained(2, 200).evaluations == Steps{100, 200});
  CHECK(among.weights == alone.weights);
  CHECK(among.result.best_step == alone.result.best_step);
  CHECK(among.result.best_metric == alone.result.best_metric);
  // Patience counts the others alone.
  CHECK(trained(9, 400, 1e-37).result.step == 200);
}

TEST_CASE("trainer: what is only shown is measured on a sample, and the others on all") {
  class Sampled : public LineObjective {
   public:
    Evaluation evaluate() override {
      Evaluation found = LineObjective::evaluate();
      samples.push_back(sample());
      if (sample() > 0) found.sample = sample(), found.all = 1000;
      return found;
    }
    std::vector<std::int64_t> samples;
  };
  Sampled objective;
  TrainerOptions options = options_for(90);
  options.evaluate_every = 50;
  options.shown_evaluations = 4;
  options.shown_sample = 7;
  std::string said;
  std::vector<std::int64_t> recorded;
  const TrainerCallbacks callbacks{.progress =
                                       [&](const Progress& progress) {
                                         if (progress.is_evaluation()) recorded.push_back(progress.sample);
                                       },
                                   .message = [&](std::string_view text) { said += text; }};
  Trainer(objective, options, callbacks).run();
  CHECK(objective.samples == std::vector<std::int64_t>{7, 7, 0, 7, 7, 0});
  CHECK(recorded == objective.samples);
  CHECK(said == "evaluations that only show progress read 7 of 1000 tokens (training.shown_sample)");
}

namespace {
/// What training says beside its progress.
std::string said_by(Objective& objective, const TrainerOptions& options) {
  std::string said;
  Trainer(objective, options, {.message = [&](std::string_view text) { said += std::string(text) + "\n"; }})
      .run();
  return said;
}

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}
}  // namespace

TEST_CASE("trainer: stops early when evaluations get no better, and says why, or that it cannot") {
  LineObjective objective;
  CHECK(said_by(objective, impatient(40))
            .starts_with("patience is 3, but evaluations of every 10 steps cannot"));
  const std::string said = said_by(objective, impatient(41));
  CHECK(times(said, "cannot stop") == 0);
  CHECK(times(said, "stopped early in step 40: 3 evaluations (the patience is 3) brought no improvement") ==
        1);
  const TrainResult result = Trainer(objective, impatient(100)).run();
  CHECK(result.stopped_early);
  CHECK(result.finished);
  CHECK(result.step == 40);
  CHECK(result.best_step == 40);  // equal to the others, and the latest
}

TEST_CASE("trainer: a warm-up and an accumulation beyond the training are said at the start") {
  LineObjective objective;
  TrainerOptions options = options_for(5);
  const std::int64_t batches = objective.batches(0);
  options.schedule.warmup_steps = 5;
  options.accumulation = batches;
  CHECK(said_by(objective, options).empty());
  options.schedule.warmup_steps = 6;
  options.accumulation = batches + 1;
  const std::string said = said_by(objective, options);
  CHECK(contains(said, "rises for 6 steps, but training has 5, so it never reaches 0.01"));
  CHECK(said.find(concat_text("a step takes ", batches + 1, " batches, but there are ", batches)) !=
        said.npos);
}

TEST_CASE("trainer: an evaluation that was only shown and was better than the one that is kept is named") {
  LineObjective objective;
  TrainerOptions options = options_for(60);
  options.evaluate_every = 60;
  options.shown_evaluations = 3;
  CHECK(said_by(objective, options).find("was only shown") == std::string::npos);
  options.learning_rate = [](std::int64_t step, std::int64_t) { return step <= 40 ? 0.01 : 10.0; };
  const std::string said = said_by(objective, options);
  CAPTURE(said);
  CHECK(contains(said, "keeping the weights of step 60, with loss "));
  CHECK(contains(said, "; step 40 had "));
}

TEST_CASE("trainer: a training that diverges says so, and has no best weights") {
  const TemporaryFolder folder;
  LineObjective objective;
  TrainerOptions options = options_for(30);
  options.schedule.learning_rate = 1e6;
  options.log_every = 5;  // the first record is far above the start already
  options.evaluate_every = 10;
  std::string said;
  std::vector<Progress> evaluations;
  RunFolder run = RunFolder::create(folder / "run", {.task = "count", .config = "{}"});
  const TrainResult result = Trainer(objective, options,
                                     {.progress =
                                          [&](const Progress& progress) {
                                            if (progress.is_evaluation()) evaluations.push_back(progress);
                                          },
                                      .message = [&](std::string_view text) { said += text; }})
                                 .run(&run);
  REQUIRE(evaluations.size() == 3);
  for (const Progress& evaluation : evaluations) {
    CHECK(std::isfinite(evaluation.metrics[0].second));  // the loss itself, by which the best is chosen
    CHECK(std::isinf(evaluation.metrics[1].second));
    CHECK_FALSE(contains(progress_text(evaluation), "(kept)"));
  }
  CHECK_FALSE(result.best_metric.has_value());
  CHECK_FALSE(std::filesystem::exists(folder / "run/best.safetensors"));
  CHECK(times(said, "training diverges: the loss is") == 1);
  CHECK(times(said, "no evaluation is worth keeping") == 1);
}

namespace {
/// A line whose evaluation says what a test wants it to say.
class ToldObjective : public LineObjective {
 public:
  Evaluation evaluate() override { return {metrics, metrics.front().name}; }
  std::vector<Metric> metrics;
};
}  // namespace

TEST_CASE("trainer: whether a metric moved is a question of the whole run, resumed or not") {
  const TemporaryFolder folder;
  const auto remarks = [&](double before, double after) {
    const std::filesystem::path path = folder / concat_text(before, '-', after);
    ToldObjective objective;
    TrainerOptions options = options_for(60);
    options.evaluate_every = 10;
    std::string said;
    std::int64_t stop = 30;
    const TrainerCallbacks callbacks{.message = [&](std::string_view text) { said += text; },
                                     .stop_requested = [&] { return --stop == 0; }};
    objective.metrics = {{"accuracy", before, true}, {"loss", 1, false}};
    {
      RunFolder run = RunFolder::create(path, {.task = "count", .config = "{}"});
      CHECK_FALSE(Trainer(objective, options, callbacks).run(&run).finished);
    }
    said.clear();
    stop = 1000;
    objective.metrics[0].value = after;
    RunFolder run = RunFolder::resume(path, {.task = "count", .config = "{}"}, {});
    CHECK(Trainer(objective, options, callbacks).run(&run).finished);
    return said;
  };
  CHECK(times(remarks(0, 0), "accuracy is 0 in all 6 evaluations") == 1);
  CHECK(times(remarks(0.5, 0.25), "in all") == 0);
}

TEST_CASE("trainer: of equal metrics the smaller loss is kept, then the later step") {
  struct Measured : LineObjective {
    Evaluation evaluate() override {
      const auto [accuracy, loss] = told[next++];
      return {{{"accuracy", accuracy, true}, {"loss", loss, false}}, "accuracy"};
    }
    std::vector<std::pair<double, double>> told;
    std::size_t next = 0;
  };
  std::string said;
  const auto trained = [&](std::vector<std::pair<double, double>> told, std::int64_t patience = 0) {
    Measured objective;
    objective.told = std::move(told);
    TrainerOptions options = options_for(10 * std::ssize(objective.told));
    options.evaluate_every = 10;
    options.patience = patience;
    said.clear();
    return Trainer(objective, options, {.message = [&](std::string_view text) { said += text; }}).run();
  };
  CHECK(trained({{0, 3}, {0, 1}, {0, 2}}).best_step == 20);
  CHECK(times(said, "accuracy is 0 in all 3 evaluations") == 1);
  CHECK(trained({{0.5, 1}, {0.5, 1}, {0.25, 1}}).best_step == 20);
  CHECK(times(said, "in all") == 0);
  CHECK(trained({{0.5, 2}, {0.75, 3}, {0.5, 1}}).best_step == 20);
  // What is only later is kept, but is no progress that patience would wait for.
  const TrainResult stopped = trained({{0, 1}, {0, 1}, {0, 1}, {0, 1}}, 2);
  CHECK(stopped.stopped_early);
  CHECK(stopped.step == 30);
  CHECK(trained({{0, 3}, {0, 2}, {0, 1}, {0, 0}}, 1).step == 40);
}

TEST_CASE("trainer: what diverged or is not finite is no best, whichever metric it is") {
  for (const char* name : {"loss", "perplexity"})
    for (const double bad : {std::nan(""), infinity, -infinity, 2e4}) {
      if (bad == 2e4 && name != std::string("loss")) continue;  // a perplexity may be that large
      ToldObjective objective;
      objective.metrics = {{"accuracy", 0.25, true}, {name, bad, false}};
      TrainerOptions options = options_for(20);
      options.evaluate_every = 10;
      CHECK(times(said_by(objective, options), "no evaluation is worth keeping") == 1);
    }
}

TEST_CASE("trainer: a best that is worse than the untrained model is remarked on") {
  TrainerOptions options = options_for(20);
  options.evaluate_every = 10;
  double start = 0;
  {
    LineObjective objective;
    Context context = Context::inference();
    start = objective.loss(0, 0, context).sum.item() / 3;
  }
  const auto said = [&](std::vector<Metric> metrics) {
    ToldObjective objective;
    objective.metrics = std::move(metrics);
    return times(said_by(objective, options), "training has made the model worse");
  };
  CHECK(said({{"loss", 2 * start, false}}) == 1);
  CHECK(said({{"loss", 1.2 * start, false}}) == 0);
  CHECK(said({{"accuracy", 0.9, true}, {"loss", 2 * start, false}}) == 0);  // too sure of what is wrong
  CHECK(said({{"accuracy", 0.9, true}, {"loss", 5 * start, false}}) == 1);
  CHECK(said({{"accuracy", 0.9, true}}) == 0);

  // Also where the training goes on in another process, after the best.
  const TemporaryFolder folder;
  RunFolder run = RunFolder::create(folder / "run", {.task = "count", .config = "{}"});
  ToldObjective objective;
  objective.metrics = {{"loss", 2 * start, false}};
  Trainer(objective, options).run(&run);
  options.steps = 30;
  objective.metrics = {{"loss", 3 * start, false}};
  std::string text;
  Trainer(objective, options, {.message = [&](std::string_view part) { text += part; }}).run(&run);
  CHECK(times(text, "the best weights, of step 20,") == 1);
}

TEST_CASE("trainer: weights that nothing can be computed with are not saved") {
  const TemporaryFolder folder;
  TinyObjective objective;
  TrainerOptions options = options_for(1);
  options.schedule.learning_rate = 1e30;
  RunFolder run = RunFolder::create(folder / "run", {.task = "count", .config = "{}"});
  Trainer trainer(objective, options);
  CHECK_ERROR(trainer.run(&run), "training diverged in step 1: the weights \"");
  CHECK_FALSE(run.has_checkpoint());
}

TEST_CASE("trainer: an ordinary training is not blamed") {
  TinyObjective objective;
  TrainerOptions options = options_for(30);
  options.log_every = 1;
  options.evaluate_every = 10;
  CHECK(said_by(objective, options).empty());
  LineObjective with_auxiliary;
  with_auxiliary.with_auxiliary = true;
  CHECK(said_by(with_auxiliary, options_for(10)).empty());
}

TEST_CASE("trainer: what dwarfs the loss of the task is said once, with what to change") {
  LineObjective objective;
  objective.with_auxiliary = true;
  objective.auxiliary_weight = 1000;
  TrainerOptions options = options_for(20);
  options.log_every = 1;
  options.schedule.learning_rate = 1e-6;
  const std::string said = said_by(objective, options);
  CHECK(times(said, "the auxiliary loss \"size\"") == 1);
  CHECK(contains(said, "lower its weight"));
  CHECK(times(said, "the gradient's norm") == 1);
  CHECK(contains(said, "a clip_norm of 1"));
  options.clip_norm = 1;
  CHECK(said_by(objective, options).find("clip_norm 1 clips nearly all") != std::string::npos);
}

namespace {

/// A line whose bias lies in a part, which its model may forget to register.
class LineOfParts : public Objective {
 public:
  explicit LineOfParts(bool registers) : model_(registers) {}
  Module& model() override { return model_; }
  std::int64_t batches(std::int64_t) override { return 1; }
  Loss loss(std::int64_t, std::int64_t, Context& context) override {
    const auto layer = [&](const Tensor& x, const Tensor&, Context&) { return model_.part(x); };
    const Tensor x = Tensor::ones({2, 3}) * model_.scale;
    return {sum(square(recomputes ? recomputed_layer(layer, x, {}, context) : layer(x, {}, context))), 2};
  }
  Evaluation evaluate() override { return {}; }
  bool recomputes = false;

 private:
  struct Model : Module {
    explicit Model(bool registers) {
      add_parameter("scale", scale, Tensor::ones({1}));
      if (registers) add_module("part", part);
    }
    Tensor scale;
    Initialiser initialiser{1};
    Linear part{3, 4, true, initialiser};
  } model_;
};

}  // namespace

TEST_CASE("trainer: a part that gets gradients but was never registered is remarked on, once") {
  const char* const remark = "are not parameters of the model are not trained: 2, of shape ";
  for (const bool recomputes : {false, true}) {
    CAPTURE(recomputes);
    LineOfParts forgetful(false), whole(true);
    forgetful.recomputes = whole.recomputes = recomputes;
    const std::string said = said_by(forgetful, options_for(3));
    CHECK(times(said, remark) == 1);
    CHECK(times(said, "[4, 3]") == 1);
    CHECK(times(said, "add_module()") == 1);
    CHECK(times(said_by(whole, options_for(3)), remark) == 0);
  }
}

TEST_CASE("gradient watch: what is left after the step of a loop of one's own") {
  LineModel model;
  const Tensor forgotten = parameter(Tensor::ones({3}, DType::f64));
  Optimizer optimizer(model.parameters(), {});
  const auto left_after_step = [&](const Tensor& loss) {
    const GradientWatch watch;
    backward(loss);
    optimizer.step(0.1);
    optimizer.zero_gradients();
    return watch.left();
  };
  CHECK(left_after_step(sum(model.weight) + sum(model.bias)).empty());
  for (int i = 0; i < 2; ++i)  // also where it holds that of a step before
    CHECK(left_after_step(sum(model.weight) + sum(forgotten) + sum(forgotten)) == std::vector<Shape>{{3}});
}

TEST_CASE("trainer: where nothing is recorded, it says so") {
  LineObjective objective;
  const NoGrad no_grad;
  CHECK_ERROR(Trainer(objective, options_for(3)).run(), "recording is off");
  CHECK_ERROR(backward(sum(objective.model().weight)), "recording is off");
}

TEST_CASE("trainer: what is shown by the clock changes no bits and stands in no file") {
  const TemporaryFolder folder;
  std::vector<std::string> logs;
  std::vector<std::vector<Floats>> weights;
  std::vector<std::size_t> shown;
  for (const double seconds : {0.0, 1e-9}) {
    TinyObjective objective;
    TrainerOptions options = options_for(20);
    options.log_every = 7;
    options.log_seconds = seconds;
    std::size_t records = 0;
    RunFolder run =
        RunFolder::create(folder / std::to_string(logs.size()), {.task = "count", .config = "{}"});
    Trainer(objective, options,
            {.progress =
                 [&](const Progress& progress) {
                   ++records;
                   CHECK(progress.loss > 0);
                 }})
        .run(&run);
    std::string log;
    for (Progress record : MetricsLog(run.folder(), 1 << 20).records()) {
      record.tokens_per_second = record.elapsed_seconds = 0;  // these are never the same
      log += metrics_line(record) + "\n";
    }
    logs.push_back(log);
    weights.push_back(weights_of(objective.model()));
    shown.push_back(records);
  }
  CHECK(shown == std::vector<std::size_t>{3, 20});
  CHECK(logs[0] == logs[1]);
  CHECK(times(logs[0], "\n") == 3);
  CHECK((weights[0] == weights[1]));
}

TEST_CASE("trainer: a batch counts what the task says") {
  class Classifier : public LineObjective {
    std::string unit() const override { return "texts"; }
  };
  Classifier objective;
  std::string text;
  Trainer(objective, options_for(5), {.progress = [&](const Progress& p) { text = progress_text(p); }}).run();
  CHECK(contains(text, " texts/s  "));
}

TEST_CASE("trainer: a task with nothing to evaluate trains, and says that it cannot stop early") {
  class Unmeasured : public LineObjective {
    Evaluation evaluate() override { return {}; }
  };
  TrainerOptions options = options_for(6);
  options.evaluate_every = 2;
  Unmeasured objective;
  CHECK(Trainer(objective, options).run(nullptr).finished);
  options.patience = 1;
  Unmeasured other;
  std::string said;
  CHECK(Trainer(other, options, {.message = [&](std::string_view text) { said += text; }})
            .run(nullptr)
            .finished);
  CHECK(said == "patience is 1, but there is nothing to evaluate: training stops at its last step");
}

TEST_CASE(
    "trainer: options out of range, and what f32 would take for 0, 1 or infinity, are refused by name") {
  using Change = void (*)(TrainerOptions&, double);
  struct Row {
    const char* says;
    Change change;
    Doubles values = {0};
  };
  const Doubles beyond = {1e-60, 1e-42, 1e39}, almost_one = {1 - 1e-9};
  const Row rows[] = {
      {"steps and epochs are 0", [](TrainerOptions& o, double) { o.steps = 0; }},
      {"evaluate_every", [](TrainerOptions& o, double) { o.patience = 2; }},
      {"accumulation is 0", [](TrainerOptions& o, double) { o.accumulation = 0; }},
      {"accumulation is 9223372036854775807", [](TrainerOptions& o, double) { o.accumulation = INT64_MAX; }},
      {"10 steps of 1073741824 batches", [](TrainerOptions& o, double) { o.accumulation = 1 << 30; }},
      {"steps is 1152921504606846976", [](TrainerOptions& o, double) { o.steps = std::int64_t{1} << 60; }},
      {"epochs is 1152921504606846976",
       [](TrainerOptions& o, double) {
         o.steps = 0;
         o.epochs = std::int64_t{1} << 60;
       }},
      {"ema_decay", [](TrainerOptions& o, double) { o.ema_decay = 1; }},
      {"log_seconds is -1", [](TrainerOptions& o, double) { o.log_seconds = -1; }},
      {"final_rate", [](TrainerOptions& o, double x) { o.schedule.final_rate = x; }, {1, 1e39}},
      {"epsilon", [](TrainerOptions& o, double x) { o.optimizer.epsilon = x; }, beyond},
      {"learning_rate", [](TrainerOptions& o, double x) { o.schedule.learning_rate = x; }, beyond},
      {"weight_decay", [](TrainerOptions& o, double x) { o.optimizer.weight_decay = x; }, beyond},
      {"clip_norm", [](TrainerOptions& o, double x) { o.clip_norm = x; }, beyond},
      {"beta1", [](TrainerOptions& o, double x) { o.optimizer.beta1 = x; }, almost_one},
      {"beta2", [](TrainerOptions& o, double x) { o.optimizer.beta2 = x; }, almost_one},
      {"learning_rate of part \"line\"",
       [](TrainerOptions& o, double x) {
         o.schedule.learning_rate = x;
         o.part_rates = {{"line", x}};
       },
       {1e-20}}};
  LineObjective objective;
  for (const Row& row : rows)
    for (const double value : row.values) {
      TrainerOptions options = options_for(10);
      row.change(options, value);
      CHECK_ERROR(Trainer(objective, options), row.says);
    }
  CHECK_NOTHROW(Trainer(objective, options_for(10)));
  TrainerOptions options = options_for(0);
  options.epochs = 1'000'000;
  LineObjective long_one(std::vector<std::int64_t>(3000, 1));
  CHECK_ERROR(Trainer(long_one, options), "give fewer epochs");

  Tensor weight = parameter(Tensor::ones({2}));
  for (const double bad : {1e-60, 1e39}) {
    const std::vector<ParameterGroup> rates = {{{{"w", &weight}}, bad, 0}},
                                      decays = {{{{"w", &weight}}, 1, bad}};
    CHECK_ERROR(Optimizer(rates, {}), "the rate of a group");
    CHECK_ERROR(Optimizer(decays, {}), "the weight_decay of a group");
    CHECK_ERROR(Optimizer({{"w", &weight}}, {}, {bad}), "the rate of a parameter");
  }
}

TEST_CASE("trainer: the weights are the same bits for 1, 2, 3 and 8 threads") {
  const int threads_before = cpu_threads();
  const TinySizes sizes{.vocabulary = 211, .width = 64, .heads = 4, .batch = 6, .length = 48, .batches = 3};
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::muon}) {
    std::vector<Floats> expected;
    for (int threads : {1, 2, 3, 8}) {
      set_cpu_threads(threads);
      TinyObjective objective(sizes);
      const auto initial = weights_of(objective.model());
      TrainerOptions options = options_for(6);
      options.optimizer.kind = kind;
      options.clip_norm = 0.5;
      options.ema_decay = 0.9;
      options.accumulation = 2;
      Trainer(objective, options).run();
      const auto weights = weights_of(objective.model());
      CHECK((weights != initial));
      if (expected.empty()) expected = weights;
      CAPTURE(threads);
      CHECK((weights == expected));
    }
  }
  set_cpu_threads(threads_before);
}

TEST_CASE("trainer: memory is flat over the steps") {
  TinyObjective objective({.batches = 1});
  std::vector<std::size_t> bytes;
  TrainerOptions options = options_for(12);
  options.log_every = 1;
  options.ema_decay = 0.99;
  options.clip_norm = 1;
  Trainer(objective, options,
          {.progress = [&](const Progress&) { bytes.push_back(memory_stats().current_bytes); }})
      .run();
  REQUIRE(bytes.size() == 12);
  CHECK(bytes[6] == bytes[2]);
  CHECK(bytes[11] == bytes[2]);
}

namespace {

const Progress some_progress{.step = 1200,
                             .steps = 10000,
                             .epoch = 3,
                             .loss = 2.3144,
                             .learning_rate = 5e-4,
                             .gradient_norm = 0.83,
                             .tokens_per_second = 12345,
                             .seconds_left = 245};

}  // namespace

TEST_CASE("progress: text, durations and the line on a terminal") {
  CHECK(duration_text(245) == "4:05");
  CHECK(duration_text(3723) == "1:02:03");
  CHECK(duration_text(2 * 86400 + 5) == "2d 00:00:05");
  CHECK(duration_text(std::nan("")) == "?");
  Progress progress = some_progress;
  CHECK(progress_text(progress) ==
        "step 1200/10000  epoch 3  loss 2.314  rate 5.00e-04  norm 0.83  12.3k tokens/s  4:05 left");

  std::ostringstream plain, terminal;
  ProgressPrinter(plain, {}).show(progress);
  CHECK(plain.str() == progress_text(progress) + "\n");
  ProgressPrinter printer(terminal, {.overwrite = true, .columns = 120});
  printer.show(progress);
  printer.show(progress);
  printer.message("a warning");
  printer.finish();
  const std::string text = terminal.str();
  CHECK(text.starts_with("[===>"));
  CHECK(contains(text, "\r\x1b[K[===>"));
  CHECK(text.ends_with("\r\x1b[Ka warning\n"));

  progress.metrics = {{"loss", 1.5}, {"bleu", 34.25}};
  progress.is_best = true;
  CHECK(progress_text(progress) == "step 1200/10000  evaluation  loss 1.5  bleu 34.25  (kept)");
  progress.metrics[1] = {"exact", 0.5};
  CHECK(progress_text(progress) == "step 1200/10000  evaluation  loss 1.5  exact match 0.5  (kept)");
  progress.how = "greedy search for 9 pairs";
  CHECK(progress_text(progress) ==
        "step 1200/10000  evaluation  loss 1.5  exact match 0.5  (greedy search for 9 pairs)  (kept)");
  CHECK(parse_metrics_line(metrics_line(progress)).how == progress.how);
}

TEST_CASE("progress: on a narrow terminal the time left is the last to go") {
  Progress progress = some_progress;
  progress.auxiliary = {{"clustering", 0.5}};
  const std::string whole = progress_text(progress);
  CHECK(contains(whole, "  clustering 0.5  "));
  CHECK(progress_text(progress, 200) == whole);
  CHECK(progress_text(progress, 80) ==
        "step 1200/10000  epoch 3  loss 2.314  rate 5.00e-04  12.3k tokens/s  4:05 left");
  CHECK(progress_text(progress, 40) == "step 1200/10000  loss 2.314  4:05 left");
  CHECK(progress_text(progress, 12) == "4:05 left");
  for (int columns = 10; columns < 120; ++columns) {
    std::ostringstream terminal;
    ProgressPrinter(terminal, {.overwrite = true, .columns = columns}).show(progress);
    CHECK(terminal.str().ends_with("4:05 left"));
    CHECK(terminal.str().size() < static_cast<std::size_t>(columns));
  }
}

TEST_CASE("progress: what would steer the terminal is shown, not obeyed") {
  std::ostringstream out;
  ProgressPrinter printer(out, {});
  printer.message("class \x1b[2J\x07 of\r\x7f\xc2\x9b \xe2\x80\xae \xff\nsecond line");
  CHECK(out.str() == "class \\x1b[2J\\x07 of\\x0d\\u007f\\u009b \\u202e \\xff\nsecond line\n");
  out.str("");
  Progress progress{.step = 1, .steps = 2};
  progress.metrics = {{"accuracy of \x1b]0;x", 1}};
  progress.is_best = true;
  ProgressPrinter(out, {.overwrite = true, .color = true}).show(progress);
  CHECK(out.str() == "\x1b[32mstep 1/2  evaluation  accuracy of \\x1b]0;x 1  (kept)\x1b[0m\n");
  CHECK(unicode::printable("Grüße, 世界 🙂") == "Grüße, 世界 🙂");
  CHECK(unicode::beginning("世界", 5) == "世");
  CHECK(unicode::beginning("世\xe7\x95", 4) == "世");  // a character that is cut already
  CHECK(unicode::shortened("世界", 5) == "世…");
  CHECK(unicode::shortened("世界", 6) == "世界");
  CHECK(unicode::columns("世界 e\u0301…") == 7);
  CHECK(unicode::printable(std::string_view("a\tb\0c", 5)) == "a\\x09b\\x00c");
  CHECK(unicode::printable_lines("a\tb\nc\r\xd8\x9c") == "a\tb\nc\\x0d\\u061c");
  for (char32_t c = 0; c < 0x3000; ++c) {
    CAPTURE(static_cast<unsigned>(c));
    std::string text;
    unicode::append(text, c);
    const bool steers = c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
                        (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    CHECK((unicode::printable(text) != text) == steers);
    // JSON stays the same JSON.
    const nlohmann::json json = text + "\"";
    CHECK(nlohmann::json::parse(unicode::printable(json.dump())) == json);
  }
  const std::string message = unicode::message_line("begin " + std::string(1'000'000, 'x') + " end");
  CHECK(message.size() < 4200);
  CHECK(message.starts_with("begin "));
  CHECK(message.ends_with(" end"));
  CHECK(contains(message, "996010 bytes are left out"));
  std::string smileys;
  for (int i = 0; i < 100'000; ++i) smileys += "\xf0\x9f\x99\x82";
  CHECK(unicode::find_invalid(unicode::message_line("a" + smileys)) == std::string::npos);
}

TEST_CASE("metrics: a line keeps what it was made from") {
  Progress progress = some_progress;
  progress.loss = 0.1;
  progress.elapsed_seconds = 3.5;
  progress.auxiliary = {{"clustering", 0.25}};
  const Progress back = parse_metrics_line(metrics_line(progress));
  CHECK(metrics_line(back) == metrics_line(progress));
  CHECK(back.loss == 0.1);
  CHECK(back.auxiliary == progress.auxiliary);
  progress.metrics = {{"bleu", std::nan("")}};
  progress.sample = 4096;
  CHECK(parse_metrics_line(metrics_line(progress)).sample == 4096);
  CHECK(contains(metrics_line(progress), "\"bleu\":null"));
  CHECK(std::isnan(parse_metrics_line(metrics_line(progress)).metrics[0].second));
  CHECK_ERROR(parse_metrics_line("{}"), "not a line of metrics");
}
