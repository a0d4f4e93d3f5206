// Scaled dot-product attention that never holds the N x M matrix. shaders/attention.glsl describes the tiles.
//
// Any width works: scores are summed over dk in pieces, and a result wider than a workgroup's registers is
// computed in slices, each of which recomputes the scores.

#include "heed/backends/vulkan/attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/backends/vulkan/shader_code.h"
#include "heed/base/error.h"

namespace heed::vulkan {

// --- the kernel that computes a pass

constexpr std::int64_t narrowest = 16, widest = 128;

/// The shared memory that shaders/attention_fragments.comp declares.
static std::int64_t fragment_shared_bytes(FragmentPass pass, const AttentionGroup& group,
                                          std::int64_t key_width, std::int64_t value_width) {
  const std::int64_t key_pitch = 2 * ceil_div(key_width, 16) + 1,
                     value_pitch = 2 * ceil_div(value_width, 16) + 1, score_pitch = group.lanes + 1;
  const std::int64_t rows = group.rows(), columns = group.columns();
  const bool forward = pass == FragmentPass::forward;
  const std::int64_t lines =
      rows * (key_pitch + (forward ? 0 : value_pitch) + score_pitch) + columns * (key_pitch + value_pitch);
  const std::int64_t softmax = forward ? 16 * (rows / 4 * score_pitch) + 4 * rows : 0;
  return 16 * lines + softmax + 8 * columns;
}

std::optional<AttentionGroup> fragment_group(const AttentionCall& call, FragmentPass pass,
                                             FragmentShape fragment) {
  const std::int64_t band = longest_tile(call, pass != FragmentPass::dkey);
  const auto fits_width = [](std::int64_t width) { return width >= narrowest && width <= widest; };
  if (!is_half(call.args.query.dtype()) || band < 16 || !fits_width(call.key_width) ||
      !fits_width(call.value_width))
    return {};
  const auto begins_in_eights = [](const AttentionOperand& x) { return AttentionCall::is_aligned(x, 8); };
  if (!begins_in_eights(call.query) || !begins_in_eights(call.key) || !begins_in_eights(call.value))
    return {};
  AttentionGroup group;
  group.lanes = 4 * fragment.lanes / fragment.rows;
  group.own = fragment.lanes;
  group.fragment_columns = fragment.columns;
  group.fragment_depth = fragment.depth;
  if (group.lanes % 4 != 0) return {};  // a subgroup's scores are whole fragments
  const Limits& limits = call.gpu.limits();
  for (std::int64_t n = std::min(fragment.subgroups, ceil_div(band, fragment.rows)); n > 0; --n) {
    group.invocations = n * fragment.lanes;
    if (group.invocations <= limits.max_invocations &&
        fragment_shared_bytes(pass, group, call.key_width, call.value_width) <= limits.shared_bytes)
      return group;
  }
  return {};
}

FragmentChoice always(TileKernel kernel, FragmentShape fragment) {
  return [=](const AttentionCall& call, FragmentPass pass) {
    const std::optional<AttentionGroup> group = fragment_group(call, pass, fragment);
    check(group.has_value(), "attention: fragments do not take a call of ", call.queries, " queries, ",
          call.keys, " keys, widths ", call.key_width, " and ", call.value_width);
    return std::optional(FragmentKernel{kernel, *group});
  };
}

// --- the passes

namespace {

// The most vec4s of a row of each result that an invocation holds in registers: with one result, and with
// two.
constexpr std::int64_t most_quads = 4, most_quads_of_two = 2;

void check_pattern(const AttentionArgs& args) {
  if (!args.pattern) return;
  const std::int64_t queries = args.query.size(2), keys = args.key.size(2), heads = args.query.size(1);
  check(args.pattern->queries == queries && args.pattern->keys == keys,
        "attention: the block pattern is for ", args.pattern->queries, " queries and ", args.pattern->keys,
        " keys, but there are ", queries, " and ", keys);
  check(args.pattern->heads == 1 || args.pattern->heads == heads, "attention: the block pattern has ",
        args.pattern->heads, " heads; expected 1 or ", heads);
}

/// Writes the largest score, the inverse of the sum and out . grad - log_sum_exp_grad of each query to `rows`
/// [B, H, N, 3].
void row_statistics(Gpu& gpu, const Tensor& out, const Tensor& grad, const Tensor& sums,
                    const Tensor& log_sum_exp_grad, const Tensor& rows) {
  const auto fits = [&](const Tensor& x) { return range_holds(gpu, spanned_elements(x), x.dtype()); };
  const int axis = rows.size(0) > 1 ? 0 : 1;
  if (rows.size(axis) > 1 && !(fits(out) && fits(grad) && fits(rows))) {
    for (const Part part : halves(rows.size(axis))) {
      const auto half = [&](const Tensor& x) { return x.defined() ? narrowed(x, axis, part) : x; };
      row_statistics(gpu, half(out), half(grad), half(sums), half(log_sum_exp_grad), half(rows));
    }
    return;
  }
  const std::uint32_t threads = std::min<std::uint32_t>(256, gpu.limits().max_invocations / 16 * 16);
  const std::int64_t count = out.size(0) * out.size(1) * out.size(2);
  const bool has_log_grad = log_sum_exp_grad.defined();
  Launch launch(gpu, shader_name("attention_rows", out.dtype()), {threads, threads, has_log_grad});
  launch.read(out, grad, sums, log_sum_exp_grad).write(rows);
  launch.push(count, out.size(2), out.size(1), out.size(3));
  for (const Tensor* x : {&out, &grad, has_log_grad ? &log_sum_exp_grad : &sums})
    for (int stride = 0; stride < 3; ++stride) launch.push(x->stride(stride));
  launch.work(0, static_cast<double>(2 * count * out.size(3)) * static_cast<double>(size_of(out.dtype())));
  launch.folded_groups(ceil_div(count, threads / 16));
}

/// The alignment, in elements, of the operands and results of a kernel; see attention_input().
std::int64_t step_of(const std::optional<FragmentKernel>& fragments) {
  return fragments ? 8 : 1;
}

std::string shader_by(const std::optional<FragmentKernel>& fragments, const char* shader) {
  if (!fragments) return shader;
  return concat_text(shader, fragments->kernel == TileKernel::cooperative ? "_cooperative" : "_emulated");
}

void bias_gradient(const AttentionCall& call, const std::optional<FragmentKernel>& fragments,
                   const AttentionOperand& slope, const Tensor& statistics, const Tensor& dbias) {
  const Tensor sums =
      dbias.dtype() == DType::f32 ? dbias : Tensor::empty(dbias.shape(), DType::f32, dbias.device());
  fill(0, sums);
  if (sums.count() > 0)
    AttentionPass(call, true, fragments ? fragments->group : square_group(call, true, 4, 1))
        .input(slope, true)
        .statistics(statistics, false)
        .bias_gradient(sums)
        .run(shader_by(fragments, "attention_dbias").c_str(),
             2 * call.area() * static_cast<double>(call.key_width + call.value_width));
  if (sums.storage() != dbias.storage()) copy(sums, dbias);
}

}  // namespace

void attention_forward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                          const Tensor& sums) {
  if (sums.count() == 0) return;
  check_pattern(args);
  const AttentionCall call(args);
  const double flops = 2 * call.area() * static_cast<double>(call.key_width + call.value_width);
  const auto fragments = choose(call, FragmentPass::forward);
  const AttentionOperand result = attention_output(call.gpu, out, step_of(fragments));
  AttentionPass(call, true,
                fragments ? fragments->group : square_group(call, true, call.value_width, most_quads))
      .output(result, true)
      .statistics(sums, true)
      .run(shader_by(fragments, "attention_forward").c_str(), flops);
  finish_output(result, out);
}

