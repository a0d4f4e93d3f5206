#include <cmath>
#include <vector>

#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/rows.h"
#include "heed/core/error.h"

namespace heed::vulkan {

namespace {

/// A contiguous tensor in flat pieces of at most `most` elements.
std::vector<Tensor> flat_pieces(const Tensor& x, std::int64_t most) {
  std::vector<Tensor> pieces;
  const Tensor flat = x.view({x.count()});
  for (std::int64_t begin = 0; begin < x.count(); begin += most)
    pieces.push_back(row_range(flat, begin, std::min(x.count(), begin + most)));
  return pieces;
}

/// Parameters, or a part of them, with what belongs to them; moments undefined where there are none.
struct Stretch {
  Tensor weights, gradients, first, second;
};

std::vector<Stretch> stretches_of(const OptimizerStep& step, std::int64_t most) {
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const auto pieces = [&](std::span<const Tensor> tensors) {
      return tensors.empty() ? std::vector<Tensor>() : flat_pieces(tensors[i], most);
    };
    const auto weights = pieces(step.parameters), gradients = pieces(step.gradients),
               first = pieces(step.first_moment), second = pieces(step.second_moment);
    for (std::size_t p = 0; p < weights.size(); ++p) {
      stretches.push_back({weights[p], gradients[p], first.empty() ? Tensor() : first[p],
                           second.empty() ? Tensor() : second[p]});
    }
  }
  return stretches;
}

/// The numbers of a step as the shaders take them (shaders/optimizer.glsl).
struct Rates {
  double rate, epsilon;
};

/// Two stretches per launch, so that a model of many small tensors takes half the launches.
void update(const char* name, const OptimizerStep& step, const Rates& rates) {
  if (step.parameters.empty()) return;
  Gpu& gpu = gpu_of(step.parameters[0]);
  const std::uint32_t workgroup = workgroup_size(gpu);
  const std::int64_t per_group = 4 * workgroup;  // elements
  const std::int64_t most = std::min(most_elements(gpu, 4), most_groups(gpu) * per_group / 2);
  const std::vector<Stretch> stretches = stretches_of(step, most);
  const bool has_first = !step.first_moment.empty();
  const auto dtype_of_gradients = [&](std::size_t i) { return stretches[i].gradients.dtype(); };
  for (std::size_t i = 0, taken = 1; i < stretches.size(); i += taken) {
    taken = i + 1 < stretches.size() && dtype_of_gradients(i + 1) == dtype_of_gradients(i) ? 2 : 1;
    const Stretch &a = stretches[i], b = taken == 2 ? stretches[i + 1] : Stretch();
    const std::int64_t count_b = b.weights.defined() ? b.weights.count() : 0,
                       count = a.weights.count() + count_b;
    Launch(gpu, shader_name(name, a.gradients.dtype()),
           {workgroup, step.gradient_scale.defined(), step.skip.defined(), has_first})
        .update(a.weights)
        .read(a.gradients)
        .update(either(a.first, a.weights))
        .update(either(a.second, a.weights))
        .update(either(b.weights, a.weights))
        .read(b.gradients)
        .update(either(b.first, a.weights))
        .update(either(b.second, a.weights))
        .read(step.gradient_scale)
        .read(step.skip)
        .push(a.weights.count())
        .push(count_b)
        .push(rates.rate)
        .push(step.beta1)
        .push(1 - step.beta1)
        .push(step.beta2)
        .push(1 - step.beta2)
        .push(rates.epsilon)
        .push(step.decoupled_decay ? 0.0 : step.weight_decay)
        .push(step.decoupled_decay ? 1 - step.learning_rate * step.weight_decay : 1.0)
        .work(0, static_cast<double>(count) * (has_first ? step.second_moment.empty() ? 20 : 28 : 12))
        .folded_groups(ceil_div(count, per_group));
  }
}

}  // namespace

void adam(const OptimizerStep& step) {
  const auto steps = static_cast<double>(step.step);
  const double correction1 = 1 - std::pow(step.beta1, steps), correction2 = 1 - std::pow(step.beta2, steps);
  // w -= rate m / (sqrt(v) + epsilon') is the paper's update multiplied out by sqrt(correction2).
  update("adam", step,
         {step.learning_rate * std::sqrt(correction2) / correction1, step.epsilon * std::sqrt(correction2)});
}

void sgd(const OptimizerStep& step) {
  update("sgd", step, {step.learning_rate, 0});
}

namespace {

constexpr std::int64_t piece_size = 8192;  // elements whose squares a workgroup adds up
constexpr std::size_t tensors_per_launch = 8;

/// The sums of the pieces of up to eight tensors of one dtype, one after the other.
void sum_pieces_of(Gpu& gpu, std::span<const Tensor> tensors, const Tensor& sums) {
  const DType dtype = tensors[0].dtype();
  std::int64_t elements = 0;
  for (const Tensor& tensor : tensors) elements += tensor.count();
  Launch launch(gpu, shader_name("sums_of_squares", dtype),
                {workgroup_size(gpu), static_cast<std::uint32_t>(piece_size)});
  for (std::size_t k = 0; k < tensors_per_launch; ++k)
    launch.read(k < tensors.size() ? tensors[k] : Tensor());
  launch.write(sums);
  for (std::size_t k = 0; k < tensors_per_launch; ++k)
    launch.push(k < tensors.size() ? tensors[k].count() : 0);
  launch.push(sums.count())
      .work(0, static_cast<double>(elements) * static_cast<double>(size_of(dtype)))
      .folded_groups(sums.count());
}

std::int64_t pieces_in(const Tensor& x) {
  return ceil_div(x.count(), piece_size);
}

}  // namespace

void sums_of_squares(std::span<const Tensor> tensors, const Tensor& out) {
  if (tensors.empty()) return;
  check(out.dtype() == DType::f32, "sums_of_squares: the sums are f32 on ", out.device(), ", not ",
        out.dtype());
  Gpu& gpu = gpu_of(out);
  const std::int64_t most_pieces =
      std::max<std::int64_t>(1, std::min(most_elements(gpu, 4) / piece_size,
                                         most_groups(gpu) / static_cast<std::int64_t>(tensors_per_launch)));
  std::vector<Tensor> stretches;
  std::vector<std::int32_t> first_piece{0};  // of each tensor
  for (const Tensor& tensor : tensors) {
    first_piece.push_back(first_piece.back() + static_cast<std::int32_t>(pieces_in(tensor)));
    for (const Tensor& part : flat_pieces(tensor, most_pieces * piece_size)) stretches.push_back(part);
  }

  const Tensor sums = Tensor::empty({first_piece.back()}, DType::f32, out.device());
  std::int64_t done = 0;
  for (std::size_t i = 0, end = 0; i < stretches.size(); i = end) {
    const std::int64_t first = done;
    for (; end < stretches.size() && end < i + tensors_per_launch; ++end) {
      if (stretches[end].dtype() != stretches[i].dtype()) break;
      done += pieces_in(stretches[end]);
    }
    sum_pieces_of(gpu, std::span(stretches).subspan(i, end - i), row_range(sums, first, done));
  }

  Launch(gpu, "sum_pieces", {workgroup_size(gpu)})
      .read(sums)
      .read(Tensor::from(first_piece, {static_cast<std::int64_t>(first_piece.size())}, out.device()))
      .write(out)
      .push(out.count())
      .work(0, 4.0 * static_cast<double>(sums.count()))
      .folded_groups(out.count());
}

}  // namespace heed::vulkan
