// How an application uses heed as a library: its own operation, checked; its own network and training loop;
// the library's trainer reporting to the application's log; an error that arrives as an exception; and, with
// the folder of a run of any task, answers to lines:
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

/// An operation of our own, composed of the library's: silu(x A^T) * (x B^T) (SwiGLU, arXiv 2002.05202, eq.
/// 6). Its derivative follows from its parts.
heed::Tensor swiglu(const heed::Tensor& x, const heed::Tensor& gate, const heed::Tensor& bias,
                    const heed::Tensor& value) {
  return heed::silu(heed::linear(x, gate, bias)) * heed::linear(x, value);
}

/// Compares the gradients of swiglu with finite differences, in double precision.
bool swiglu_is_right() {
  const auto draw = [](const heed::Shape& shape, std::uint32_t stream) {
    return heed::uniform(shape, -1, 1, {2, 0, stream}, heed::DType::f64);
  };
  const auto result = heed::gradcheck([](auto in) { return swiglu(in[0], in[1], in[2], in[3]); },
                                      {draw({4, 3}, 0), draw({5, 3}, 1), draw({5}, 2), draw({5, 3}, 3)});
  std::printf("gradient check of swiglu: worst error %.1e\n", result.worst_error);
  return result.passed;
}

/// A module owns named parameters, so that optimizers and model files find them.
class Network : public heed::Module {
 public:
  explicit Network(std::int64_t hidden) {
    add_parameter("gate", gate_, heed::uniform({hidden, 2}, -2, 2, {3, 0, 0}));
    add_parameter("gate_bias", gate_bias_, heed::uniform({hidden}, -2, 2, {3, 0, 1}));
    add_parameter("value", value_, heed::uniform({hidden, 2}, -2, 2, {3, 0, 2}));
    add_parameter("output.weight", weight_, heed::uniform({1, hidden}, -0.1, 0.1, {3, 0, 3}));
    add_parameter("output.bias", bias_, heed::Tensor::zeros({1}));
  }
  heed::Tensor operator()(const heed::Tensor& x) const {
    return heed::linear(swiglu(x, gate_, gate_bias_, value_), weight_, bias_);
  }

 private:
  heed::Tensor gate_, gate_bias_, value_, weight_, bias_;
};

heed::Tensor mean_squared_error(const Network& network, const heed::Tensor& x) {
  return heed::mean(heed::square(network(x) - targets(x)));
}

/// A loop of our own: forward, backward, update.
double train_by_hand() {
  Network network(32);
  heed::Optimizer adam(network.parameters(), {});
  const heed::Tensor x = inputs();
  double loss = 0;
  for (int step = 1; step <= 400; ++step) {
    const heed::Tensor error = mean_squared_error(network, x);
    heed::backward(error);
    adam.step(1e-2);
    adam.zero_gradients();
    loss = error.item();
    if (step % 100 == 0) std::printf("own loop: step %d, loss %.5f\n", step, loss);
  }
  return loss;
}

/// The same network as a task of the library's trainer, which brings schedules, clipping and checkpoints.
class Regression : public heed::Task {
 public:
  heed::Module& model() override { return network_; }
  std::int64_t batches(std::int64_t) override { return 1; }
  heed::Loss loss(std::int64_t, std::int64_t, heed::Context&) override {
    return {mean_squared_error(network_, x_) * static_cast<double>(points), points};  // a sum and its count
  }

 private:
  Network network_{32};
  heed::Tensor x_ = inputs();
};

/// The library prints nothing: it reports to callbacks.
void train_with_trainer() {
  Regression task;
  heed::TrainerOptions options;
  options.steps = 400;
  options.log_every = 200;
  options.clip_norm = 1;
  options.schedule = {.kind = heed::ScheduleKind::cosine, .learning_rate = 1e-2, .warmup_steps = 20};
  heed::TrainerCallbacks callbacks;
  callbacks.progress = [](const heed::Progress& progress) {
    std::printf("trainer: step %lld, loss %.5f\n", static_cast<long long>(progress.step), progress.loss);
  };
  heed::Trainer(task, options, callbacks).run();
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
    const bool checked = swiglu_is_right() && mistakes_are_reported();
    train_with_trainer();
    const double loss = train_by_hand();
    return checked && loss < 0.01 ? 0 : 1;
  } catch (const heed::Error& error) {
    std::fprintf(stderr, "embed: %s\n", error.what());
    return 1;
  }
}
