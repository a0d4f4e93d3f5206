#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/rows.h"
#include "heed/backends/vulkan/tensor_lists.h"
#include "heed/base/error.h"

namespace heed::vulkan {

namespace {

/// The rate and epsilon of a step in the form that shaders/optimizer.comp takes.
struct Rates {
  double rate, epsilon;
};

void update(const char* name, const OptimizerStep& step, const Rates& rates) {
  if (step.parameters.empty()) return;
  Gpu& gpu = gpu_of(step.parameters[0]);
  std::vector<TensorList> lists{{step.parameters, true}, {step.gradients}};
  // In place of moments that do not exist, the weights are bound; the shader does not read them as moments.
  std::array<std::size_t, 4> bound{0, 1, 0, 0};
  for (const auto& [moments, place] : {std::pair(step.first_moment, 2u), {step.second_moment, 3u}}) {
    if (moments.empty()) continue;
    bound[place] = lists.size();
    lists.push_back({moments, true});
  }
  for_each_list_dispatch(gpu, lists, [&](const ListDispatch& dispatch) {
    Launch launch(gpu, shader_name(name, dispatch.types[1]),
                  {workgroup_size(gpu), static_cast<std::uint32_t>(list_piece), step.gradient_scale.defined(),
                   step.skip.defined(), !step.first_moment.empty()});
    dispatch.bind(launch, bound);
    launch.read(step.gradient_scale).read(step.skip);
    dispatch.push(launch);
    double bytes = dispatch.bytes(1);
    for (std::size_t list = 0; list < lists.size(); ++list)
      if (lists[list].written) bytes += 2 * dispatch.bytes(list);
    launch.push(rates.rate)
        .push(step.beta1)
        .push(1 - step.beta1)
        .push(step.beta2)
        .push(1 - step.beta2)
        .push(rates.epsilon)
        .push(step.decoupled_decay ? 0.0 : step.weight_decay)
        .push(step.decoupled_decay ? 1 - step.learning_rate * step.weight_decay : 1.0)
        .work(0, bytes)
        .folded_groups(dispatch.groups);
  });
}

}  // namespace

void adam(const OptimizerStep& step) {
  const auto steps = static_cast<double>(step.step);
  const double correction1 = 1 - std::pow(step.beta1, steps), correction2 = 1 - std::pow(step.beta2, steps);
  // w -= rate m / (sqrt(v) + epsilon') is the paper's update with numerator and denominator multiplied by
  // sqrt(correction2).
  update("adam", step,
         {step.learning_rate * std::sqrt(correction2) / correction1, step.epsilon * std::sqrt(correction2)});
}

void sgd(const OptimizerStep& step) {
  update("sgd", step, {step.learning_rate, 0});
}

void sums_of_squares(std::span<const Tensor> tensors, const Tensor& out) {
  if (tensors.empty()) return;
  check(out.dtype() == DType::f32, "sums_of_squares: the sums are f32 on ", out.device(), ", not ",
        out.dtype());
  Gpu& gpu = gpu_of(out);
  std::vector<std::int32_t> first_piece{0};  // of each tensor
  for (const Tensor& tensor : tensors)
    first_piece.push_back(first_piece.back() +
                          static_cast<std::int32_t>(ceil_div(tensor.count(), list_piece)));
  const Tensor sums = Tensor::empty({first_piece.back()}, DType::f32, out.device());
  const TensorList lists[] = {{tensors}};
  for_each_list_dispatch(gpu, lists, [&](const ListDispatch& dispatch) {
    Launch launch(gpu, shader_name("sums_of_squares", dispatch.types[0]),
                  {workgroup_size(gpu), static_cast<std::uint32_t>(list_piece)});
    dispatch.bind(launch, std::array<std::size_t, 1>{0});
    launch.write(sums);
    dispatch.push(launch);
    launch.work(0, dispatch.bytes(0)).folded_groups(dispatch.groups);
  });

  Launch(gpu, "sum_pieces", {workgroup_size(gpu)})
      .read(sums)
      .read(Tensor::from(first_piece, {static_cast<std::int64_t>(first_piece.size())}, out.device()))
      .write(out)
      .push(out.count())
      .work(0, 4.0 * static_cast<double>(sums.count()))
      .folded_groups(out.count());
}

void scale_all(std::span<const Tensor> x, const Tensor& factor, bool add, std::span<const Tensor> out) {
  if (x.empty()) return;
  Gpu& gpu = gpu_of(out[0]);
  const TensorList lists[] = {{out, true}, {x}};
  for_each_list_dispatch(gpu, lists, [&](const ListDispatch& dispatch) {
    const DType from = dispatch.types[1], to = dispatch.types[0];
    const std::string name = from == to ? "scale_all" : concat_text("scale_all_to_", to);
    Launch launch(gpu, shader_name(name, from),
                  {workgroup_size(gpu), static_cast<std::uint32_t>(list_piece), factor.defined(), add});
    dispatch.bind(launch, std::array<std::size_t, 2>{0, 1});
    launch.read(factor);
    dispatch.push(launch);
    launch.work(0, dispatch.bytes(1) + dispatch.bytes(0) * (add ? 2 : 1)).folded_groups(dispatch.groups);
  });
}

}  // namespace heed::vulkan
