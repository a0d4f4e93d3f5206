// The attention kernels of the Vulkan backend against those of the CPU, on the same cases.

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "heed/core/backend.h"
#include "heed/tests/attention_cases.h"
#include "heed/tests/attention_large_logits.h"
#include "heed/tests/kernel_check.h"
#include "vulkan_compare.h"

using namespace heed;
using namespace heed::test;
using namespace heed::test::attention_cases;

namespace {

/// The same elements in memory of the same strides on another device.
Tensor moved(const Tensor& x, Device device) {
  if (!x.defined()) return x;
  std::int64_t last = 0;
  for (int axis = 0; axis < x.rank(); ++axis) last += (x.size(axis) - 1) * x.stride(axis);
  const Shape whole{x.count() > 0 ? last + 1 : 0};
  const Tensor memory = x.view(whole, {1}, x.offset());
  const Tensor there = x.dtype() == DType::i32 ? Tensor::from(memory.to_vector<std::int32_t>(), whole, device)
                                               : Tensor::from(memory.to_vector<float>(), whole, device);
  return there.view(x.shape(), x.strides(), 0);
}

/// Everything attention computes: out, sums, dquery, dkey, dvalue, and dbias where there is a bias.
std::vector<Tensor> results(const Case& c, const AttentionArgs& args, const Tensor& grad,
                            const Tensor& log_sum_exp_grad = {}) {
  const Device device = grad.device();
  const auto empty = [&](std::int64_t rows, std::int64_t width) {
    const Shape inside{c.batch, rows, c.heads, width};
    const Shape shape{c.batch, c.heads, rows, width};
    const Tensor memory = unwritten(c.heads_inside ? inside : shape, grad.dtype(), device);
    if (!c.heads_inside) return memory;
    return memory.view(shape, {rows * c.heads * width, width, c.heads * width, 1}, 0);
  };
  const Tensor out = empty(c.queries, c.value_width);
  const Tensor sums = unwritten({c.batch, c.heads, c.queries, 2}, DType::f32, device);
  const Tensor dquery = empty(c.queries, c.key_width), dkey = empty(c.keys, c.key_width),
               dvalue = empty(c.keys, c.value_width);
  const Backend& backend = backend_of(device);
  backend.attention.forward(args, out, sums);
  const Tensor dbias = args.bias.defined() ? unwritten(args.bias.shape(), grad.dtype(), device) : Tensor();
  backend.attention.backward(args, out, sums, grad, log_sum_exp_grad, dquery, dkey, dvalue, dbias);
  // What is not wanted changes no bit of the rest.
  const Tensor value_alone = empty(c.keys, c.value_width);
  const Tensor bias_alone = dbias.defined() ? unwritten(dbias.shape(), grad.dtype(), device) : Tensor();
  backend.attention.backward(args, out, sums, grad, log_sum_exp_grad, {}, {}, value_alone, bias_alone);
  CHECK(value_alone.to_doubles() == dvalue.to_doubles());
  if (dbias.defined()) CHECK(bias_alone.to_doubles() == dbias.to_doubles());
  std::vector<Tensor> all{out, sums, dquery, dkey, dvalue};
  if (dbias.defined()) all.push_back(dbias);
  return all;
}

const std::string names[] = {"out", "sums", "dquery", "dkey", "dvalue", "dbias"};

std::vector<Tensor> on_device(const Case& c, const Inputs& in, Device device,
                              const Tensor& log_sum_exp_grad = {}) {
  AttentionArgs args = in.args;
  args.query = moved(in.args.query, device);
  args.key = moved(in.args.key, device);
  args.value = moved(in.args.value, device);
  args.key_mask = moved(in.args.key_mask, device);
  args.mask = moved(in.args.mask, device);
  args.slopes = moved(in.args.slopes, device);
  args.bias = moved(in.args.bias, device);
  return results(c, args, moved(in.grad, device), log_sum_exp_grad);
}

void check_case(const Case& c, Device device, double tolerance = 1e-5) {
  CAPTURE(c.name);
  Inputs in;
  make_inputs(c, DType::f32, in);
  const std::vector<Tensor> expected = results(c, in.args, in.grad);
  const std::vector<Tensor> found = on_device(c, in, device);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error =
        test::worst_error(test::values_of<float>(found[i]), test::values_of<float>(expected[i]));
    CHECK_MESSAGE(error <= tolerance, c.name, ": ", names[i], " differs by ", error);
  }
}

