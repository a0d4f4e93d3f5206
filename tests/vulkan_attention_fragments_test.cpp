// Attention's kernels for matrix hardware, over fragments in shared memory, which any device has.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "heed/backends/vulkan/attention.h"
#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/core/backend.h"
#include "heed/tests/attention_cases.h"
#include "heed/tests/attention_large_logits.h"
#include "heed/tests/kernel_check.h"
#include "vulkan_compare.h"

using namespace heed;
using namespace heed::test;
using namespace heed::test::attention_cases;
using enum vulkan::TileKernel;

namespace {

Tensor converted(const Tensor& x, DType dtype) {
  const Tensor other = Tensor::empty(x.shape(), dtype, x.device());
  backend_of(x).copy(x, other);
  return other;
}

/// A case in a half type on a device, and the same rounded numbers in f32 on the CPU.
struct HalfInputs {
  Inputs in;
  AttentionArgs half, full;
  Tensor grad, full_grad;  ///< undefined without keys

  HalfInputs(const Case& c, DType dtype, Device device) {
    make_inputs(c, DType::f32, in);
    half = full = in.args;
    for (Tensor AttentionArgs::*x : std::initializer_list<Tensor AttentionArgs::*>{
             &AttentionArgs::query, &AttentionArgs::key, &AttentionArgs::value, &AttentionArgs::bias}) {
      const Tensor& from = in.args.*x;
      if (!from.defined()) continue;
      const Shape& shape = from.shape();
      // Heads inside stay inside: the kernel sees the strides of the case.
      const bool inside = c.heads_inside && x != &AttentionArgs::bias;
      const Shape memory = inside ? Shape{shape[0], shape[2], shape[1], shape[3]} : shape;
      const Tensor there = converted(
          Tensor::from(from.view(memory, contiguous_strides(memory), 0).to_vector<float>(), memory, device),
          dtype);
      half.*x = there.view(shape, from.strides(), 0);
      full.*x = Tensor::from(converted(there, DType::f32).to_vector<float>(), memory)
                    .view(shape, from.strides(), 0);
    }
    for (Tensor AttentionArgs::*x :
         {&AttentionArgs::key_mask, &AttentionArgs::mask, &AttentionArgs::slopes}) {
      const Tensor& from = in.args.*x;
      if (!from.defined()) continue;
      const bool words = from.dtype() == DType::i32;
      half.*x = words ? Tensor::from(from.to_vector<std::int32_t>(), from.shape(), device)
                      : Tensor::from(from.to_vector<float>(), from.shape(), device);
    }
    if (c.keys == 0) return;
    const Tensor values = Tensor::from(in.grad.to_vector<float>(), in.grad.shape(), device);
    grad = converted(values, dtype);
    full_grad = Tensor::from(converted(grad, DType::f32).to_vector<float>(), in.grad.shape());
  }
};

using Lists = std::vector<std::vector<double>>;

/// out, sums, and with a gradient of out dquery, dkey, dvalue, and dbias where there is a bias.
Lists results_of(const Case& c, const AttentionArgs& args, const Tensor& grad, const auto& forward,
                 const auto& backward) {
  const DType dtype = args.query.dtype();
  const Device device = args.query.device();
  const Tensor out = unwritten({c.batch, c.heads, c.queries, c.value_width}, dtype, device),
               sums = unwritten({c.batch, c.heads, c.queries, 2}, DType::f32, device);
  forward(args, out, sums);
  std::vector<Tensor> all{out, sums};
  if (grad.defined()) {
    for (const Tensor* x : {&args.query, &args.key, &args.value})
      all.push_back(unwritten(x->shape(), dtype, device));
    const Tensor dbias = args.bias.defined() ? unwritten(args.bias.shape(), dtype, device) : Tensor();
    backward(args, out, sums, grad, Tensor(), all[2], all[3], all[4], dbias);
    if (dbias.defined()) all.push_back(dbias);
  }
  Lists numbers;
  for (const Tensor& x : all) numbers.push_back(x.to_doubles());
  return numbers;
}

Lists results_by(const vulkan::FragmentChoice& choose, const Case& c, const AttentionArgs& args,
                 const Tensor& grad) {
  return results_of(
      c, args, grad, [&](const auto&... x) { vulkan::attention_forward_by(choose, x...); },
      [&](const auto&... x) { vulkan::attention_backward_by(choose, x...); });
}

std::optional<vulkan::FragmentKernel> no_fragments(const vulkan::AttentionCall&, vulkan::FragmentPass) {
  return {};
}

const std::string result_names[] = {"out", "sums", "dquery", "dkey", "dvalue", "dbias"};

/// Against the CPU in f32, and against ordinary arithmetic. Weights, their gradients and results are rounded
/// to the half type, statistics are not.
void check_fragments(const Case& c, DType dtype, Device device, vulkan::FragmentShape fragment = {}) {
  CAPTURE(c.name);
  CAPTURE(dtype);
  const HalfInputs inputs(c, dtype, device);
  const Backend& cpu = cpu_backend;
  const Lists expected =
      results_of(c, inputs.full, inputs.full_grad, cpu.attention.forward, cpu.attention.backward);
  const Lists ordinary = results_by(no_fragments, c, inputs.half, inputs.grad);
  const Lists found = results_by(vulkan::always(emulated, fragment), c, inputs.half, inputs.grad);
  const double rounding = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(result_names[i]);
    const double allowed = result_names[i] == "sums" ? 1e-5 : 4 * rounding;
    CHECK(test::worst_error(found[i], expected[i]) <= allowed);
    CHECK(test::worst_error(found[i], ordinary[i]) <= allowed);
  }
}

