// The attention kernels of the Vulkan backend against those of the CPU, on the same cases.

#include "heed/tests/vulkan_attention.h"

using namespace heed::test::attention_cases;

namespace {

/// By the kernels of the call's device.
Numbers results(const Case& c, const Call& call, const Tensor& log_sum_exp_grad = {}) {
  const auto backward = [&](const AttentionArgs& args, const Tensor& out, const Tensor& sums,
                            const Tensor& grad, const Tensor& log_grad, const Tensor& dquery,
                            const Tensor& dkey, const Tensor& dvalue, const Tensor& dbias) {
    const Backend& backend = backend_of(grad);
    backend.attention.backward(args, out, sums, grad, log_grad, dquery, dkey, dvalue, dbias);
    // What is not wanted changes no bit of the rest.
    const auto unwritten_like = [](const Tensor& x) {
      return x.defined() ? unwritten(x.shape(), x.dtype(), x.device()) : x;
    };
    const Tensor value_alone = unwritten_like(dvalue), bias_alone = unwritten_like(dbias);
    backend.attention.backward(args, out, sums, grad, log_grad, {}, {}, value_alone, bias_alone);
    CHECK(value_alone.to_doubles() == dvalue.to_doubles());
    if (dbias.defined()) CHECK(bias_alone.to_doubles() == dbias.to_doubles());
  };
  return results_by(backend_of(call.grad).attention.forward, backward, c, call, log_sum_exp_grad);
}

Numbers on_device(const Case& c, const Inputs& in, Device device) {
  return results(c, call_on(device, in));
}

/// Against the CPU.
void check_inputs(const Case& c, const Inputs& in, Device device, double tolerance = 1e-5,
                  const Tensor& log_sum_exp_grad = {}) {
  CAPTURE(c.name);
  check_results(results(c, call_on(device, in), moved(log_sum_exp_grad, device)),
                results(c, {in.args, in.grad}, log_sum_exp_grad), tolerance, tolerance);
}

void check_case(const Case& c, Device device, double tolerance = 1e-5) {
  Inputs in;
  make_inputs(c, DType::f32, in);
  check_inputs(c, in, device, tolerance);
}

/// Where logits are large, the weights of backward sum up to 1 nevertheless.
void check_large_sums(const Case& c, Device device, std::initializer_list<double> logits) {
  CAPTURE_ALL(c.name, c.queries);
  for (const double largest : logits) {
    CAPTURE(largest);
    Inputs in;
    make_large_inputs<float>(c, largest, in);
    CHECK(row_sum_error(c, in, on_device(c, in, device)[4]) <= 4 * 0x1p-23);
  }
}

/// Values and gradients against f64 out of single ops, at large logits too.
void check_exact_inputs(const Case& c, Device device) {
  CAPTURE(c.name);
  for (const double largest : {1.0, 0x1p21, 0x1p100}) {
    CAPTURE(largest);
    Inputs in;
    make_exact_inputs<float>(c, largest, in);
    Numbers found = on_device(c, in, device);
    found.erase(found.begin() + 1);  // the sums
    check_composed(c, in, std::move(found), 2e-5);
  }
}

/// What the CPU's cases leave out: widths beyond a workgroup's registers, sizes around those of the tiles.
std::vector<Case> wide_cases() {
  std::vector<Case> all{
      sized("width 64", {1, 3, 65, 130, 64, 64}), sized("width 256", {1, 1, 70, 40, 256, 256}),
      sized("wide keys", {1, 1, 66, 20, 301, 3}), sized("no keys", {2, 3, 5, 0, 5, 4}),
      sized("no queries", {2, 3, 0, 5, 5, 4}),    sized("no batch", {0, 3, 7, 7, 5, 4})};
  const auto add = [&](const char* name, const std::array<std::int64_t, 6>& sizes, const auto& change) {
    all.push_back(sized(name, sizes, change));
  };
  add("wider than registers", {1, 1, 35, 66, 20, 300}, [](Case& c) { c.dropout = 0.2; });
  add("short, wide", {3, 3, 9, 10, 96, 130}, [](Case& c) { c.heads_inside = true; });
  const auto with_pattern = [](Case& c) {
    c.causal = true;
    c.pattern = pattern_of(70, true);
  };
  const auto with_bias = [](Case& c) {
    c.slopes = true;
    c.bias = some_bias;
    c.bias_heads = c.batch == 0 ? 3 : 1;
  };
  add("bias without keys", {2, 3, 5, 0, 5, 4}, with_bias);
  add("bias without a batch", {0, 3, 7, 7, 5, 4}, with_bias);
  add("pattern of blocks larger than tiles", {1, 2, 150, 210, 5, 4}, [&](Case& c) {
    with_pattern(c);
    c.dropout = 0.1;
  });
  add("bias, pattern of blocks larger than tiles", {2, 2, 150, 210, 5, 4}, [&](Case& c) {
    with_pattern(c);
    c.bias = some_bias;
    c.bias_heads = 2;
  });
  return all;
}

}  // namespace

