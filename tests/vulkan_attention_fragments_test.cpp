// Attention's kernels for matrix hardware, over fragments in shared memory, which any device has.

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "heed/backends/vulkan/attention_fragments.h"
#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/core/backend.h"
#include "heed/tests/attention_cases.h"
#include "heed/tests/kernel_check.h"
#include "vulkan_compare.h"

using namespace heed;
using namespace heed::test::attention;
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

  HalfInputs(const Case& c, DType dtype, Device device) {
    make_inputs(c, DType::f32, in);
    half = full = in.args;
    for (Tensor AttentionArgs::*x :
         {&AttentionArgs::query, &AttentionArgs::key, &AttentionArgs::value, &AttentionArgs::bias}) {
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
  }
};

struct Results {
  Tensor out, log_sum_exp;
  std::vector<double> outs() const { return out.to_doubles(); }
  std::vector<double> logs() const { return log_sum_exp.to_doubles(); }
};

/// NaN stays where a kernel forgets to write.
Results unwritten_results(const Case& c, DType dtype, Device device) {
  const Results found{Tensor::empty({c.batch, c.heads, c.queries, c.value_width}, dtype, device),
                      Tensor::empty({c.batch, c.heads, c.queries}, DType::f32, device)};
  for (const Tensor& x : {found.out, found.log_sum_exp}) backend_of(x).fill(NAN, x);
  return found;
}

Results forward_by(vulkan::TileKernel kernel, vulkan::FragmentShape fragment, const Case& c,
                   const AttentionArgs& args) {
  const Results found = unwritten_results(c, args.query.dtype(), args.query.device());
  vulkan::attention_forward_by(kernel, fragment, args, found.out, found.log_sum_exp);
  return found;
}

/// Against the CPU in f32. Weights and results are rounded to the half type, statistics are not.
void check_forward(const Case& c, DType dtype, Device device, vulkan::FragmentShape fragment = {}) {
  CAPTURE(c.name);
  CAPTURE(dtype);
  const HalfInputs inputs(c, dtype, device);
  const Results expected = unwritten_results(c, DType::f32, {});
  cpu_backend().attention.forward(inputs.full, expected.out, expected.log_sum_exp);
  const Results found = forward_by(emulated, fragment, c, inputs.half);
  const double rounding = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  CHECK(test::worst_error(found.outs(), expected.outs()) <= 4 * rounding);
  CHECK(test::worst_error(found.logs(), expected.logs()) <= 1e-5);
  // The kernel for ordinary arithmetic has the same statistics but for the order of sums.
  const Results scalar_results = forward_by(scalar, fragment, c, inputs.half);
  CHECK(test::worst_error(found.outs(), scalar_results.outs()) <= 4 * rounding);
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
    check_forward(c, dtype, *device);
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
  check_forward(wide, DType::f16, *device);
  check_forward(wide, DType::bf16, *device);
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
       {vulkan::FragmentShape{16, 16}, vulkan::FragmentShape{64, 16}, vulkan::FragmentShape{16, 8}}) {
    CAPTURE(fragment.lanes);
    CAPTURE(fragment.rows);
    check_forward(c, DType::f16, *device, fragment);
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
  const auto bits = [&] {
    const Results found = forward_by(emulated, {}, c, inputs.half);
    return std::pair(found.outs(), found.logs());
  };
  const auto whole = bits();
  CHECK(whole == bits());
  {
    const test::LoweredLimits limits(*device,
                                     [](auto& l) { l.max_range = 9000; });  // a batch entry at a time
    CHECK(whole == bits());
  }
  {
    const test::LoweredLimits limits(*device, [](auto& l) { l.max_groups = 3; });
    CHECK(whole == bits());
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
    const auto result = vulkan::attention_output(call.gpu, operand(c.queries, c.value_width));
    return vulkan::fragment_group(call, result, {32, 16}).has_value();
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
  const auto problem = [&](const vulkan::AttentionVariant& variant) {
    return vulkan::problem_of_attention(gpu, emulated, variant);
  };
  CHECK(problem({DType::f16, 32, 64, 16, {32, 16}}) == "");
  CHECK(problem({DType::bf16, 64, 24, 32, {64, 16}}) == "");
  // A driver that only pretends to compute.
  static PFN_vkCmdDispatch real;
  real = gpu.api().CmdDispatch;
  static int left;
  left = 3;  // the kernel under test comes after its outputs were cleared
  gpu.replaceable_api().CmdDispatch = [](VkCommandBuffer buffer, std::uint32_t x, std::uint32_t y,
                                         std::uint32_t z) {
    if (--left != 0) real(buffer, x, y, z);
  };
  const std::string said = problem({DType::f16, 32, 64, 16, {32, 16}});
  gpu.replaceable_api().CmdDispatch = real;
  CHECK(said.find(gpu.name()) != said.npos);
  CHECK(said.find("attention f16, widths 32 and 64, 16 queries in subgroups of 32") != said.npos);
}
