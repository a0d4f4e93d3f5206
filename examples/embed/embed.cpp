// How an application uses heed as a library: a network of its own under the library's trainer, which reports
// to the application; an error that arrives as an exception; and, with the folder of a run of any task,
// answers to lines:
//
//   embed [RUN < lines]

#include <heed/heed.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace {

/// The function that the network learns.
constexpr std::int64_t points = 512;
heed::Tensor inputs() {
  return heed::uniform({points, 2}, -1, 1, {1, 0, 0});
}
heed::Tensor targets(const heed::Tensor& x) {
  return heed::sin(heed::slice(x, 1, 0, 1) * 3.0) * heed::slice(x, 1, 1, 2);
}

/// A module owns named parameters, so that optimizers and model files find them.
class Network : public heed::Module {
 public:
  heed::Tensor operator()(const heed::Tensor& x) const {
    return output_(heed::silu(gate_(x)) * value_(x));  // SwiGLU, arXiv 2002.05202, eq. 6
  }

 private:
  heed::Initialiser initialiser_{1, heed::LinearInit::fan_in};
  heed::Part<heed::Linear> gate_{*this, "gate", 2, 32, true, initialiser_};
  heed::Part<heed::Linear> value_{*this, "value", 2, 32, false, initialiser_};
  heed::Part<heed::Linear> output_{*this, "output", 32, 1, true, initialiser_};
};

/// An objective of the library's trainer, which brings schedules, clipping and checkpoints.
class Regression : public heed::Objective {
 public:
  heed::Module& model() override { return network_; }
  std::int64_t batches(std::int64_t) override { return 1; }
  heed::Loss loss(std::int64_t, std::int64_t, heed::Context&) override {
    return {heed::sum(heed::square(network_(x_) - targets(x_))), points};  // a sum and its count
  }

 private:
  Network network_;
  heed::Tensor x_ = inputs();
};

/// The library prints nothing: it reports to callbacks.
double train() {
  Regression objective;
  heed::TrainerOptions options;
  options.steps = 1000;
  options.log_every = 250;
  options.clip_norm = 1;
  options.schedule = {.kind = heed::ScheduleKind::cosine, .learning_rate = 5e-2, .warmup_steps = 20};
  heed::TrainerCallbacks callbacks;
  double loss = 1;
  callbacks.progress = [&](const heed::Progress& progress) {
    loss = progress.loss;
    std::printf("trainer: step %lld, loss %.5f\n", static_cast<long long>(progress.step), progress.loss);
  };
  heed::Trainer(objective, options, callbacks).run();
  return loss;
}

/// Answers the lines of standard input with what a sample program trained. One that it cannot answer costs
/// itself alone; without return_errors, predict() would throw.
void answer_lines(const char* folder) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  auto run = heed::Run::open(folder);
  for (const heed::Prediction& answer : run.predict(lines, {.return_errors = true}))
    std::cout << (answer.error.empty() ? answer.text : "error: " + answer.error) << '\n';
}

/// A mistake is an exception that says what was wrong, and the program goes on.
bool mistakes_are_reported() {
  try {
    heed::matmul(heed::Tensor::zeros({2, 3}), heed::Tensor::zeros({4, 5}));
  } catch (const heed::Error& error) {
    std::printf("an error, caught: %s\n", error.what());
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1) return answer_lines(argv[1]), 0;
    return mistakes_are_reported() && train() < 0.01 ? 0 : 1;
  } catch (const heed::Error& error) {
    std::fprintf(stderr, "embed: %s\n", error.what());
    return 1;
  }
}
