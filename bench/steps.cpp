// Times one training step (forward, backward, Adam) of a model, or writing text with it, and prints a line of
// JSON, for compare_torch.py and compare_gpu.py.

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "heed/core/device.h"
#include "heed/heed.h"
#include "heed/training/precision.h"

namespace {

using heed::Context;
using heed::Tensor;
using heed::Tokens;
using Json = nlohmann::ordered_json;

template <class Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The sizes of one model and its batch; compare_torch.py and compare_gpu.py have the same numbers.
struct Case {
  enum Model { ENCODER, TRANSLATION, LANGUAGE_MODEL, GPT2 } model;
  std::int64_t layers, width, heads, batch, length, vocabulary;
};

const std::map<std::string, Case> cases = {
    {"encoder", {Case::ENCODER, 2, 256, 4, 32, 128, 10'000}},
    {"translation", {Case::TRANSLATION, 3, 256, 4, 64, 24, 8'000}},
    {"language_model", {Case::LANGUAGE_MODEL, 4, 256, 8, 8, 256, 8'000}},
    {"long_text", {Case::ENCODER, 2, 256, 4, 2, 2048, 10'000}},
    {"gpt2", {Case::GPT2, 12, 768, 12, 4, 64, 50'257}},
    {"gpt2_124m", {Case::GPT2, 12, 768, 12, 8, 1024, 50'257}},
    {"small", {Case::GPT2, 4, 256, 8, 8, 256, 8'000}},
    {"tiny", {Case::GPT2, 1, 32, 2, 2, 16, 50}},
};

struct Flags {
  std::string name = "encoder", precision = "f32", record_to;
  heed::Device device;
  double dropout = 0.1;
  int threads = 2, repeat = 10, write = 0;
  bool int8 = false, bf16 = false, profile = false;

  const Case& chosen() const { return cases.at(name); }
};

/// A model, the losses of its batches, and the tensors of these batches by name.
struct Work {
  std::unique_ptr<heed::Module> model;
  std::vector<std::function<heed::Loss(Context&)>> losses;
  std::map<std::string, Tensor> tensors;
};

/// Sequences of equal length, without padding.
std::vector<Tokens> random_tokens(const Case& c, std::int64_t length, std::uint32_t stream) {
  const auto numbers = heed::uniform({c.batch, length}, 4, static_cast<double>(c.vocabulary), {1, 0, stream})
                           .to_vector<float>();
  std::vector<Tokens> sequences(static_cast<std::size_t>(c.batch));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto id = std::min<std::int64_t>(static_cast<std::int64_t>(numbers[i]), c.vocabulary - 1);
    sequences[i / static_cast<std::size_t>(length)].push_back(static_cast<std::int32_t>(id));
  }
  return sequences;
}

heed::TransformerConfig make_model_config(const Case& c, double dropout) {
  heed::TransformerConfig config;
  if (c.model == Case::GPT2) {  // Radford et al. 2019: norms before the layers, learned positions, biases
    config.decoder_layers = c.layers;
    config.target_vocabulary = c.vocabulary;
    config.norm = "pre";
    config.positions = "learned";
    config.tie_embeddings = "decoder";
    config.scale_embeddings = false;
    config.attention_bias = true;
    config.embedding_deviation = 0.02;
  } else {
    config.encoder_layers = config.decoder_layers = c.layers;
    config.source_vocabulary = config.target_vocabulary = c.vocabulary;
    config.classes = 2;
    config.tie_embeddings = "all";
  }
  config.width = c.width;
  config.heads = c.heads;
  config.feed_forward = 4 * c.width;
  config.max_length = c.length;
  config.activation = c.model == Case::TRANSLATION ? "relu" : "gelu";
  config.dropout = config.attention_dropout = config.activation_dropout = dropout;
  return config;
}

/// `make_batch` returns the batch of a number and its tensors by name.
template <class Model>
Work work_with(const Flags& flags, std::uint32_t batches, auto&& make_batch) {
  Work work;
  auto model = std::make_unique<Model>(make_model_config(flags.chosen(), flags.dropout));
  model->to(heed::DType::f32, flags.device);
  const double smoothing = flags.chosen().model == Case::TRANSLATION ? 0.1 : 0;
  for (std::uint32_t i = 0; i < batches; ++i) {
    auto [batch, tensors] = make_batch(i);
    for (const auto& [name, tensor] : std::map<std::string, Tensor>(tensors))
      work.tensors.emplace(heed::concat_text("batch.", i, '.', name), tensor);
    work.losses.push_back(
        [m = model.get(), batch, smoothing](Context& context) { return m->loss(batch, smoothing, context); });
  }
  work.model = std::move(model);
  return work;
}

Work make_work(const Flags& flags, std::uint32_t batches) {
  using Tensors = std::map<std::string, Tensor>;
  const Case& c = flags.chosen();
  if (c.model == Case::ENCODER)
    return work_with<heed::EncoderClassifier>(flags, batches, [&](std::uint32_t i) {
      std::vector<std::int32_t> labels(static_cast<std::size_t>(c.batch));
      for (std::size_t row = 0; row < labels.size(); ++row) labels[row] = static_cast<std::int32_t>(row % 2);
      auto batch = heed::make_classification_batch(random_tokens(c, c.length, 2 * i), labels, flags.device);
      return std::pair(batch, Tensors{{"ids", batch.input.ids}, {"targets", batch.labels}});
    });
  if (c.model == Case::TRANSLATION)
    return work_with<heed::EncoderDecoder>(flags, batches, [&](std::uint32_t i) {
      // The begin token makes the decoder's input one longer, and the end token makes the target as long.
      auto batch = heed::make_translation_batch(
          random_tokens(c, c.length, 2 * i), random_tokens(c, c.length - 1, 2 * i + 1), 1, 2, flags.device);
      return std::pair(
          batch,
          Tensors{{"ids", batch.source.ids}, {"shifted", batch.target.ids}, {"targets", batch.targets.ids}});
    });
  return work_with<heed::LanguageModel>(flags, batches, [&](std::uint32_t i) {
    auto batch = heed::make_language_model_batch(random_tokens(c, c.length + 1, 2 * i), flags.device);
    return std::pair(batch, Tensors{{"ids", batch.input.ids}, {"targets", batch.targets.ids}});
  });
}

/// A model and its optimizer; steps take the batches in turn.
class Training {
 public:
  explicit Training(const Flags& flags, std::uint32_t batches = 1)
      : precision_(heed::precision_from_name(flags.precision)),
        work_(make_work(flags, batches)),
        adam_(work_.model->parameters(), {}),
        scale_(Tensor::full({1}, 1024, heed::DType::f32, flags.device)),
        inverse_(Tensor::full({1}, 1.0 / 1024, heed::DType::f32, flags.device)) {}

  Tensor step() {
    Context context = Context::train(1, number_);
    const bool scaled = precision_ == heed::Precision::f16;
    Tensor objective;
    {
      const heed::LowerPrecision lower(*work_.model, precision_);
      const heed::ExpectedGradient expected(scaled ? scale_ : Tensor());
      objective = heed::objective(work_.losses[number_++ % work_.losses.size()](context), context);
      heed::backward(scaled ? objective * scale_ : objective);
      lower.collect_gradients(scaled ? inverse_ : Tensor());
    }
    adam_.step(1e-4);
    adam_.zero_gradients();
    return objective;
  }

  const Work& work() const { return work_; }

 private:
  heed::Precision precision_;
  Work work_;
  heed::Optimizer adam_;
  Tensor scale_, inverse_;  // of the loss in f16
  std::uint32_t number_ = 0;
};

/// Trains without dropout on eight batches in turn and writes a safetensors file for same_recipe.py: the
/// initial weights, the batches and the loss of every step. The learning rate is 1e-4.
void record(Flags flags) {
  flags.dropout = 0;
  Training training(flags, 8);
  heed::TensorFile file{training.work().tensors, {}};
  for (const heed::NamedTensor& parameter : training.work().model->parameters())
    file.tensors["initial." + parameter.name] = heed::contiguous(parameter.tensor->detach() * 1.0);
  std::vector<double> losses;
  for (int i = 0; i < flags.repeat; ++i) losses.push_back(training.step().item());
  file.tensors["losses"] = Tensor::from(losses, {flags.repeat});
  heed::save_safetensors(flags.record_to, file);
}

/// The peak memory of this process (VmHWM), in MB of 2^20 bytes.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes / 1024;
  }
  return 0;
}

/// Floating-point operations of the products in one step.
double step_flops(Training& training) {
  heed::start_profile();
  training.step();
  heed::stop_profile();
  double flops = 0;
  for (const heed::ProfileRow& row : heed::profile_rows()) flops += row.flops;
  return flops;
}

/// Operations per second of a product of two large square matrices, the best of several.
double best_product() {
  constexpr std::int64_t size = 2048;
  const heed::NoGrad no_grad;
  const Tensor a = heed::uniform({size, size}, -1, 1, {1, 0, 0});
  const Tensor b = heed::uniform({size, size}, -1, 1, {1, 0, 1});
  double best = 1e30;
  for (int i = 0; i < 8; ++i) best = std::min(best, seconds_of([&] { heed::matmul(a, b); }));
  return 2.0 * size * size * size / best;
}

/// On the CPU `gflops` are the operations of all products over the time of the step, and `share` is that over
/// the best product. A GPU is measured over 20 steps without waiting, and `host_ms` is what the host takes to
/// record a step.
void run(const Flags& flags) {
  const bool on_cpu = flags.device.type == heed::DeviceType::cpu;
  const int calls = on_cpu ? 1 : 20;
  Training training(flags);
  for (int i = 0; i < (on_cpu ? 3 : 50); ++i) training.step().item();  // compiles shaders, raises clocks
  if (flags.profile) heed::start_profile();
  std::vector<double> times, recordings;
  double loss = 0;
  for (int i = 0; i < flags.repeat; ++i)
    times.push_back(1e3 / calls * seconds_of([&] {
                      Tensor last;
                      recordings.push_back(1e3 / calls * seconds_of([&] {
                                             for (int call = 0; call < calls; ++call) last = training.step();
                                           }));
                      loss = last.item();
                    }));
  if (flags.profile) std::cerr << heed::profile_table();
  const double ms = median(times);
  Json line = {{"case", flags.name},
               {"ms", ms},
               {"peak_mb", peak_megabytes()},
               {"parameters", training.work().model->parameter_count()},
               {"loss", loss}};
  if (on_cpu) {
    const double reached = step_flops(training) / ms * 1e3, best = best_product();
    line.update({{"gflops", reached / 1e9}, {"best_product", best / 1e9}, {"share", reached / best}});
  } else {
    const auto peak = static_cast<double>(heed::memory_stats(flags.device).peak_bytes);
    line.update({{"host_ms", median(recordings)}, {"device_peak_mb", peak / (1 << 20)}});
  }
  std::cout << line << '\n';
}

/// Writes tokens one by one after a prompt; every token reads all weights once.
void write(const Flags& flags) {
  heed::TransformerConfig config = make_model_config(flags.chosen(), 0);
  config.max_length = 1024;
  heed::LanguageModel model(config);
  if (flags.int8) model.round_to_int8();
  if (flags.bf16) model.round_to_bf16();
  heed::Tokens prompt(256);
  std::iota(prompt.begin(), prompt.end(), 0);
  const heed::NoGrad no_grad;
  std::optional<heed::LanguageModelSteps> steps(std::in_place, model, prompt, 1, 1024);  // gets memory
  const double reading = seconds_of([&] { steps.emplace(model, prompt, 1, 1024); });
  const auto step = [&] { static_cast<void>(steps->step(Tensor::from({7}, {1})).to_doubles()); };
  for (int i = 0; i < 3; ++i) step();
  if (flags.profile) heed::start_profile();
  const double writing = seconds_of([&] {
    for (int i = 0; i < flags.write; ++i) step();
  });
  if (flags.profile) std::cerr << heed::profile_table();
  std::cout << Json{{"case", flags.name},
                    {"read_tokens_per_second", static_cast<double>(prompt.size()) / reading},
                    {"written_tokens_per_second", flags.write / writing}}
            << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times one training step (forward, backward, Adam), and prints a line of JSON.");
  Flags flags;
  std::string device = "cpu";
  app.add_option("--case", flags.name, "model and sizes")->check(CLI::IsMember(cases));
  app.add_option("--dropout", flags.dropout, "of sub-layers, attention weights and activations")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--precision", flags.precision, "of products; f16 on GPUs only")
      ->check(CLI::IsMember(heed::precision_names()));
  app.add_option("--device", device, "cpu, vulkan, vulkan:N or vulkan:NAME");
  app.add_option("--threads", flags.threads, "threads of the CPU backend")->check(CLI::Range(1, 1000));
  app.add_option("--repeat", flags.repeat, "measurements, after a warm-up")->check(CLI::Range(1, 100'000));
  app.add_option("--record", flags.record_to,
                 "write the input of same_recipe.py to this file instead of timing");
  app.add_option("--write", flags.write,
                 "time writing so many tokens after a prompt of 256, one text, by a case of GPT-2's shape")
      ->check(CLI::Range(1, 700));
  app.add_flag("--int8", flags.int8, "with --write: weights in 8 bits");
  app.add_flag("--bf16", flags.bf16, "with --write: weights in bf16")->excludes("--int8");
  app.add_flag("--profile", flags.profile, "print the time per kernel");
  try {
    app.parse(argc, argv);
    flags.device = heed::find_device(device);
    heed::set_cpu_threads(flags.threads);
    if (flags.write > 0) {
      write(flags);
    } else if (!flags.record_to.empty()) {
      record(flags);
    } else {
      run(flags);
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::cerr << "bench_steps: " << error.what() << '\n';
    return 1;
  }
}