/// Every mask, bias and layout.
std::vector<Case> fragment_cases() {
  const Case base{.name = "base", .queries = 70, .keys = 45, .key_width = 32, .value_width = 32};
  std::vector<Case> all;
  const auto add = [&](const char* name, const auto& change) {
    Case c = base;
    c.name = name;
    change(c);
    all.push_back(c);
  };
  add("plain", [](Case&) {});
  add("causal, more queries than keys, heads inside", [](Case& c) { c.causal = c.heads_inside = true; });
  add("causal, more keys, odd widths", [](Case& c) {
    c.causal = true;
    c.queries = 37;
    c.keys = 101;
    c.key_width = 40;
    c.value_width = 24;
  });
  add("padding, one entry wholly", [](Case& c) { c.key_mask = scattered_padding; });
  add("mask, a query that sees nothing", [](Case& c) { c.mask = shared_mask; });
  add("mask of rows, slopes", [](Case& c) {
    c.mask = row_mask;
    c.slopes = true;
  });
  add("bias for all, slopes", [](Case& c) {
    c.bias = some_bias;
    c.slopes = true;
  });
  add("bias with holes, dropout", [](Case& c) {
    c.bias = bias_with_holes;
    c.bias_heads = 3;
    c.dropout = 0.2;
  });
  add("pattern per head, causal, padding", [](Case& c) {
    c.pattern = pattern_of(20, true);
    c.causal = true;
    c.key_mask = padded_ends;
    c.dropout = 0.1;
  });
  add("pattern of blocks larger than tiles", [](Case& c) {
    c.queries = 150;
    c.keys = 160;
    c.pattern = pattern_of(70, false);
  });
  add("no keys", [](Case& c) { c.keys = 0; });
  return all;
}

}  // namespace

TEST_CASE("vulkan attention by fragments: agrees with ordinary arithmetic and with the CPU in f32") {
  const auto device = vulkan_test_device();
  if (!device) return;
  DType dtype = DType::f16;
  for (const Case& c : fragment_cases()) {
    check_fragments(c, dtype, *device);
    dtype = dtype == DType::f16 ? DType::bf16 : DType::f16;
  }
  const Case wide{.name = "width 128",
                  .batch = 1,
                  .heads = 1,
                  .queries = 40,
                  .keys = 50,
                  .key_width = 128,
                  .value_width = 128,
                  .causal = true};
  check_fragments(wide, DType::f16, *device);
  check_fragments(wide, DType::bf16, *device);
}

