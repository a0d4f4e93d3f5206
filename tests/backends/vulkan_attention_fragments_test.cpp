// Attention's kernels for matrix hardware, over fragments in shared memory, which any device has.

#include "heed/backends/vulkan/attention.h"
#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/tests/vulkan_attention.h"

using namespace heed::test::attention_cases;
using enum vulkan::TileKernel;

namespace {

Numbers results(const vulkan::FragmentChoice& choose, const Case& c, const Call& call) {
  return results_by([&](const auto&... x) { vulkan::attention_forward_by(choose, x...); },
                    [&](const auto&... x) { vulkan::attention_backward_by(choose, x...); }, c, call);
}

std::optional<vulkan::FragmentKernel> no_fragments(const vulkan::AttentionCall&, vulkan::FragmentPass) {
  return {};
}

/// The half types in turn, since each takes pipelines of its own.
DType next_half(DType dtype) {
  return dtype == DType::f16 ? DType::bf16 : DType::f16;
}

/// Against the CPU in f32, and against ordinary arithmetic.
void check_fragments(const Case& c, DType dtype, Device device, vulkan::FragmentShape fragment = {}) {
  CAPTURE_ALL(c.name, dtype);
  Inputs in;
  make_inputs(c, DType::f32, in);
  Call call = call_on(device, in, dtype);
  if (c.keys == 0) call.grad = Tensor();
  const Numbers found = results(vulkan::always(emulated, fragment), c, call);
  const auto& cpu = cpu_backend.attention;
  for (const Numbers& expected :
       {results_by(cpu.forward, cpu.backward, c, on_cpu(in, call)), results(no_fragments, c, call)})
    check_results(found, expected, 4 * rounding_of(dtype), 1e-5);
}

/// Every mask, bias and layout.
std::vector<Case> fragment_cases() {
  std::vector<Case> all;
  const auto add = [&](const char* name, const auto& change) {
    all.push_back(sized(name, {2, 3, 70, 45, 32, 32}, change));
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

VULKAN_TEST("vulkan attention by fragments: agrees with ordinary arithmetic and with the CPU in f32") {
  DType dtype = DType::f16;
  for (const Case& c : fragment_cases()) {
    check_fragments(c, dtype, device);
    dtype = next_half(dtype);
  }
  const Case wide = sized("width 128", {1, 1, 40, 50, 128, 128}, [](Case& c) { c.causal = true; });
  check_fragments(wide, DType::f16, device);
  check_fragments(wide, DType::bf16, device);
}

VULKAN_TEST("vulkan attention at large logits in half types: the weights of backward sum up to 1") {
  const vulkan::FragmentChoice kernels[] = {no_fragments, vulkan::always(emulated, {})};
  const auto check_sums = [&](const Case& c, DType dtype) {
    CAPTURE_ALL(c.name, c.queries, dtype);
    Inputs in;
    make_large_inputs<float>(c, 1, in);
    Call call = call_on(device, in, dtype);
    for (const double largest : {2e6, 1e30}) {
      CAPTURE(largest);
      call.args.scale = largest;
      for (const vulkan::FragmentChoice& choose : kernels) {
        const Numbers found = results(choose, c, call);
        CHECK(row_sum_error(c, in, found[4]) <= 8 * rounding_of(dtype));
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
    dtype = next_half(dtype);
  }
}

VULKAN_TEST("vulkan attention by fragments: subgroups and fragments of other sizes") {
  const Case c = sized("sizes", {1, 3, 39, 90, 24, 48}, [](Case& sizes) { sizes.causal = true; });
  for (const vulkan::FragmentShape fragment :
       {vulkan::FragmentShape{16, 16}, vulkan::FragmentShape{64, 16}, vulkan::FragmentShape{16, 8},
        vulkan::FragmentShape{16, 16, 2, 8, 16}, vulkan::FragmentShape{8, 8, 3, 8, 8}}) {
    CAPTURE_ALL(fragment.lanes, fragment.columns, fragment.rows);
    check_fragments(c, DType::f16, device, fragment);
  }
}

VULKAN_TEST("vulkan attention by fragments: the same bits each time, whatever the limits") {
  const Case c = sized("twice", {3, 4, 70, 40, 16, 16}, [](Case& twice) {
    twice.causal = twice.heads_inside = true;
    twice.dropout = 0.1;
    twice.key_mask = padded_ends;
  });
  Inputs in;
  make_inputs(c, DType::f32, in);
  const Call call = call_on(device, in, DType::bf16);
  const auto bits = [&] { return results(vulkan::always(emulated, {}), c, call); };
  const Numbers whole = bits();
  CHECK(whole == bits());
  {
    const test::LoweredLimits limits(device, [](auto& l) { l.max_range = 9000; });  // a batch entry at a time
    CHECK(whole == bits());
  }
  {
    const test::LoweredLimits limits(device, [](auto& l) { l.max_groups = 3; });
    CHECK(whole[0] == results(vulkan::always(emulated, {}), c, {call.args, {}})[0]);
  }
  // Fewer subgroups to a workgroup: rows do not know of each other.
  const test::LoweredLimits limits(device, [](auto& l) { l.max_invocations = 64; });
  CHECK(whole == bits());
}

VULKAN_TEST("vulkan attention by fragments: the calls that they take") {
  const auto takes = [&](const Case& c, DType dtype = DType::f16, std::int64_t skip = 0) {
    Inputs in;
    make_inputs(c, DType::f32, in);
    const auto operand = [&](std::int64_t rows, std::int64_t width) {
      const Shape shape{c.batch, c.heads, rows, width};
      const Tensor memory = Tensor::zeros({shape.count() + skip}, dtype, device);
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
  const test::LoweredLimits limits(device, [](auto& l) { l.shared_bytes = 4096; });
  CHECK_FALSE(takes(c));
}

VULKAN_TEST("vulkan attention by fragments: tested before it is used") {
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const auto problem = [&](DType dtype, vulkan::FragmentShape fragment, std::int64_t width) {
    return vulkan::problem_of_attention(gpu, emulated, dtype, fragment, width);
  };
  CHECK(problem(DType::f16, {32, 16, 1}, 32) == "");
  CHECK(problem(DType::bf16, {32, 16, 2}, 40) == "");
  CHECK(problem(DType::f16, {16, 8, 2}, 64) == "");
  const auto problem_without = [&](int dispatch) {
    const test::LeftOut pretends(gpu, dispatch);
    return problem(DType::f16, {32, 16, 1}, 32);
  };
  // The kernel under test comes after its outputs were cleared.
  const std::string said = problem_without(3);
  CHECK(said.find(gpu.name()) != said.npos);
  CHECK(contains(said, "in f16 differs"));
  CHECK(problem_without(18) != "");  // of the gradients
}