void attention_backward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                           const Tensor& sums, const Tensor& grad, const Tensor& log_sum_exp_grad,
                           const Tensor& dquery, const Tensor& dkey, const Tensor& dvalue,
                           const Tensor& dbias) {
  check_pattern(args);
  const AttentionCall call(args);
  const auto of_queries = choose(call, FragmentPass::dquery), of_keys = choose(call, FragmentPass::dkey),
             of_bias = dbias.defined() ? choose(call, FragmentPass::dbias) : std::nullopt;
  const AttentionOperand slope =
      attention_input(call.gpu, grad, std::max({step_of(of_queries), step_of(of_keys), step_of(of_bias)}));
  const Tensor statistics =
      Tensor::empty({call.batch, call.heads, call.queries, 3}, DType::f32, grad.device());
  if (statistics.count() > 0)
    row_statistics(call.gpu, attention_input(call.gpu, out).tensor, slope.tensor, sums, log_sum_exp_grad,
                   statistics);
  // One kernel computes dkey and dvalue, so dkey needs memory even if it is not wanted.
  const AttentionOperand of_key = attention_output(
                             call.gpu,
                             dkey.defined()
                                 ? dkey
                                 : Tensor::empty(args.key.shape(), args.key.dtype(), args.key.device()),
                             step_of(of_keys)),
                         of_value = attention_output(call.gpu, dvalue, step_of(of_keys));
  const double area = call.area(), key_width = static_cast<double>(call.key_width),
               value_width = static_cast<double>(call.value_width);
  if (dquery.defined()) {
    const AttentionOperand of_query = attention_output(call.gpu, dquery, step_of(of_queries));
    AttentionPass(call, true,
                  of_queries ? of_queries->group : square_group(call, true, call.key_width, most_quads))
        .input(slope, true)
        .statistics(statistics, false)
        .output(of_query, true)
        .run(shader_by(of_queries, "attention_dquery").c_str(), 2 * area * (2 * key_width + value_width));
    finish_output(of_query, dquery);
  }
  AttentionPass(
      call, false,
      of_keys ? of_keys->group
              : square_group(call, false, std::max(call.key_width, call.value_width), most_quads_of_two))
      .input(slope, true)
      .statistics(statistics, false)
      .output(of_key, false)
      .output(of_value, false)
      .run(shader_by(of_keys, "attention_dkey").c_str(), 4 * area * (key_width + value_width));
  if (dbias.defined()) bias_gradient(call, of_bias, slope, statistics, dbias);
  if (dkey.defined()) finish_output(of_key, dkey);
  finish_output(of_value, dvalue);
}