TEST_CASE("vulkan attention at large logits in half types: the weights of backward sum up to 1") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const vulkan::FragmentChoice kernels[] = {no_fragments, vulkan::always(emulated, {})};
  const auto check_sums = [&](const Case& c, DType dtype) {
    CAPTURE(c.name);
    CAPTURE(c.queries);
    CAPTURE(dtype);
    HalfInputs inputs(c, dtype, *device);
    Inputs in;
    make_large_inputs<float>(c, 1, in);
    inputs.grad = converted(Tensor::from(in.grad.to_vector<float>(), in.grad.shape(), *device), dtype);
    for (const double largest : {2e6, 1e30}) {
      CAPTURE(largest);
      inputs.half.scale = largest;
      for (const vulkan::FragmentChoice& choose : kernels) {
        const Lists found = results_by(choose, c, inputs.half, inputs.grad);
        CHECK(row_sum_error(c, in, found[4]) <= 4 * (dtype == DType::f16 ? 0x1p-10 : 0x1p-7));
        for (const auto& numbers : found)
          CHECK(std::none_of(numbers.begin(), numbers.end(), [](double x) { return std::isnan(x); }));
      }
    }
  };
  for (const std::int64_t n : {17, 60, 130})
    check_sums({.name = "size", .queries = n, .keys = n, .key_width = 32, .value_width = 32}, DType::bf16);
  DType dtype = DType::f16;  // as above, so that pipelines are there
  for (const Case& c : fragment_cases()) {
    if (c.dropout == 0 && c.keys > 0) check_sums(c, dtype);
    dtype = dtype == DType::f16 ? DType::bf16 : DType::f16;
  }
}

TEST_CASE("vulkan attention by fragments: subgroups and fragments of other sizes") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const Case c{.name = "sizes",
               .batch = 1,
               .queries = 39,
               .keys = 90,
               .key_width = 24,
               .value_width = 48,
               .causal = true};
  for (const vulkan::FragmentShape fragment :
       {vulkan::FragmentShape{16, 16}, vulkan::FragmentShape{64, 16}, vulkan::FragmentShape{16, 8},
        vulkan::FragmentShape{16, 16, 2, 8, 16}, vulkan::FragmentShape{8, 8, 3, 8, 8}}) {
    CAPTURE(fragment.lanes);
    CAPTURE(fragment.columns);
    CAPTURE(fragment.rows);
    check_fragments(c, DType::f16, *device, fragment);
  }
}

TEST_CASE("vulkan attention by fragments: the same bits each time, whatever the limits") {
  const auto device = vulkan_test_device();
  if (!device) return;
  Case c{.name = "twice",
         .batch = 3,
         .heads = 4,
         .queries = 70,
         .keys = 40,
         .key_width = 16,
         .value_width = 16,
         .causal = true,
         .dropout = 0.1,
         .heads_inside = true,
         .key_mask = padded_ends};
  const HalfInputs inputs(c, DType::bf16, *device);
  const auto bits = [&] { return results_by(vulkan::always(emulated, {}), c, inputs.half, inputs.grad); };
  const auto whole = bits();
  CHECK(whole == bits());
  {
    const test::LoweredLimits limits(*device,
                                     [](auto& l) { l.max_range = 9000; });  // a batch entry at a time
    CHECK(whole == bits());
  }
  {
    const test::LoweredLimits limits(*device, [](auto& l) { l.max_groups = 3; });
    CHECK(whole[0] == results_by(vulkan::always(emulated, {}), c, inputs.half, Tensor())[0]);
  }
  // Fewer subgroups to a workgroup: rows do not know of each other.
  const test::LoweredLimits limits(*device, [](auto& l) { l.max_invocations = 64; });
  CHECK(whole == bits());
}

