// Times the ops in which a Transformer spends its time, KIND/TYPE/WHAT[/with_backward], at sizes that fill the
// device, also for compare_gpu.py. --device NAME: on a GPU, in halves too.

#include <benchmark/benchmark.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heed/core/backend.h"
#include "heed/core/device.h"
#include "heed/heed.h"

namespace {

using heed::DType;
using heed::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(std::span<const Tensor>)>;

heed::Device device;
bool on_gpu = false;  // one in hardware, which large sizes and halves suit

struct Subject {
  std::string name;
  std::function<Tensors()> inputs;
  double flops = 0, bytes = 0;  // of the forward pass, for the rates in the table; 0: unknown
  Function function;
  bool differentiable = true;
};

/// Times `work`, and waits for the device after the last call.
void time_calls(benchmark::State& state, const std::function<Tensor()>& work, double flops, double bytes) {
  auto left = state.max_iterations;
  for (auto _ : state) {
    const Tensor last = work();
    double element = 0;  // large enough for one element of any type
    if (--left == 0) heed::backend_of(last).download(last.view({1}, {1}, last.offset()), &element);
  }
  const auto runs = static_cast<double>(state.iterations());
  if (flops > 0) state.counters["FLOP/s"] = benchmark::Counter(flops * runs, benchmark::Counter::kIsRate);
  if (bytes > 0) state.counters["B/s"] = benchmark::Counter(bytes * runs, benchmark::Counter::kIsRate);
}

void time_forward(benchmark::State& state, const Subject& subject) {
  const Tensors inputs = subject.inputs();
  time_calls(
      state, [&] { return subject.function(inputs); }, subject.flops, subject.bytes);
}

void time_both_ways(benchmark::State& state, const Subject& subject) {
  Tensors leaves = subject.inputs();
  for (Tensor& leaf : leaves) {
    if (is_floating(leaf.dtype())) leaf = heed::parameter(leaf);
  }
  const Tensor result = subject.function(leaves).detach();
  const Tensor seed = Tensor::ones(result.shape(), result.dtype(), result.device());
  const auto pass = [&] {
    const Tensor output = subject.function(leaves);
    heed::backward(output, seed);
    for (const Tensor& leaf : leaves) {
      if (leaf.tracked()) heed::zero_gradient(leaf);
    }
    return output.detach();
  };
  time_calls(state, pass, 0, 0);
}

void add(Subject subject) {
  const auto shared = std::make_shared<const Subject>(std::move(subject));
  const auto each = [&](const char* pass, void (*time)(benchmark::State&, const Subject&)) {
    benchmark::RegisterBenchmark((shared->name + pass).c_str(), [shared, time](benchmark::State& state) {
      time(state, *shared);
    })->UseRealTime();
  };
  each("", time_forward);
  if (shared->differentiable) each("/with_backward", time_both_ways);
}

Tensor draw(const heed::Shape& shape, DType dtype = DType::f32) {
  static std::uint32_t stream = 0;
  const heed::NoGrad no_grad;
  return heed::cast(heed::uniform(shape, -1, 1, {7, 0, stream++}, DType::f32, device), dtype);
}

std::function<Tensors()> drawn(const std::vector<heed::Shape>& shapes, DType dtype = DType::f32) {
  return [shapes, dtype] {
    Tensors tensors;
    for (const heed::Shape& shape : shapes) tensors.push_back(draw(shape, dtype));
    return tensors;
  };
}

void add_attention(const std::string& name, const heed::Shape& shape, const heed::AttentionOptions& options,
                   DType dtype) {
  const double flops = 4.0 * static_cast<double>(shape.count() * shape[2]) * (options.causal ? 0.5 : 1);
  add({name, drawn(std::vector<heed::Shape>(3, shape), dtype), flops, 0,
       [options](auto in) { return heed::attention(in[0], in[1], in[2], options); }});
}

void add_kernels() {
  const std::int64_t rows = on_gpu ? 65'536 : 4096, width = 1024, tokens = on_gpu ? 8192 : 2048, heads = 12;
  heed::AttentionOptions causal;
  causal.causal = true;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (dtype != DType::f32 && !on_gpu) break;
    const auto name = [&](const char* kind, const auto& what) {
      return heed::concat_text(kind, '/', name_of(dtype), '/', what);
    };
    const auto add_forward = [&](const std::string& full, const std::vector<heed::Shape>& shapes,
                                 double flops, double bytes, const Function& function) {
      add({full, drawn(shapes, dtype), flops, bytes, function, false});
    };
    for (std::int64_t size = 512; size <= tokens; size *= 2) {
      // As in a layer: forward (x W'), gradient of the input (g W), gradient of the weights (g' x).
      const std::vector<heed::Shape> shapes(2, {size, size});
      const double flops = 2 * std::pow(static_cast<double>(size), 3);
      const std::string full = name("product", size);
      add_forward(full + "/nn", shapes, flops, 0, [](auto in) { return heed::matmul(in[0], in[1]); });
      add_forward(full + "/nt", shapes, flops, 0,
                  [](auto in) { return heed::matmul(in[0], heed::transpose(in[1], 0, 1)); });
      add_forward(full + "/tn", shapes, flops, 0,
                  [](auto in) { return heed::matmul(heed::transpose(in[0], 0, 1), in[1]); });
    }
    const double bytes = static_cast<double>(rows * width) * static_cast<double>(size_of(dtype));
    add_forward(name("memory", "copy"), {{rows, width}}, 0, 2 * bytes, [](auto in) {
      const Tensor out = Tensor::empty(in[0].shape(), in[0].dtype(), in[0].device());
      heed::backend_of(out).copy(in[0], out);
      return out;
    });
    add_forward(name("memory", "add"), {{rows, width}, {rows, width}}, 0, 3 * bytes,
                [](auto in) { return in[0] + in[1]; });
    add_forward(name("memory", "gelu"), {{rows, width}}, 0, 2 * bytes,
                [](auto in) { return heed::gelu(in[0]); });
    add_forward(name("memory", "layer_norm"), {{rows, width}, {width}, {width}}, 0, 2 * bytes,
                [](auto in) { return heed::layer_norm(in[0], in[1], in[2]); });
    add_forward(name("memory", "softmax"), {{rows, width}}, 0, 2 * bytes,
                [](auto in) { return heed::softmax(in[0]); });
    for (std::int64_t length = 512; length <= tokens; length *= 2)
      add_attention(name("attention", length), {tokens / length, heads, length, 64}, causal, dtype);
  }
}