/// Where logits are large, the weights of backward sum up to 1 nevertheless.
void check_large_sums(const Case& c, Device device, std::initializer_list<double> logits) {
  CAPTURE(c.name);
  CAPTURE(c.queries);
  for (const double largest : logits) {
    CAPTURE(largest);
    Inputs in;
    make_large_inputs<float>(c, largest, in);
    CHECK(row_sum_error(c, in, on_device(c, in, device)[4].to_doubles()) <= 4 * 0x1p-23);
  }
}

/// Values and gradients against f64 out of single ops, at large logits too.
void check_exact_inputs(const Case& c, Device device) {
  CAPTURE(c.name);
  for (const double largest : {1.0, 0x1p21, 0x1p100}) {
    CAPTURE(largest);
    Inputs in;
    make_exact_inputs<float>(c, largest, in);
    std::vector<std::vector<double>> found;
    for (const Tensor& x : on_device(c, in, device)) found.push_back(x.to_doubles());
    found.erase(found.begin() + 1);  // the sums
    check_composed(c, in, std::move(found), 2e-5);
  }
}

/// What the CPU's cases leave out: widths beyond a workgroup's registers, sizes around those of the tiles.
std::vector<Case> wide_cases() {
  return {
      {.name = "width 64", .batch = 1, .queries = 65, .keys = 130, .key_width = 64, .value_width = 64},
      {.name = "width 256",
       .batch = 1,
       .heads = 1,
       .queries = 70,
       .keys = 40,
       .key_width = 256,
       .value_width = 256},
      {.name = "wider than registers",
       .batch = 1,
       .heads = 1,
       .queries = 35,
       .keys = 66,
       .key_width = 20,
       .value_width = 300,
       .dropout = 0.2},
      {.name = "wide keys",
       .batch = 1,
       .heads = 1,
       .queries = 66,
       .keys = 20,
       .key_width = 301,
       .value_width = 3},
      {.name = "short, wide",
       .batch = 3,
       .queries = 9,
       .keys = 10,
       .key_width = 96,
       .value_width = 130,
       .heads_inside = true},
      {.name = "pattern of blocks larger than tiles",
       .batch = 1,
       .heads = 2,
       .queries = 150,
       .keys = 210,
       .causal = true,
       .dropout = 0.1,
       .pattern = pattern_of(70, true)},
      {.name = "no keys", .queries = 5, .keys = 0},
      {.name = "no queries", .queries = 0, .keys = 5},
      {.name = "no batch", .batch = 0},
      {.name = "bias without keys", .queries = 5, .keys = 0, .slopes = true, .bias = some_bias},
      {.name = "bias without a batch", .batch = 0, .slopes = true, .bias = some_bias, .bias_heads = 3},
      {.name = "bias, pattern of blocks larger than tiles",
       .batch = 2,
       .heads = 2,
       .queries = 150,
       .keys = 210,
       .causal = true,
       .pattern = pattern_of(70, true),
       .bias = some_bias,
       .bias_heads = 2},
  };
}

}  // namespace

TEST_CASE("vulkan attention: agrees with the CPU") {
  const auto device = vulkan_test_device();
  if (!device) return;
  // A case is checked in every way at once: Mesa's software device soon forgets what it compiled. The large
  // cases are for how the CPU cuts its tiles.
  for (const Case& c : cases()) {
    if (c.queries * c.keys < 40000) check_case(c, *device);
    if (c.queries * c.keys >= 3000) continue;
    if (c.dropout == 0) check_large_sums(c, *device, {2e6, 1e30});
    check_exact_inputs(c, *device);
  }
  for (const Case& c : wide_cases()) check_case(c, *device, 3e-5);
}

TEST_CASE("vulkan attention: the same bits each time") {
  const auto device = vulkan_test_device();
  if (!device) return;
  for (const Case& c : {Case{.name = "twice", .queries = 70, .keys = 70, .causal = true, .dropout = 0.1},
                        Case{.name = "twice with a bias", .queries = 70, .keys = 70, .bias = some_bias}}) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    const std::vector<Tensor> first = on_device(c, in, *device), second = on_device(c, in, *device);
    for (std::size_t i = 0; i < first.size(); ++i)
      CHECK(first[i].to_vector<float>() == second[i].to_vector<float>());
  }
}

