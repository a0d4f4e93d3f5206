// Times ops one by one in f32. `case/...`: every row of the op case table at its small size, which shows the
// overhead of an op. `size/...`: the ops in which a Transformer spends its time, at its sizes.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heed/core/backend.h"
#include "heed/heed.h"
#include "heed/tests/cases/op_cases.h"

namespace {

using heed::Tensor;
using Function = std::function<Tensor(std::span<const Tensor>)>;

/// The work of one run of an op, for the rates in the table; 0 if unknown.
struct Amount {
  double flops = 0;
  double bytes = 0;
};

struct Subject {
  std::string name;
  Function function;
  std::vector<Tensor> inputs;
  bool differentiable = true;
  Amount forward, backward;  // backward: of the backward pass alone
};

void report(benchmark::State& state, double flops, double bytes) {
  const auto runs = static_cast<double>(state.iterations());
  if (flops > 0) state.counters["FLOP/s"] = benchmark::Counter(flops * runs, benchmark::Counter::kIsRate);
  if (bytes > 0) state.counters["B/s"] = benchmark::Counter(bytes * runs, benchmark::Counter::kIsRate);
}

void time_forward(benchmark::State& state, const Subject& subject) {
  for (auto _ : state) benchmark::DoNotOptimize(subject.function(subject.inputs));
  report(state, subject.forward.flops, subject.forward.bytes);
}

void time_both_ways(benchmark::State& state, const Subject& subject) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : subject.inputs)
    leaves.push_back(is_floating(input.dtype()) ? heed::parameter(input) : input);
  const Tensor seed = Tensor::ones(subject.function(leaves).shape());
  for (auto _ : state) {
    heed::backward(subject.function(leaves), seed);
    for (const Tensor& leaf : leaves) {
      if (leaf.tracked()) heed::zero_gradient(leaf);
    }
  }
  report(state, subject.forward.flops + subject.backward.flops,
         subject.forward.bytes + subject.backward.bytes);
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

void add_case_table() {
  for (const heed::OpCase& c : heed::op_cases()) {
    add({"case/" + c.name, c.function, heed::inputs_for(c, heed::DType::f32), c.differentiable, {}, {}});
  }
}

Tensor draw(const heed::Shape& shape) {
  static std::uint32_t stream = 0;
  return heed::uniform(shape, -1, 1, {7, 0, stream++});
}

Tensor draw_ids(std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(i * 7919 % below));
  return Tensor::from(ids, {count});
}

void add_products() {
  const auto product = [](const std::string& name, const heed::Shape& a, const heed::Shape& b) {
    const double flops = 2.0 * static_cast<double>(a.count() * b[b.rank() - 1]);
    add({"size/matmul/" + name,
         [](auto in) { return heed::matmul(in[0], in[1]); },
         {draw(a), draw(b)},
         true,
         {flops, 0},
         {2 * flops, 0}});
  };
  product("1024x1024x1024", {1024, 1024}, {1024, 1024});
  product("heads_128", {128, 128, 64}, {128, 64, 128});
  product("heads_24", {256, 24, 64}, {256, 64, 24});
  const double flops = 2.0 * 4096 * 256 * 1024;
  add({"size/linear/4096x256x1024",
       [](auto in) { return heed::linear(in[0], in[1], in[2]); },
       {draw({4096, 256}), draw({1024, 256}), draw({1024})},
       true,
       {flops, 0},
       {2 * flops, 0}});
}