VULKAN_TEST("vulkan attention: agrees with the CPU") {
  // A case is checked in every way at once: Mesa's software device soon forgets what it compiled. The large
  // cases are for how the CPU cuts its tiles.
  for (const Case& c : cases()) {
    if (c.queries * c.keys < 40000) check_case(c, device);
    if (c.queries * c.keys >= 3000) continue;
    if (c.dropout == 0) check_large_sums(c, device, {2e6, 1e30});
    check_exact_inputs(c, device);
  }
  for (const Case& c : wide_cases()) check_case(c, device, 3e-5);
}

VULKAN_TEST("vulkan attention: the same bits each time") {
  for (const Case& c : {Case{.name = "twice", .queries = 70, .keys = 70, .causal = true, .dropout = 0.1},
                        Case{.name = "twice with a bias", .queries = 70, .keys = 70, .bias = some_bias}}) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    CHECK(on_device(c, in, device) == on_device(c, in, device));
  }
}

VULKAN_TEST("vulkan attention: odd strides, masks and padding that lie apart") {
  const Case c{.name = "strides", .queries = 9, .keys = 11, .key_width = 4, .value_width = 4};
  Inputs in;
  make_inputs(c, DType::f32, in);
  // A batch stride that follows from nothing, keys that all heads share, and a mask in columns.
  const auto numbers = test::tensor_of<float>(test::numbers(4000), {4000});
  in.args.query = numbers.view({2, 3, 9, 4}, {200, 45, 5, 1}, 3);
  in.args.key = numbers.view({2, 3, 11, 4}, {60, 0, 4, 1}, 8);
  in.args.value = numbers.view({2, 3, 11, 4}, {12 * 13, 4, 13, 1}, 1);
  const auto bits = [](std::int64_t count) {
    Ints words;
    for (std::int64_t i = 0; i < count; ++i) words.push_back(i % 5 != 0 && i % 7 != 0);
    return Tensor::from(words, {count});
  };
  in.args.mask = bits(200).view({2, 3, 9, 11}, {0, 1, 3, 11}, 2);
  in.args.key_mask = bits(60).view({2, 11}, {1, 4}, 1);
  check_inputs(c, in, device);
}

VULKAN_TEST("vulkan attention: a gradient of log_sum_exp") {
  const Case c{.name = "part", .queries = 18, .keys = 18, .causal = true, .key_mask = scattered_padding};
  Inputs in;
  make_inputs(c, DType::f32, in);
  check_inputs(c, in, device, 1e-5, test::tensor_of<float>(test::numbers(108), {2, 3, 18}));
}

VULKAN_TEST("vulkan attention: lowered limits split the work and change no bit") {
  Case c = sized("split", {3, 4, 50, 40, 16, 16});
  c.causal = c.heads_inside = true;
  c.dropout = 0.1;
  c.key_mask = padded_ends;
  c.mask = shared_mask;
  const auto check_splits = [&](std::uint64_t one_head) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    const Numbers whole = on_device(c, in, device);
    for (const std::uint64_t most :
         {std::uint64_t{16384}, one_head}) {  // a batch entry at a time; after a copy
      CAPTURE(most);
      const test::LoweredLimits limits(device, [&](auto& l) { l.max_range = most; });
      check_results(on_device(c, in, device), whole, 0, 0);
    }
  };
  check_splits(6000);
  c.slopes = true;
  c.bias = bias_with_holes;
  c.bias_heads = 4;
  c.name = "split, bias per head";
  check_splits(9000);  // a head's bias of 8000 bytes has to fit
  c.bias_heads = 1;
  c.bias_batches = 3;
  c.name = "split, bias per sample";
  check_splits(9000);
}