// --- whether a device's matrix hardware computes them correctly

namespace {

std::optional<FragmentKernel> ordinary_arithmetic(const AttentionCall&, FragmentPass) {
  return {};
}

/// Whether no element differs by more than `allowed` times the largest one.
bool nearly_equal(const Tensor& found, const Tensor& expected, double allowed) {
  const std::vector<double> a = found.to_doubles(), b = expected.to_doubles();
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return false;
    largest = std::max(largest, std::abs(b[i]));
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  return error <= allowed * largest;
}

/// An attention call for a test, with more than two tiles of rows and of columns, the last ones incomplete.
struct TrialCall {
  AttentionArgs args;
  Tensor grad;
  DType dtype;

  TrialCall(DType type, FragmentShape fragment, std::int64_t width, Device device) : dtype(type) {
    const std::int64_t rows = fragment.rows * fragment.subgroups,
                       columns = 16 * fragment.lanes / fragment.rows;
    const Shape shape{1, 2, std::max(2 * rows, 4 * columns) + 7, width};
    args.query = args.key = args.value = exact_halves(shape, dtype, device);
    grad = exact_halves(shape, dtype, device);
    args.causal = true;
  }

  Tensor zeros_like(const Tensor& x) const { return Tensor::zeros(x.shape(), x.dtype(), x.device()); }
  std::pair<Tensor, Tensor> forward(const FragmentChoice& choose) const {
    const Shape& shape = args.query.shape();
    const Tensor out = zeros_like(grad);
    const Tensor sums = Tensor::zeros({shape[0], shape[1], shape[2], 2}, DType::f32, grad.device());
    attention_forward_by(choose, args, out, sums);
    return {out, sums};
  }
};

/// Products are multiples of 1/64 and logits multiples of 128; e^-128 is 0 in f32. One head shares its weight
/// among equal keys; the other also prefers near keys, so that its largest score rises from tile to tile.
bool forward_is_exact(const FragmentChoice& choose, TrialCall call) {
  call.args.scale = 8192;
  call.args.slopes = Tensor::from(std::vector<float>{0, 65536}, {2}, call.grad.device());
  const auto bits = [](const std::pair<Tensor, Tensor>& x) {
    return std::pair(x.first.to_doubles(), x.second.to_doubles());
  };
  return bits(call.forward(choose)) == bits(call.forward(ordinary_arithmetic));
}

bool gradients_agree(const FragmentChoice& choose, TrialCall call) {
  const std::int64_t length = call.grad.size(2);
  call.args.scale = 0.125;
  call.args.bias = exact_halves({1, 1, length, length}, call.dtype, call.grad.device());
  const std::pair<Tensor, Tensor> answer = call.forward(ordinary_arithmetic);
  const auto gradients = [&](const FragmentChoice& by) {
    std::vector<Tensor> all;
    for (const Tensor* x : {&call.args.query, &call.args.key, &call.args.value, &call.args.bias})
      all.push_back(call.zeros_like(*x));
    attention_backward_by(by, call.args, answer.first, answer.second, call.grad, {}, all[0], all[1], all[2],
                          all[3]);
    return all;
  };
  const std::vector<Tensor> found = gradients(choose), expected = gradients(ordinary_arithmetic);
  const double rounding = call.dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!nearly_equal(found[i], expected[i], 8 * rounding)) return false;
  return true;
}

