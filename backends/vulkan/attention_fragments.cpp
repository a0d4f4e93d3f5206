#include "heed/backends/vulkan/attention_fragments.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/backends/vulkan/shader_code.h"
#include "heed/core/error.h"

namespace heed::vulkan {
namespace {

constexpr std::int64_t narrowest = 16, widest = 128, most_subgroups = 4;

/// What shaders/attention_forward_fragments.glsl declares as shared.
std::int64_t forward_shared_bytes(const AttentionGroup& group, std::int64_t key_width,
                                  std::int64_t value_width) {
  const std::int64_t key_pitch = 2 * ceil_div(key_width, 16) + 1,
                     value_pitch = 2 * ceil_div(value_width, 16) + 1;
  const std::int64_t rows = group.rows(), columns = group.columns(), score_pitch = group.lanes + 1;
  const std::int64_t lines = rows * (key_pitch + score_pitch) + columns * (key_pitch + value_pitch);
  return 16 * (lines + rows / 4 * score_pitch) + 4 * rows + 8 * columns;
}

std::string text_of_attention(const AttentionVariant& v) {
  return concat_text("attention ", v.dtype, ", widths ", v.key_width, " and ", v.value_width, ", ", v.queries,
                     " queries in subgroups of ", v.fragment.lanes);
}

/// Why the hardware does not serve a variant; empty: it does.
std::string tested_problem(Gpu& gpu, const AttentionVariant& variant) {
  if (!find_shader(concat_text("attention_forward_cooperative_", variant.dtype)))
    return "this build has no attention for matrix hardware";
  try {
    return problem_of_attention(gpu, TileKernel::cooperative, variant);
  } catch (const OutOfMemory&) {  // says nothing about the hardware
    throw;
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::optional<AttentionGroup> fragment_group(const AttentionCall& call, const AttentionOperand& result,
                                             FragmentShape fragment) {
  const std::int64_t band = longest_tile(call, true);
  const auto fits_width = [](std::int64_t width) { return width >= narrowest && width <= widest; };
  if (!is_half(call.args.query.dtype()) || band < 16 || !fits_width(call.key_width) ||
      !fits_width(call.value_width))
    return {};
  for (const AttentionOperand* x : {&call.query, &call.key, &call.value, &result})
    if (!AttentionCall::is_aligned(*x, 8)) return {};
  AttentionGroup group;
  group.lanes = 4 * fragment.lanes / fragment.rows;
  group.own = fragment.lanes;
  if (group.lanes % 4 != 0) return {};  // a subgroup's scores are whole fragments
  const Limits& limits = call.gpu.limits();
  for (std::int64_t n = std::min(most_subgroups, ceil_div(band, fragment.rows)); n > 0; --n) {
    group.invocations = n * fragment.lanes;
    if (group.invocations <= limits.max_invocations &&
        forward_shared_bytes(group, call.key_width, call.value_width) <= limits.shared_bytes)
      return group;
  }
  return {};
}

std::optional<AttentionGroup> trusted_fragments(const AttentionCall& call, const AttentionOperand& result) {
  const DType dtype = call.args.query.dtype();
  const Device device = call.args.query.device();
  const FragmentShape fragment{call.gpu.capabilities().subgroup_size, 16};
  const std::optional<AttentionGroup> group = fragment_group(call, result, fragment);
  if (!group || !matrix_hardware(device).multiplies(dtype)) return {};
  const AttentionVariant variant{dtype, call.key_width, call.value_width, group->rows(), fragment};
  const bool trusted =
      is_trusted(device, text_of_attention(variant), [&] { return tested_problem(call.gpu, variant); });
  return trusted ? group : std::nullopt;
}

std::string problem_of_attention(Gpu& gpu, TileKernel kernel, const AttentionVariant& v) {
  const Device device{DeviceType::vulkan, gpu.index()};
  // No whole tiles, and more than two of either kind, so that sums are rescaled.
  const std::int64_t columns = 16 * v.fragment.lanes / v.fragment.rows;
  const std::int64_t queries = 2 * v.queries + 3, keys = 4 * columns + 7;
  AttentionArgs args;
  args.query = exact_halves({1, 2, queries, v.key_width}, v.dtype, device);
  args.key = exact_halves({1, 2, keys, v.key_width}, v.dtype, device);
  args.value = exact_halves({1, 2, keys, v.value_width}, v.dtype, device);
  args.causal = true;
  // Products are multiples of 1/64, logits of 128: e^-128 is 0 in f32. One head shares its weight among the
  // keys that are alike, the other also prefers near keys, so that its largest score rises from tile to tile.
  args.scale = 8192;
  args.slopes = Tensor::from(std::vector<float>{0, 65536}, {2}, device);
  const auto result = [&](TileKernel by) {
    const Tensor out = Tensor::zeros({1, 2, queries, v.value_width}, v.dtype, device),
                 log_sum_exp = Tensor::zeros({1, 2, queries}, DType::f32, device);
    attention_forward_by(by, v.fragment, args, out, log_sum_exp);
    return std::pair(out.to_doubles(), log_sum_exp.to_doubles());
  };
  const auto found = result(kernel);
  if (found == result(TileKernel::scalar)) return "";
  return concat_text("the results of ", gpu.name(), " differ from those of ordinary arithmetic (",
                     text_of_attention(v), ")");
}

}  // namespace heed::vulkan
