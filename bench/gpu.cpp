// Times a device: matrix products, memory-bound kernels, attention, training steps, and the recording of an
// op. Prints a line of JSON per measurement, for compare_gpu.py.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "bench.h"
#include "heed/autograd/graph.h"
#include "heed/core/backend.h"
#include "heed/core/device.h"
#include "heed/core/profile.h"
#include "heed/heed.h"
#include "heed/training/checkpoint.h"
#include "heed/training/precision.h"
#ifdef HEED_HAS_VULKAN
#include "heed/backends/vulkan/gpu.h"
#endif

namespace {

using heed::DType;
using heed::Shape;
using heed::Tensor;
using Json = nlohmann::ordered_json;

struct Settings {
  heed::Device device;
  bool quick = false;
  bool count = false;  // record steps without running their kernels
  bool profile = false;
  double seconds = 0.5;  // per measurement
  double warm_up = 0.5;  // before it
  std::string weights;   // folder for the initial weights of the models; empty: none
};

void print(const Json& line) {
  std::cout << line.dump() << std::endl;
}

/// Waits until a device has computed a tensor.
void wait_for(const Tensor& x) {
  double element = 0;  // large enough for one element of any type
  heed::backend_of(x).download(x.view({1}, {1}, x.offset()), &element);
}

/// Milliseconds of one call of `work`, the median of five rounds of many calls.
double time_of(const Settings& settings, const std::function<Tensor()>& work) {
  // The first calls compile shaders; the second training step uses other shaders than the first.
  for (int i = 0; i < 3; ++i) wait_for(work());
  const auto one_call = [&] { return std::max(seconds_of([&] { wait_for(work()); }), 1e-7); };
  double once = one_call();
  if (settings.quick || settings.count) return 1000 * once;
  // An idle GPU takes tenths of a second to raise its clocks: work until it has.
  const double warm_until = now() + settings.warm_up;
  while (now() < warm_until) once = one_call();
  const int calls = std::clamp(static_cast<int>(settings.seconds / 5 / once), 1, 2000);
  std::vector<double> rounds(5);
  for (double& round : rounds)
    round = seconds_of([&] {
      Tensor last;
      for (int i = 0; i < calls; ++i) last = work();
      wait_for(last);
    });
  return 1000 * quantile(rounds, 0.5) / calls;
}

/// Numbers in [-1, 1) of any floating type, made on the host.
Tensor numbers(const Shape& shape, DType dtype, heed::Device device) {
  const Tensor x = heed::uniform(shape, -1, 1, {1, 0, 0});
  const Tensor y = Tensor::from(x.to_vector<float>(), shape, device);
  if (dtype == DType::f32) return y;
  const Tensor converted = Tensor::empty(shape, dtype, device);
  heed::backend_of(device).copy(y, converted);
  return converted;
}

std::vector<DType> types_of(heed::Device device) {
  if (device.type == heed::DeviceType::cpu || !heed::backend_of(device).copy) return {DType::f32};
  return {DType::f32, DType::f16, DType::bf16};
}

// --- matrix products ---------------------------------------------------------------------------------------

void bench_products(const Settings& settings) {
  const std::vector<std::int64_t> sizes =
      settings.quick ? std::vector<std::int64_t>{64} : std::vector<std::int64_t>{512, 1024, 2048, 4096, 8192};
  const heed::Backend& backend = heed::backend_of(settings.device);
  for (const DType dtype : types_of(settings.device)) {
    for (const std::int64_t size : sizes) {
      const Tensor a = numbers({size, size}, dtype, settings.device),
                   b = numbers({size, size}, dtype, settings.device);
      const Tensor out = Tensor::empty({size, size}, dtype, settings.device);
      // As in a layer, forward (x W'), input gradient (g W), weight gradient (g' x).
      for (const std::string layout : {"nt", "nn", "tn"}) {
        const auto read = [&](const Tensor& x, char how) {
          return how == 't' ? x.view({size, size}, {1, size}, 0) : x;
        };
        const double ms = time_of(settings, [&] {
          backend.matmul(read(a, layout[0]), read(b, layout[1]), {}, 0, out);
          return out;
        });
        const double flops =
            2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
        print({{"bench", "product"},
               {"type", name_of(dtype)},
               {"size", size},
               {"layout", layout},
               {"ms", ms},
               {"tflops", flops / ms / 1e9}});
      }
    }
  }
}

// --- memory-bound kernels ----------------------------------------------------------------------------------

/// A kernel over x [rows, width], and how often it moves all elements.
struct MemoryKernel {
  std::string name;
  double passes;
  bool provided;
  std::function<Tensor()> run;
};

std::vector<MemoryKernel> memory_kernels(const Settings& settings, DType dtype, std::int64_t rows,
                                         std::int64_t width) {
  const heed::Backend& backend = heed::backend_of(settings.device);
  const Shape shape{rows, width};
  const auto fresh = [&](const Shape& s, DType type) { return numbers(s, type, settings.device); };
  const Tensor x = fresh(shape, dtype), y = fresh(shape, dtype),
               out = Tensor::empty(shape, dtype, settings.device);
  const Tensor weight = fresh({width}, dtype), bias = fresh({width}, dtype);
  const Tensor mean = fresh({rows}, DType::f32), deviation = fresh({rows}, DType::f32);
  std::vector<MemoryKernel> kernels = {
      {"copy", 2, backend.copy != nullptr, [=, &backend] { return backend.copy(x, out), out; }},
      {"add", 3, backend.binary != nullptr,
       [=, &backend] { return backend.binary(heed::BinaryOp::add, x, y, out), out; }},
      {"gelu", 2, backend.unary != nullptr,
       [=, &backend] { return backend.unary(heed::UnaryOp::gelu, {}, x, out), out; }},
      {"layer_norm", 2, backend.layer_norm.forward != nullptr,
       [=, &backend] {
         return backend.layer_norm.forward(x, weight, bias, 1e-5, out, mean, deviation), out;
       }},
      {"softmax", 2, backend.softmax.forward != nullptr,
       [=, &backend] { return backend.softmax.forward(x, {}, false, out), out; }},
  };
  if (dtype == DType::f32) {
    const Tensor parameter = fresh(shape, dtype), gradient = fresh(shape, dtype);
    const Tensor first = heed::Tensor::from(std::vector<float>(static_cast<std::size_t>(rows * width)), shape,
                                            settings.device);
    const Tensor second = heed::Tensor::from(std::vector<float>(static_cast<std::size_t>(rows * width)),
                                             shape, settings.device);
    kernels.push_back({"adam", 7, backend.adam != nullptr, [=, &backend] {
                         heed::OptimizerStep step;
                         step.parameters = std::span(&parameter, 1);
                         step.gradients = std::span(&gradient, 1);
                         step.first_moment = std::span(&first, 1);
                         step.second_moment = std::span(&second, 1);
                         step.learning_rate = 1e-4;
                         backend.adam(step);
                         return parameter;
                       }});
  }
  return kernels;
}

void bench_memory(const Settings& settings) {
  const std::int64_t rows = settings.quick ? 16 : 64 << 10, width = settings.quick ? 64 : 1024;
  for (const DType dtype : types_of(settings.device)) {
    double copy_rate = 0;
    for (const MemoryKernel& kernel : memory_kernels(settings, dtype, rows, width)) {
      if (!kernel.provided) continue;
      const double ms = time_of(settings, kernel.run);
      const double bytes =
          kernel.passes * static_cast<double>(rows * width) * static_cast<double>(size_of(dtype));
      const double rate = bytes / ms / 1e6;
      if (kernel.name == "copy") copy_rate = rate;
      Json line = {{"bench", "memory"}, {"type", name_of(dtype)}, {"op", kernel.name},
                   {"rows", rows},      {"width", width},         {"ms", ms},
                   {"gb_per_s", rate}};
      if (copy_rate > 0) line["share_of_copy"] = rate / copy_rate;
      print(line);
    }
  }
}

// --- attention ---------------------------------------------------------------------------------------------

void bench_attention(const Settings& settings) {
  const heed::Backend& backend = heed::backend_of(settings.device);
  if (!backend.attention.forward || !backend.attention.backward) return;
  const std::vector<std::int64_t> lengths =
      settings.quick ? std::vector<std::int64_t>{32} : std::vector<std::int64_t>{512, 1024, 2048, 4096, 8192};
  const std::int64_t heads = settings.quick ? 2 : 12, width = 64, tokens = settings.quick ? 32 : 8192;
  for (const DType dtype : types_of(settings.device)) {
    for (const std::int64_t length : lengths) {
      const Shape shape{tokens / length, heads, length, width};
      heed::AttentionArgs args;
      args.query = numbers(shape, dtype, settings.device);
      args.key = numbers(shape, dtype, settings.device);
      args.value = numbers(shape, dtype, settings.device);
      args.scale = 0.125;
      args.causal = true;
      const auto empty = [&] { return Tensor::empty(shape, dtype, settings.device); };
      const Tensor out = empty(), dquery = empty(), dkey = empty(), dvalue = empty();
      const Tensor grad = numbers(shape, dtype, settings.device);
      const Tensor sums = Tensor::empty({shape[0], heads, length}, DType::f32, settings.device);
      const auto forward = [&] { return backend.attention.forward(args, out, sums), out; };
      const auto backward = [&] {
        return backend.attention.backward(args, out, sums, grad, {}, dquery, dkey, dvalue, {}), dquery;
      };
      const double forward_ms = time_of(settings, forward), backward_ms = time_of(settings, backward);
      const double ms = time_of(settings, [&] { return forward(), backward(); });
      // Half of 4 N^2 d forward and 10 N^2 d backward per head.
      const double flops = 7.0 * static_cast<double>(tokens * heads * length * width);
      print({{"bench", "attention"},
             {"type", name_of(dtype)},
             {"length", length},
             {"batch", shape[0]},
             {"heads", heads},
             {"width", width},
             {"forward_ms", forward_ms},
             {"backward_ms", backward_ms},
             {"ms", ms},
             {"tflops", flops / ms / 1e9}});
    }
  }
}

// --- training steps ----------------------------------------------------------------------------------------

/// The sizes of a language model and its batch; compare_gpu.py reads them from the output.
struct StepCase {
  std::string name;
  std::int64_t layers, width, heads, vocabulary, batch, length;
};

std::vector<StepCase> step_cases(bool quick) {
  // The second has the layers and parameters of GPT-2, for counting the work of a step on any device.
  if (quick) return {{"tiny", 1, 32, 2, 50, 2, 16}, {"gpt2_layers", 12, 16, 2, 50, 2, 16}};
  return {{"gpt2_124m", 12, 768, 12, 50257, 8, 1024}, {"small", 4, 256, 8, 8000, 8, 256}};
}

heed::TransformerConfig config_of(const StepCase& c) {
  heed::TransformerConfig config = gpt2_config(c.layers, c.width, c.heads, c.vocabulary, c.length);
  config.activation = "gelu";
  return config;
}

std::filesystem::path weights_file(const Settings& settings, const StepCase& c) {
  return std::filesystem::path(settings.weights) / (c.name + ".safetensors");
}

/// The kernels of one step, slowest first.
void print_kernels(const StepCase& c, heed::Precision precision, const std::function<Tensor()>& step) {
  heed::start_profile();
  wait_for(step());
  heed::stop_profile();
  for (const heed::ProfileRow& row : heed::profile_rows())
    print({{"bench", "kernel"},
           {"model", c.name},
           {"precision", name_of(precision)},
           {"kernel", row.name},
           {"calls", row.calls},
           {"ms", 1000 * row.seconds},
           {"gflops", row.flops / std::max(row.seconds, 1e-9) / 1e9},
           {"gb_per_s", row.bytes / std::max(row.seconds, 1e-9) / 1e9}});
}

/// The tokens that compare_gpu.py makes, too.
heed::LanguageModelBatch batch_of(const StepCase& c, heed::Device device) {
  std::vector<heed::Tokens> sequences(static_cast<std::size_t>(c.batch));
  for (std::int64_t row = 0; row < c.batch; ++row)
    for (std::int64_t i = 0; i <= c.length; ++i)
      sequences[static_cast<std::size_t>(row)].push_back(
          static_cast<std::int32_t>(4 + (row * 7919 + i * 104729) % (c.vocabulary - 4)));
  return heed::make_language_model_batch(sequences, device);
}

/// What a device was given to do so far; nothing of the CPU, which does not count it.
heed::DeviceCounters counters_of(heed::Device device) {
  return device.type == heed::DeviceType::vulkan ? heed::device_counters(device) : heed::DeviceCounters();
}

void bench_step(const Settings& settings, const StepCase& c, heed::Precision precision) {
  heed::LanguageModel model(config_of(c));
  model.to(DType::f32, settings.device);
  if (!settings.weights.empty()) heed::save_model(model, weights_file(settings, c));
  const heed::LanguageModelBatch batch = batch_of(c, settings.device);
  // PyTorch's optimizer, in the comparison, decays every parameter.
  heed::Optimizer adam(model.parameters(),
                       {.kind = heed::OptimizerKind::adamw, .weight_decay = 0.1, .decay_vectors = true});
  const Tensor scale = Tensor::from(std::vector<float>{1024}, {1}, settings.device);
  const Tensor inverse = Tensor::from(std::vector<float>{1.0f / 1024}, {1}, settings.device);
  std::uint32_t number = 0;
  double recording = 0;
  Tensor loss;
  const heed::DeviceCounters before = counters_of(settings.device);
  const auto step = [&] {
    const double start = now();
    heed::Context context = heed::Context::train(1, number++);
    {
      const heed::LowerPrecision lower(model, precision);
      const bool scaled = precision == heed::Precision::f16;
      const heed::ExpectedGradient expected(scaled ? scale : Tensor());
      loss = objective(model.loss(batch, 0, context), context);
      backward(scaled ? loss * scale : loss);
      lower.collect_gradients(scaled ? inverse : Tensor());
    }
    adam.step(1e-4);
    adam.zero_gradients();
    recording = now() - start;
    return loss;
  };
  const double first_loss = step().item();
  const double ms = time_of(settings, step);
  const std::uint32_t steps = number;
  const heed::DeviceCounters after = counters_of(settings.device);
  // The host's time of one step, including the device's if the host waits for it.
  Json line = {{"bench", "step"},
               {"model", c.name},
               {"precision", name_of(precision)},
               {"ms", ms},
               {"host_ms", 1000 * recording},
               {"tokens_per_s", 1000 * static_cast<double>(c.batch * c.length) / ms},
               {"parameters", model.parameter_count()},
               {"layers", c.layers},
               {"width", c.width},
               {"heads", c.heads},
               {"vocabulary", c.vocabulary},
               {"batch", c.batch},
               {"length", c.length},
               {"first_loss", first_loss},
               {"loss", loss.item()},
               {"peak_mb", static_cast<double>(heed::memory_stats(settings.device).peak_bytes) / (1 << 20)}};
  if (!settings.weights.empty()) line["weights"] = weights_file(settings, c).string();
  if (settings.device.type == heed::DeviceType::vulkan) {  // the work of a step
    line["dispatches"] = (after.dispatches - before.dispatches) / steps;
    line["barriers"] = (after.barriers - before.barriers) / steps;
    line["submissions"] = (after.submissions - before.submissions) / steps;
  }
  print(line);
  if (settings.profile) print_kernels(c, precision, step);
}

/// From now on a device gets its commands without the kernels, so that true sizes cost no arithmetic. Results
/// are meaningless.
void leave_out_kernels([[maybe_unused]] heed::Device device) {
#ifdef HEED_HAS_VULKAN
  heed::check(device.type == heed::DeviceType::vulkan, "--count is for Vulkan devices");
  heed::vulkan::gpu(device.index).replaceable_api().CmdDispatch = [](VkCommandBuffer, std::uint32_t,
                                                                     std::uint32_t, std::uint32_t) {};
#else
  heed::fail("--count: this build has no Vulkan");
#endif
}

void bench_steps(const Settings& settings) {
  if (settings.count) leave_out_kernels(settings.device);
  for (const StepCase& c : step_cases(settings.quick)) {
    bench_step(settings, c, heed::Precision::f32);
    if (types_of(settings.device).size() == 1) continue;
    bench_step(settings, c, heed::Precision::f16);
    bench_step(settings, c, heed::Precision::bf16);
  }
}

// --- recording ---------------------------------------------------------------------------------------------

/// The time of the host for one small op.
void bench_recording(const Settings& settings) {
  const Tensor x = numbers({32, 32}, DType::f32, settings.device);
  const Tensor out = Tensor::empty({32, 32}, DType::f32, settings.device);
  const heed::Backend& backend = heed::backend_of(settings.device);
  const int calls = settings.quick ? 20 : 2000;
  const auto run = [&] {
    for (int i = 0; i < calls; ++i) backend.matmul(x, x, {}, 0, out);
  };
  run();
  wait_for(out);
  const double start = now();
  run();
  const double recorded = now();
  wait_for(out);
  print({{"bench", "recording"},
         {"op", "matmul 32x32x32"},
         {"us_per_op", 1e6 * (recorded - start) / calls},
         {"us_per_op_until_done", 1e6 * (now() - start) / calls}});
}

void describe(heed::Device device) {
  Json line = {{"bench", "device"}, {"device", name_of(device)}};
  if (device.type == heed::DeviceType::vulkan) {
    for (const heed::DeviceInfo& info : heed::vulkan_devices().devices) {
      if (info.device != device) continue;
      line["name"] = info.name;
      line["kind"] = info.kind;
      for (const auto& [name, value] : info.facts) line[name] = value;
    }
    line["matrix hardware"] = heed::matrix_hardware_use(device);
  }
  print(line);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times a device and prints a line of JSON per measurement.");
  const std::vector<std::pair<std::string, void (*)(const Settings&)>> benches = {
      {"product", bench_products},
      {"memory", bench_memory},
      {"attention", bench_attention},
      {"step", bench_steps},
      {"recording", bench_recording}};
  std::vector<std::string> names, only;
  for (const auto& [name, run] : benches) names.push_back(name);
  std::string device = "vulkan";
  Settings settings;
  app.add_option("--device", device,
                 "cpu, vulkan, vulkan:N or vulkan:NAME (a software device must be named)");
  app.add_option("--only", only, "only these measurements")->delimiter(',')->check(CLI::IsMember(names));
  app.add_option("--seconds", settings.seconds, "per measurement")->check(CLI::Range(0.01, 100.0));
  app.add_option("--warm-up", settings.warm_up,
                 "seconds of work before each measurement, until clocks are up")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--weights", settings.weights,
                 "folder for the initial weights of the training steps, as safetensors")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--profile", settings.profile,
               "after each training step a line for each of its kernels: calls, time, rates");
  app.add_flag("--count", settings.count,
               "records training steps of true size without running the kernels: counts their work on any "
               "Vulkan device");
  app.add_flag("--quick", settings.quick, "tiny sizes, one call each, to test the benchmark");
  return run_program(app, argc, argv, "bench_gpu", [&] {
    settings.device = heed::find_device(device);
    describe(settings.device);
    if (settings.count) only = {"step"};
    for (const auto& [name, run] : benches)
      if (only.empty() || std::ranges::find(only, name) != only.end()) run(settings);
    return 0;
  });
}