TEST_CASE("vulkan attention by fragments: the calls that they take") {
  const auto device = vulkan_test_device();
  if (!device) return;
  const auto takes = [&](const Case& c, DType dtype = DType::f16, std::int64_t skip = 0) {
    Inputs in;
    make_inputs(c, DType::f32, in);
    const auto operand = [&](std::int64_t rows, std::int64_t width) {
      const Shape shape{c.batch, c.heads, rows, width};
      const Tensor memory = Tensor::zeros({shape.count() + skip}, dtype, *device);
      return memory.view(shape, contiguous_strides(shape), skip);
    };
    in.args.query = operand(c.queries, c.key_width);
    in.args.key = operand(c.keys, c.key_width);
    in.args.value = operand(c.keys, c.value_width);
    const vulkan::AttentionCall call(in.args);
    return vulkan::fragment_group(call, vulkan::FragmentPass::forward, {}).has_value();
  };
  const Case c{.name = "taken", .queries = 20, .keys = 20, .key_width = 32, .value_width = 32};
  const auto with = [&](const auto& change) {
    Case other = c;
    change(other);
    return takes(other);
  };
  for (const std::int64_t width : {16, 40, 64, 96, 128}) {
    CAPTURE(width);
    CHECK(with([&](Case& other) { other.key_width = other.value_width = width; }));
  }
  CHECK(takes(c));
  CHECK(takes(c, DType::bf16));
  CHECK(takes(c, DType::f16, 8));
  CHECK_FALSE(takes(c, DType::f16, 4));
  CHECK_FALSE(takes(c, DType::f32));
  CHECK_FALSE(with([](Case& other) { other.queries = 15; }));
  CHECK_FALSE(with([](Case& other) { other.key_width = 136; }));
  CHECK_FALSE(with([](Case& other) { other.value_width = 20; }));
  CHECK_FALSE(with([](Case& other) { other.pattern = pattern_of(8, false); }));
  const test::LoweredLimits limits(*device, [](auto& l) { l.shared_bytes = 4096; });
  CHECK_FALSE(takes(c));
}

TEST_CASE("vulkan attention by fragments: variants are tested before they are used") {
  const auto device = vulkan_test_device();
  if (!device) return;
  vulkan::Gpu& gpu = vulkan::gpu(device->index);
  const auto problem = [&](const vulkan::PassVariant& variant) {
    return vulkan::problem_of_attention(gpu, emulated, variant);
  };
  using enum vulkan::FragmentPass;
  CHECK(problem({forward, DType::f16, 32, 64, {32, 16, 1}}) == "");
  CHECK(problem({forward, DType::bf16, 64, 24, {64, 16, 2}}) == "");
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CHECK(problem({dquery, dtype, 32, 40, {32, 16, 2}}) == "");
    CHECK(problem({dkey, dtype, 40, 32, {32, 16, 2}}) == "");
    CHECK(problem({dbias, dtype, 24, 32, {32, 16, 2}}) == "");
  }
  CHECK(problem({forward, DType::f16, 32, 64, {16, 8, 2}}) == "");
  CHECK(problem({dkey, DType::f16, 32, 64, {16, 8, 2}}) == "");
  CHECK(problem({forward, DType::f16, 128, 128, {}}) == "");
  CHECK(problem({dquery, DType::bf16, 128, 128, {}}) == "");
  // A driver that only pretends to compute.
  static PFN_vkCmdDispatch real;
  real = gpu.api().CmdDispatch;
  static int left;
  left = 3;  // the kernel under test comes after its outputs were cleared
  gpu.replaceable_api().CmdDispatch = [](VkCommandBuffer buffer, std::uint32_t x, std::uint32_t y,
                                         std::uint32_t z) {
    if (--left != 0) real(buffer, x, y, z);
  };
  std::string said = problem({forward, DType::f16, 32, 64, {32, 16, 1}});
  CHECK(said.find(gpu.name()) != said.npos);
  CHECK(said.find("attention forward f16, widths 32 and 64, 1 subgroups of 32") != said.npos);
  left = 8;  // after what came before, three outputs and the statistics
  said = problem({dquery, DType::bf16, 32, 40, {32, 16, 2}});
  gpu.replaceable_api().CmdDispatch = real;
  CHECK(said.find("attention dquery bf16, widths 32 and 40, 2 subgroups of 32") != said.npos);
}