void add_attention() {
  const auto attention = [](const std::string& name, const heed::Shape& shape,
                            const heed::AttentionOptions& options, bool biased = false) {
    const double flops = 4.0 * static_cast<double>(shape.count() * shape[2]) * (options.causal ? 0.5 : 1);
    std::vector<Tensor> inputs = {draw(shape), draw(shape), draw(shape)};
    if (biased) inputs.push_back(draw({1, shape[1], shape[2], shape[2]}));  // which gets a gradient
    add({"size/attention/" + name,
         [options, biased](auto in) {
           heed::AttentionOptions all = options;
           if (biased) all.bias = in[3];
           return heed::attention(in[0], in[1], in[2], all);
         },
         std::move(inputs),
         true,
         {flops, 0},
         {2.5 * flops, 0}});
  };
  heed::AttentionOptions plain, causal, slopes, dropout;
  causal.causal = slopes.causal = true;
  slopes.slopes = draw({8});
  dropout.dropout = 0.1;
  attention("128", {32, 4, 128, 64}, plain);
  attention("128_dropout", {32, 4, 128, 64}, dropout);
  attention("24", {64, 4, 24, 64}, plain);
  attention("256_causal", {8, 8, 256, 32}, causal);
  attention("2048", {1, 4, 2048, 64}, plain);
  attention("256_causal_slopes", {8, 8, 256, 32}, slopes);
  attention("256_causal_bias", {8, 8, 256, 32}, causal, true);
}

void add_row_by_row() {
  const double megabytes = 4096.0 * 1024 * 4;
  struct Rows {
    std::string name;
    Function function;
    int passes_forward, passes_backward;
  };
  const std::vector<Rows> all = {{"gelu", [](auto in) { return heed::gelu(in[0]); }, 2, 3},
                                 {"relu", [](auto in) { return heed::relu(in[0]); }, 2, 3},
                                 {"exp", [](auto in) { return heed::exp(in[0]); }, 2, 3},
                                 {"softmax", [](auto in) { return heed::softmax(in[0]); }, 2, 3},
                                 {"dropout",
                                  [](auto in) {
                                    return heed::dropout(in[0], 0.1, {1, 2, 3});
                                  },
                                  2, 2},
                                 {"sum", [](auto in) { return heed::sum(in[0], 1); }, 1, 1}};
  for (const auto& [name, function, forward, backward] : all)
    add({"size/" + name + "/4096x1024",
         function,
         {draw({4096, 1024})},
         true,
         {0, forward * megabytes},
         {0, backward * megabytes}});
  add({"size/layer_norm/8192x256",
       [](auto in) { return heed::layer_norm(in[0], in[1], in[2]); },
       {draw({8192, 256}), draw({256}), draw({256})},
       true,
       {0, megabytes},
       {0, 1.5 * megabytes}});
  add({"size/add/4096x1024",
       [](auto in) { return in[0] + in[1]; },
       {draw({4096, 1024}), draw({4096, 1024})},
       true,
       {0, 3 * megabytes},
       {}});
  const Tensor targets = draw_ids(1536, 8000);
  add({"size/cross_entropy/1536x8000",
       [targets](auto in) { return heed::cross_entropy(in[0], targets, 0.1); },
       {draw({1536, 8000})},
       true,
       {0, 1536.0 * 8000 * 4},
       {0, 2 * 1536.0 * 8000 * 4}});
  const Tensor ids = draw_ids(4096, 10'000);
  add({"size/embedding/4096_of_10000x256",
       [ids](auto in) { return heed::embedding(in[0], ids); },
       {draw({10'000, 256})},
       true,
       {0, 2 * 4096.0 * 256 * 4},
       {}});
}

void time_adam(benchmark::State& state) {
  const heed::NoGrad no_grad;
  constexpr std::int64_t count = 1 << 20;
  std::vector<std::vector<Tensor>> tensors(4);
  for (auto& list : tensors) {
    for (int i = 0; i < 8; ++i) list.push_back(heed::abs(draw({count})));
  }
  heed::OptimizerStep step;
  step.parameters = tensors[0];
  step.gradients = tensors[1];
  step.first_moment = tensors[2];
  step.second_moment = tensors[3];
  step.learning_rate = 1e-3;
  for (auto _ : state) heed::backend_of(heed::Device{}).adam(step);
  report(state, 0, 7.0 * 8 * count * 4);  // reads four lists, writes three
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add_products();
  add_attention();
  add_row_by_row();
  benchmark::RegisterBenchmark("size/adam/8388608", time_adam)->UseRealTime();
  add_case_table();
  benchmark::RunSpecifiedBenchmarks();
}
