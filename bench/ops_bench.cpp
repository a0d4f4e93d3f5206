// Times ops one by one. `case/...`: every row of the op case table at its small size, which shows the overhead
// of an op. `size/...`: the ops in which a Transformer spends its time, at its sizes. With --device, on a GPU:
// `size/...`, and `gpu/...` at sizes that fill one, for compare_gpu.py.

#include <benchmark/benchmark.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heed/autograd/cases/op_cases.h"
#include "heed/core/backend.h"
#include "heed/core/device.h"
#include "heed/heed.h"

namespace {

using heed::DType;
using heed::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(std::span<const Tensor>)>;

heed::Device device;

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

Tensor draw_ids(std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(i * 7919 % below));
  return Tensor::from(ids, {count}, device);
}

const Function product = [](auto in) { return heed::matmul(in[0], in[1]); };
const Function sum_of_both = [](auto in) { return in[0] + in[1]; };
const Function gelu = [](auto in) { return heed::gelu(in[0]); };
const Function softmax = [](auto in) { return heed::softmax(in[0]); };
const Function layer_norm = [](auto in) { return heed::layer_norm(in[0], in[1], in[2]); };

void add_products() {
  const auto add_product = [](const std::string& name, const heed::Shape& a, const heed::Shape& b) {
    const double flops = 2.0 * static_cast<double>(a.count() * b[b.rank() - 1]);
    add({"size/matmul/" + name, drawn({a, b}), flops, 0, product});
  };
  add_product("1024x1024x1024", {1024, 1024}, {1024, 1024});
  add_product("heads_128", {128, 128, 64}, {128, 64, 128});
  add_product("heads_24", {256, 24, 64}, {256, 64, 24});
  add({"size/linear/4096x256x1024", drawn({{4096, 256}, {1024, 256}, {1024}}), 2.0 * 4096 * 256 * 1024, 0,
       [](auto in) { return heed::linear(in[0], in[1], in[2]); }});
}

void add_attention(const std::string& name, const heed::Shape& shape, const heed::AttentionOptions& options,
                   bool biased = false, DType dtype = DType::f32) {
  const double flops = 4.0 * static_cast<double>(shape.count() * shape[2]) * (options.causal ? 0.5 : 1);
  std::vector<heed::Shape> inputs(3, shape);
  if (biased) inputs.push_back({1, shape[1], shape[2], shape[2]});  // which gets a gradient
  add({name, drawn(inputs, dtype), flops, 0, [options, biased](auto in) {
         heed::AttentionOptions all = options;
         if (biased) all.bias = in[3];
         return heed::attention(in[0], in[1], in[2], all);
       }});
}

void add_attention() {
  heed::AttentionOptions plain, causal, slopes, dropout;
  causal.causal = slopes.causal = true;
  slopes.slopes = draw({8});
  dropout.dropout = 0.1;
  add_attention("size/attention/128", {32, 4, 128, 64}, plain);
  add_attention("size/attention/128_dropout", {32, 4, 128, 64}, dropout);
  add_attention("size/attention/24", {64, 4, 24, 64}, plain);
  add_attention("size/attention/256_causal", {8, 8, 256, 32}, causal);
  add_attention("size/attention/2048", {1, 4, 2048, 64}, plain);
  add_attention("size/attention/256_causal_slopes", {8, 8, 256, 32}, slopes);
  add_attention("size/attention/256_causal_bias", {8, 8, 256, 32}, causal, true);
}

void add_row_by_row() {
  const double bytes = 4096.0 * 1024 * 4;
  const auto add_rows = [&](const std::string& name, double passes, const Function& function) {
    add({"size/" + name + "/4096x1024", drawn({{4096, 1024}}), 0, passes * bytes, function});
  };
  add_rows("gelu", 2, gelu);
  add_rows("relu", 2, [](auto in) { return heed::relu(in[0]); });
  add_rows("exp", 2, [](auto in) { return heed::exp(in[0]); });
  add_rows("softmax", 2, softmax);
  add_rows("dropout", 2, [](auto in) { return heed::dropout(in[0], 0.1, {1, 2, 3}); });
  add_rows("sum", 1, [](auto in) { return heed::sum(in[0], 1); });
  add({"size/layer_norm/8192x256", drawn({{8192, 256}, {256}, {256}}), 0, bytes, layer_norm});
  add({"size/add/4096x1024", drawn({{4096, 1024}, {4096, 1024}}), 0, 3 * bytes, sum_of_both});
  add({"size/cross_entropy/1536x8000", drawn({{1536, 8000}}), 0, 1536.0 * 8000 * 4,
       [targets = draw_ids(1536, 8000)](auto in) { return heed::cross_entropy(in[0], targets, 0.1); }});
  add({"size/embedding/4096_of_10000x256", drawn({{10'000, 256}}), 0, 2 * 4096.0 * 256 * 4,
       [ids = draw_ids(4096, 10'000)](auto in) { return heed::embedding(in[0], ids); }});
}

void add_for_gpu() {
  const std::int64_t rows = 65'536, width = 1024, tokens = 8192, heads = 12;
  heed::AttentionOptions causal;
  causal.causal = true;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const auto name = [&](const char* kind, const auto& what) {
      return heed::concat_text("gpu/", kind, '/', name_of(dtype), '/', what);
    };
    const auto add_forward = [&](const std::string& full, const std::vector<heed::Shape>& shapes,
                                 double flops, double bytes, const Function& function) {
      add({full, drawn(shapes, dtype), flops, bytes, function, false});
    };
    for (const std::int64_t size : {512, 1024, 2048, 4096, 8192}) {
      // As in a layer: forward (x W'), gradient of the input (g W), gradient of the weights (g' x).
      const std::vector<heed::Shape> shapes(2, {size, size});
      const double flops = 2 * std::pow(static_cast<double>(size), 3);
      const std::string full = name("product", size);
      add_forward(full + "/nn", shapes, flops, 0, product);
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
    add_forward(name("memory", "add"), {{rows, width}, {rows, width}}, 0, 3 * bytes, sum_of_both);
    add_forward(name("memory", "gelu"), {{rows, width}}, 0, 2 * bytes, gelu);
    add_forward(name("memory", "layer_norm"), {{rows, width}, {width}, {width}}, 0, 2 * bytes, layer_norm);
    add_forward(name("memory", "softmax"), {{rows, width}}, 0, 2 * bytes, softmax);
    for (const std::int64_t length : {512, 1024, 2048, 4096, 8192})
      add_attention(name("attention", length), {tokens / length, heads, length, 64}, causal, false, dtype);
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
    add_products();
    add_attention();
    add_row_by_row();
    benchmark::RegisterBenchmark("size/adam/8388608", time_adam)->UseRealTime();
    if (device.type == heed::DeviceType::cpu) {
      for (const heed::OpCase& c : heed::op_cases())
        add({"case/" + c.name, [c] { return heed::inputs_for(c, DType::f32); }, 0, 0, c.function,
             c.differentiable});
    } else {
      add_for_gpu();
    }
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::cerr << "ops_bench: " << error.what() << '\n';
    return 1;
  }
}