VULKAN_TEST("vulkan attention: a bias whose rows lie apart, or are one row") {
  const Case c{.name = "strided", .queries = 6, .keys = 9, .bias = some_bias, .bias_heads = 3};
  Inputs in;
  make_inputs(c, DType::f32, in);
  const Tensor memory = test::tensor_of<float>(test::numbers(1000), {1000});
  for (const Shape& strides : {Shape{0, 200, 11, 1}, Shape{0, 9, 0, 1}}) {
    in.args.bias = memory.view({1, 3, 6, 9}, strides, 7);
    check_inputs(c, in, device);
  }
}

VULKAN_TEST("vulkan attention: more workgroups than an axis has") {
  const test::LoweredLimits limits(device, [](auto& l) { l.max_groups = 3; });
  check_case({.name = "tiles", .batch = 1, .heads = 1, .queries = 130, .keys = 200, .dropout = 0.1}, device);
  check_case({.name = "heads", .batch = 2, .heads = 4, .queries = 17, .keys = 9, .causal = true}, device);
  check_case({.name = "batch", .batch = 7, .heads = 1, .queries = 5, .keys = 9, .dropout = 0.1}, device);
  check_case(
      {.name = "bias", .batch = 2, .heads = 1, .queries = 70, .keys = 130, .slopes = true, .bias = some_bias},
      device);
}

VULKAN_TEST("vulkan attention: small workgroups and little shared memory") {
  const Case c{
      .name = "small tiles", .queries = 70, .keys = 70, .dropout = 0.1, .pattern = pattern_of(30, true)};
  {
    const test::LoweredLimits limits(device, [](auto& l) { l.max_invocations = 64; });
    check_case(c, device);
  }
  const test::LoweredLimits limits(device, [](auto& l) { l.shared_bytes = 8192; });
  check_case(c, device);
}

VULKAN_TEST("vulkan attention: f16 and bf16 in memory, f32 in between") {
  // 16 columns are read four at a time, 13 one by one.
  for (const auto& [dtype, width] :
       {std::pair{DType::f16, 16}, {DType::f16, 13}, {DType::bf16, 16}, {DType::bf16, 13}}) {
    const Case c = sized("half", {2, 3, 20, 33, width, width}, [](Case& half) {
      half.causal = half.slopes = true;
      half.dropout = 0.1;
      half.bias = some_bias;
      half.bias_heads = 3;
    });
    Inputs in;
    make_inputs(c, DType::f32, in);
    const Call half = call_on(device, in, dtype);
    check_results(results(c, half), results(c, on_cpu(in, half)), 4 * rounding_of(dtype),
                  4 * rounding_of(dtype));
  }
}

VULKAN_TEST("vulkan attention: the weights of backward sum up to 1 for every size of tiles") {
  for (const std::int64_t n : {1, 2, 3, 6, 7, 15, 16, 17, 31, 33, 60, 64, 65, 100, 127, 130})
    check_large_sums(sized("size", {1, 2, n, n, 20, 16}, [](Case& c) { c.causal = c.keys % 2 == 0; }), device,
                     {1.0, 3e3, 2e6, 3e10, 1e30});
}

VULKAN_TEST("vulkan attention: patterns that lie are refused") {
  const Case c{.name = "pattern", .queries = 30, .keys = 30, .pattern = pattern_of(8, false)};
  Inputs in;
  make_inputs(c, DType::f32, in);
  in.pattern.keys = 31;
  CHECK_THROWS_AS(on_device(c, in, device), Error);
  in.pattern.keys = 30;
  in.pattern.columns.data<std::int32_t>()[0] = 4;
  CHECK_THROWS_AS(on_device(c, in, device), Error);
}