TEST_CASE("vulkan attention: odd strides, masks and padding that lie apart") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Case c{.name = "strides", .queries = 9, .keys = 11, .key_width = 4, .value_width = 4};
  Inputs in;
  make_inputs(c, DType::f32, in);
  // A batch stride that follows from nothing, keys that all heads share, and a mask in columns.
  const auto numbers = test::tensor_of<float>(test::numbers(4000), {4000});
  in.args.query = numbers.view({2, 3, 9, 4}, {200, 45, 5, 1}, 3);
  in.args.key = numbers.view({2, 3, 11, 4}, {60, 0, 4, 1}, 8);
  in.args.value = numbers.view({2, 3, 11, 4}, {12 * 13, 4, 13, 1}, 1);
  const auto bits = [](std::int64_t count) {
    std::vector<std::int32_t> words;
    for (std::int64_t i = 0; i < count; ++i) words.push_back(i % 5 != 0 && i % 7 != 0);
    return Tensor::from(words, {count});
  };
  in.args.mask = bits(200).view({2, 3, 9, 11}, {0, 1, 3, 11}, 2);
  in.args.key_mask = bits(60).view({2, 11}, {1, 4}, 1);
  const std::vector<Tensor> expected = results(c, in.args, in.grad);
  const std::vector<Tensor> found = on_device(c, in, *device);
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(test::worst_error(test::values_of<float>(found[i]), test::values_of<float>(expected[i])) <= 1e-5);
}

TEST_CASE("vulkan attention: a gradient of log_sum_exp") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Case c{.name = "part", .queries = 18, .keys = 18, .causal = true, .key_mask = scattered_padding};
  Inputs in;
  make_inputs(c, DType::f32, in);
  const Tensor slope = test::tensor_of<float>(test::numbers(108), {2, 3, 18});
  const std::vector<Tensor> expected = results(c, in.args, in.grad, slope);
  const std::vector<Tensor> found = on_device(c, in, *device, moved(slope, *device));
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(test::worst_error(test::values_of<float>(found[i]), test::values_of<float>(expected[i])) <= 1e-5);
}

TEST_CASE("vulkan attention: lowered limits split the work and change no bit") {
  const auto device = vulkan_test_device();
  if (!device) return;
  Case c{.name = "split",
         .batch = 3,
         .heads = 4,
         .queries = 50,
         .keys = 40,
         .key_width = 16,
         .value_width = 16,
         .causal = true,
         .dropout = 0.1,
         .heads_inside = true,
         .key_mask = padded_ends,
         .mask = shared_mask};
  const auto check_splits = [&](std::uint64_t one_head) {
    CAPTURE(c.name);
    Inputs in;
    make_inputs(c, DType::f32, in);
    const std::vector<Tensor> whole = on_device(c, in, *device);
    const auto check_same = [&] {
      const std::vector<Tensor> parts = on_device(c, in, *device);
      for (std::size_t i = 0; i < parts.size(); ++i)
        CHECK_MESSAGE(parts[i].to_vector<float>() == whole[i].to_vector<float>(), names[i]);
    };
    {
      // One batch entry at a time.
      const test::LoweredLimits limits(*device, [](auto& l) { l.max_range = 16384; });
      check_same();
    }
    {
      const test::LoweredLimits limits(*device, [&](auto& l) { l.max_range = one_head; });  // after a copy
      check_same();
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

TEST_CASE("vulkan attention: a bias whose rows lie apart, or are one row") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Case c{.name = "strided", .queries = 6, .keys = 9, .bias = some_bias, .bias_heads = 3};
  Inputs in;
  make_inputs(c, DType::f32, in);
  const Tensor memory = test::tensor_of<float>(test::numbers(1000), {1000});
  for (const Shape& strides : {Shape{0, 200, 11, 1}, Shape{0, 9, 0, 1}}) {
    in.args.bias = memory.view({1, 3, 6, 9}, strides, 7);
    const std::vector<Tensor> expected = results(c, in.args, in.grad);
    const std::vector<Tensor> found = on_device(c, in, *device);
    for (std::size_t i = 0; i < found.size(); ++i)
      CHECK(test::worst_error(test::values_of<float>(found[i]), test::values_of<float>(expected[i])) <= 1e-5);
  }
}

TEST_CASE("vulkan attention: more workgroups than an axis has") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const test::LoweredLimits limits(*device, [](auto& l) { l.max_groups = 3; });
  check_case({.name = "tiles", .batch = 1, .heads = 1, .queries = 130, .keys = 200, .dropout = 0.1}, *device);
  check_case({.name = "heads", .batch = 2, .heads = 4, .queries = 17, .keys = 9, .causal = true}, *device);
  check_case({.name = "batch", .batch = 7, .heads = 1, .queries = 5, .keys = 9, .dropout = 0.1}, *device);
  check_case(
      {.name = "bias", .batch = 2, .heads = 1, .queries = 70, .keys = 130, .slopes = true, .bias = some_bias},
      *device);
}

TEST_CASE("vulkan attention: small workgroups and little shared memory") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Case c{
      .name = "small tiles", .queries = 70, .keys = 70, .dropout = 0.1, .pattern = pattern_of(30, true)};
  {
    const test::LoweredLimits limits(*device, [](auto& l) { l.max_invocations = 64; });
    check_case(c, *device);
  }
  const test::LoweredLimits limits(*device, [](auto& l) { l.shared_bytes = 8192; });
  check_case(c, *device);
}