void time_adam(benchmark::State& state) {
  const heed::NoGrad no_grad;
  constexpr std::int64_t count = 1 << 20;
  std::vector<Tensors> tensors(4);
  for (Tensors& list : tensors) {
    for (int i = 0; i < 8; ++i) list.push_back(heed::abs(draw({count})));
  }
  heed::OptimizerStep step;
  step.parameters = tensors[0];
  step.gradients = tensors[1];
  step.first_moment = tensors[2];
  step.second_moment = tensors[3];
  step.learning_rate = 1e-3;
  const auto work = [&] {
    heed::backend_of(device).adam(step);
    return tensors[0].back();
  };
  time_calls(state, work, 0, 7.0 * 8 * count * 4);  // reads four lists, writes three
}

/// Takes --device NAME out of the arguments and describes the device in the output.
void choose_device(int& argc, char** argv) {
  std::string name = "cpu";
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) != "--device") continue;
    name = argv[i + 1];
    std::copy(argv + i + 2, argv + argc, argv + i);
    argc -= 2;
  }
  device = heed::find_device(name);
  benchmark::AddCustomContext("device", std::string(name_of(device)));
  if (device.type != heed::DeviceType::vulkan) return;
  for (const heed::DeviceInfo& info : heed::vulkan_devices().devices) {
    if (info.device != device) continue;
    on_gpu = info.kind != "software";
    benchmark::AddCustomContext("device_name", info.name);
    for (const auto& [fact, value] : info.facts) benchmark::AddCustomContext(fact, value);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    choose_device(argc, argv);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    add_kernels();
    benchmark::RegisterBenchmark("memory/f32/adam", time_adam)->UseRealTime();
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::cerr << "ops_bench: " << error.what() << '\n';
    return 1;
  }
}