/// Numbers between -1 and 1 whose products fill the mantissa of a float.
Tensor uneven_halves(const Shape& shape, DType dtype, Device device) {
  std::vector<float> values(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 7919 % 10007) / 5003.5F - 1;
  const Tensor halves = Tensor::empty(shape, dtype, device);
  backend_of(halves).copy(Tensor::from(values, shape, device), halves);
  return halves;
}

/// Returns whether the weights in the gradients of the values add up to 1, like those of the
/// forward pass: the values' gradients must have the same sum as the result's.
bool weights_add_up(const FragmentChoice& choose, TrialCall call) {
  call.args.causal = false;
  call.args.scale = 1e12;
  call.args.query = call.args.key = uneven_halves(call.args.query.shape(), call.dtype, call.grad.device());
  backend_of(call.grad).fill(1, call.grad);
  const auto [out, sums] = call.forward(choose);
  const Tensor dkey = call.zeros_like(call.args.key), dvalue = call.zeros_like(call.args.value);
  attention_backward_by(choose, call.args, out, sums, call.grad, {}, call.zeros_like(call.args.query), dkey,
                        dvalue, {});
  double sum = 0;
  for (const double x : dvalue.to_doubles()) sum += x;
  return std::abs(sum / static_cast<double>(call.grad.count()) - 1) < 0.01;
}

}  // namespace

std::string problem_of_attention(Gpu& gpu, TileKernel kernel, DType dtype, FragmentShape fragment,
                                 std::int64_t width) {
  const TrialCall call(dtype, fragment, width, {DeviceType::vulkan, gpu.index()});
  const FragmentChoice choose = always(kernel, fragment);
  if (forward_is_exact(choose, call) && gradients_agree(choose, call) && weights_add_up(choose, call))
    return "";
  return concat_text("the attention of ", gpu.name(), " in ", dtype,
                     " differs from that of ordinary arithmetic");
}

/// Returns the device's fragments, if its matrix hardware is used and has passed the tests of all
/// passes: backward must see exactly the scores of forward, and the hardware may round differently
/// from ordinary arithmetic.
static std::optional<FragmentKernel> trusted_fragments(const AttentionCall& call, FragmentPass pass) {
  const DType dtype = call.args.query.dtype();
  const Device device = call.args.query.device();
  const Capabilities& can = call.gpu.capabilities();
  const Fragment of_device = is_half(dtype) ? can.matrices.of(dtype) : Fragment();
  if (!of_device.exists()) return {};
  const FragmentShape fragment{can.subgroup_size, of_device.rows, call.gpu.tuning().attention.subgroups,
                               of_device.columns, of_device.depth};
  // If the hardware failed the test of products, attention does not try it.
  if (!matrix_hardware(device).multiplies(dtype) ||
      !find_shader(concat_text("attention_forward_cooperative_", dtype)))
    return {};
  std::optional<FragmentKernel> chosen;
  for (const FragmentPass each :
       {FragmentPass::forward, FragmentPass::dquery, FragmentPass::dkey, FragmentPass::dbias}) {
    if (each == FragmentPass::dbias && !call.bias.defined()) continue;
    const std::optional<AttentionGroup> group = fragment_group(call, each, fragment);
    if (!group) return {};
    if (each == pass) chosen = FragmentKernel{TileKernel::cooperative, *group};
  }
  const auto problem = [&] {
    return problem_of_attention(call.gpu, TileKernel::cooperative, dtype, fragment);
  };
  return is_trusted(device, concat_text("attention in ", dtype), problem) ? chosen : std::nullopt;
}

// --- the entries of the kernel contract

void attention_forward(const AttentionArgs& args, const Tensor& out, const Tensor& sums) {
  attention_forward_by(trusted_fragments, args, out, sums);
}

void attention_backward(const AttentionArgs& args, const Tensor& out, const Tensor& sums, const Tensor& grad,
                        const Tensor& log_sum_exp_grad, const Tensor& dquery, const Tensor& dkey,
                        const Tensor& dvalue, const Tensor& dbias) {
  attention_backward_by(trusted_fragments, args, out, sums, grad, log_sum_exp_grad, dquery, dkey, dvalue,
                        dbias);
}

}  // namespace heed::vulkan
