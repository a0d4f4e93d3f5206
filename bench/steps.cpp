// Times one full training step (forward, backward, Adam) of a model. Prints a line of JSON, for
// compare_torch.py.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "heed/core/cpu_threads.h"
#include "heed/heed.h"

namespace {

using heed::Context;
using heed::Tokens;

/// The sizes of one model and its batch; compare_torch.py has the same numbers.
struct Case {
  std::string name;
  std::int64_t layers, heads, batch, length, vocabulary;
  std::string activation;
  double smoothing;
};

const std::vector<Case> cases = {
    {"encoder", 2, 4, 32, 128, 10'000, "gelu", 0},
    {"translation", 3, 4, 64, 24, 8'000, "relu", 0.1},
    {"language_model", 4, 8, 8, 256, 8'000, "gelu", 0},
};

/// A model with the loss of its one batch.
struct Work {
  std::unique_ptr<heed::Module> model;
  std::function<heed::Loss(Context&)> loss;
};

/// Sequences of equal length, so that nothing is padded.
std::vector<Tokens> random_tokens(const Case& c, std::int64_t length, std::uint32_t stream) {
  const auto count = static_cast<std::size_t>(c.batch * length);
  const auto numbers = heed::uniform({c.batch, length}, 4, static_cast<double>(c.vocabulary), {1, 0, stream})
                           .to_vector<float>();
  std::vector<std::int32_t> ids(count);
  std::transform(numbers.begin(), numbers.end(), ids.begin(), [&](float x) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(static_cast<std::int64_t>(x), c.vocabulary - 1));
  });
  std::vector<Tokens> sequences;
  for (auto begin = ids.begin(); begin != ids.end(); begin += length)
    sequences.emplace_back(begin, begin + length);
  return sequences;
}

heed::TransformerConfig config_of(const Case& c, double dropout) {
  heed::TransformerConfig config;
  config.heads = c.heads;
  config.encoder_layers = config.decoder_layers = c.layers;
  config.source_vocabulary = config.target_vocabulary = c.vocabulary;
  config.classes = 2;
  config.max_length = c.length;
  config.dropout = config.attention_dropout = config.activation_dropout = dropout;
  config.activation = c.activation;
  config.tie_embeddings = "all";
  return config;
}

Work make_work(const Case& c, double dropout) {
  const heed::TransformerConfig config = config_of(c, dropout);
  if (c.name == "encoder") {
    auto model = std::make_unique<heed::EncoderClassifier>(config);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(c.batch));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 2);
    const auto batch = heed::make_classification_batch(random_tokens(c, c.length, 0), labels);
    auto loss = [m = model.get(), batch](Context& context) { return m->loss(batch, 0, context); };
    return {std::move(model), loss};
  }
  if (c.name == "translation") {
    auto model = std::make_unique<heed::EncoderDecoder>(config);
    // The begin mark makes the decoder's input one longer than the target, and the end mark the target as
    // long.
    const auto batch =
        heed::make_translation_batch(random_tokens(c, c.length, 0), random_tokens(c, c.length - 1, 1), 1, 2);
    auto loss = [m = model.get(), batch, c](Context& context) {
      return m->loss(batch, c.smoothing, context);
    };
    return {std::move(model), loss};
  }
  auto model = std::make_unique<heed::LanguageModel>(config);
  const auto batch = heed::make_language_model_batch(random_tokens(c, c.length + 1, 0));
  auto loss = [m = model.get(), batch](Context& context) { return m->loss(batch, 0, context); };
  return {std::move(model), loss};
}

/// The most memory this process ever held (VmHWM), in MB of 2^20 bytes.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes / 1024;
  }
  return 0;
}

void run(const Case& c, double dropout, int repeat, bool profile) {
  const Work work = make_work(c, dropout);
  heed::Optimizer adam(work.model->parameters(), {});
  double loss = 0;
  const auto step = [&](std::uint32_t number) {
    Context context = Context::train(1, number);
    const heed::Tensor objective = heed::objective(work.loss(context), context);
    heed::backward(objective);
    adam.step(1e-4);
    adam.zero_gradients();
    loss = objective.item();
  };
  constexpr std::uint32_t warm_up = 3;
  for (std::uint32_t i = 0; i < warm_up; ++i) step(i);
  if (profile) heed::start_profile();
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    step(warm_up + static_cast<std::uint32_t>(i));
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  if (profile) std::cerr << heed::profile_table();
  std::sort(times.begin(), times.end());
  const double median = (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  std::printf("{\"case\": \"%s\", \"ms\": %.2f, \"peak_mb\": %.1f, \"parameters\": %lld, \"loss\": %.6f}\n",
              c.name.c_str(), median, peak_megabytes(), static_cast<long long>(work.model->parameter_count()),
              loss);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times one training step (forward, backward, Adam) and prints a line of JSON.");
  std::string name = "encoder";
  double dropout = 0.1;
  int threads = 2;
  int repeat = 10;
  bool profile = false;
  app.add_option("--case", name, "encoder, translation or language_model")
      ->check(CLI::IsMember({"encoder", "translation", "language_model"}));
  app.add_option("--dropout", dropout, "on sub-layers, attention weights and activations")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--threads", threads, "threads of the CPU backend")->check(CLI::Range(1, 1000));
  app.add_option("--repeat", repeat, "timed steps, after three to warm up")->check(CLI::Range(1, 100'000));
  app.add_flag("--profile", profile, "print where the time went, per kernel");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    heed::set_cpu_threads(threads);
    const auto c =
        std::find_if(cases.begin(), cases.end(), [&](const Case& each) { return each.name == name; });
    run(*c, dropout, repeat, profile);
  } catch (const std::exception& error) {
    std::cerr << "bench_steps: " << error.what() << '\n';
    return 1;
  }
}