TEST_CASE("vulkan attention: f16 and bf16 in memory, f32 in between") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const auto in_type = [](const Tensor& x, DType dtype) {
    const Tensor other = Tensor::empty(x.shape(), dtype, x.device());
    backend_of(x).copy(x, other);
    return other;
  };
  // 16 columns are read four at a time, 13 one by one.
  for (const auto& [dtype, width] :
       {std::pair{DType::f16, 16}, {DType::f16, 13}, {DType::bf16, 16}, {DType::bf16, 13}}) {
    const Case c{.name = "half",
                 .queries = 20,
                 .keys = 33,
                 .key_width = width,
                 .value_width = width,
                 .causal = true,
                 .dropout = 0.1,
                 .slopes = true,
                 .bias = some_bias,
                 .bias_heads = 3};
    Inputs in;
    make_inputs(c, DType::f32, in);
    AttentionArgs half = in.args, full = in.args;
    half.slopes = moved(in.args.slopes, *device);  // f32 beside halves
    // Both compute from the same rounded numbers.
    for (Tensor AttentionArgs::*x : std::initializer_list<Tensor AttentionArgs::*>{
             &AttentionArgs::query, &AttentionArgs::key, &AttentionArgs::value, &AttentionArgs::bias}) {
      half.*x = in_type(moved(in.args.*x, *device), dtype);
      full.*x = moved(in_type(half.*x, DType::f32), {});
    }
    const Tensor grad = in_type(moved(in.grad, *device), dtype);
    const std::vector<Tensor> expected = results(c, full, moved(in_type(grad, DType::f32), {}));
    const std::vector<Tensor> found = results(c, half, grad);
    const double rounding = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(names[i]);
      const Tensor widened = found[i].dtype() == DType::f32 ? found[i] : in_type(found[i], DType::f32);
      CHECK(test::worst_error(test::values_of<float>(widened), test::values_of<float>(expected[i])) <=
            4 * rounding);
    }
  }
}

TEST_CASE("vulkan attention: the weights of backward sum up to 1 for every size of tiles") {
  const auto device = vulkan_test_device();
  if (!device) return;
  for (const std::int64_t n : {1, 2, 3, 6, 7, 15, 16, 17, 31, 33, 60, 64, 65, 100, 127, 130})
    check_large_sums({.name = "size",
                      .batch = 1,
                      .heads = 2,
                      .queries = n,
                      .keys = n,
                      .key_width = 20,
                      .value_width = 16,
                      .causal = n % 2 == 0},
                     *device, {1.0, 3e3, 2e6, 3e10, 1e30});
}

TEST_CASE("vulkan attention: patterns that lie are refused") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Case c{.name = "pattern", .queries = 30, .keys = 30, .pattern = pattern_of(8, false)};
  Inputs in;
  make_inputs(c, DType::f32, in);
  in.pattern.keys = 31;
  CHECK_THROWS_AS(on_device(c, in, *device), Error);
  in.pattern.keys = 30;
  in.pattern.columns.data<std::int32_t>()[0] = 4;
  CHECK_THROWS_AS(on_device(c, in, *device), Error);
}
