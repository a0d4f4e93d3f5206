#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"
#include "heed/base/error.h"

// Kernels that walk lists of tensors: the steps of the optimizers, sums of squares, scaling.

namespace heed::vulkan {
namespace {

// --- lists of tensors as dispatches walk them

/// A list of contiguous tensors that one dispatch walks together with other lists, entry by entry
/// (shaders/tensor_lists.glsl), as an optimizer walks parameters, gradients and moments.
struct TensorList {
  std::span<const Tensor> tensors;
  bool written = false;
};

/// The part of some lists that one dispatch processes: entries whose tensors are so close together,
/// within each list, that one binding holds them. With slabs of at least 256 MiB this is nearly
/// always all of them.
struct ListDispatch {
  std::span<const TensorList> lists;
  std::vector<std::vector<Tensor>> stretches = {};  ///< of each list, one for each entry
  /// Of each entry: first workgroup, elements, first piece.
  std::vector<std::array<std::int32_t, 3>> heads = {};
  std::int64_t groups = 0;  ///< workgroups
  std::int64_t elements = 0;

  /// Adds one stretch of every list.
  void add(const std::vector<Tensor>& of_lists, std::int64_t first_piece);
  std::int64_t entries() const { return static_cast<std::int64_t>(stretches[0].size()); }
  /// Binds the table and the chosen lists, of which one may be given more than once.
  void bind(Launch& launch, std::span<const std::size_t> chosen) const;
  /// Pushes the numbers of entries and of workgroups.
  void push(Launch& launch) const { launch.push(entries(), groups); }
  DType type_of(std::size_t list) const { return stretches[list][0].dtype(); }
  double bytes(std::size_t list) const {
    return static_cast<double>(elements) * static_cast<double>(size_of(type_of(list)));
  }
};

/// The most elements of an entry that one workgroup processes.
inline constexpr std::int64_t list_piece = 4096;

/// The properties that stretches must share to share a binding: the buffer, a window of it, and the
/// element type.
struct Place {
  VkBuffer buffer;
  std::uint64_t window;
  DType dtype;
  friend bool operator<(const Place& a, const Place& b) {
    return std::tie(a.buffer, a.window, a.dtype) < std::tie(b.buffer, b.window, b.dtype);
  }
};

/// Each stretch begins in one of the windows of its buffer; a binding holds two consecutive windows.
std::uint64_t window_bytes(const Gpu& gpu) {
  return gpu.limits().max_range / 2;
}

Place place_of(const Gpu& gpu, const Tensor& stretch) {
  const VkBuffer buffer = static_cast<const Block&>(*stretch.storage()).buffer();
  return {buffer, byte_offset(stretch) / window_bytes(gpu), stretch.dtype()};
}

/// The longest stretch that fits into a binding wherever in its window it begins.
std::int64_t longest_stretch(const Gpu& gpu, std::span<const TensorList> lists) {
  std::size_t element = 1;
  for (const TensorList& list : lists)
    for (const Tensor& tensor : list.tensors) element = std::max(element, size_of(tensor.dtype()));
  const auto room = static_cast<std::int64_t>(window_bytes(gpu)) - gpu.limits().offset_alignment;
  const std::int64_t most =
      std::min(room / static_cast<std::int64_t>(element), most_groups(gpu) * list_piece);
  const std::int64_t multiple = most >= list_piece ? list_piece : 4;
  check(most >= multiple, "vulkan: bindings of ", gpu.limits().max_range, " bytes hold no list of tensors");
  return most / multiple * multiple;
}

Tensor take_stretch(const Tensor& x, std::int64_t begin, std::int64_t count) {
  return x.view({count}, {1}, x.offset() + begin);
}

void ListDispatch::add(const std::vector<Tensor>& of_lists, std::int64_t first_piece) {
  const std::int64_t count = of_lists[0].count();
  heads.push_back({static_cast<std::int32_t>(groups), static_cast<std::int32_t>(count),
                   static_cast<std::int32_t>(first_piece)});
  stretches.resize(of_lists.size());
  for (std::size_t list = 0; list < of_lists.size(); ++list) stretches[list].push_back(of_lists[list]);
  groups += ceil_div(count, list_piece);
  elements += count;
}

void ListDispatch::bind(Launch& launch, std::span<const std::size_t> chosen) const {
  std::vector<Window> windows;
  for (const std::size_t list : chosen) windows.push_back(launch.index_window(stretches[list]));
  std::vector<std::int32_t> words;
  for (std::size_t entry = 0; entry < heads.size(); ++entry) {
    words.insert(words.end(), heads[entry].begin(), heads[entry].end());
    for (const Window& window : windows) words.push_back(static_cast<std::int32_t>(window.begins[entry]));
  }
  launch.read_own(Tensor::from(words, {static_cast<std::int64_t>(words.size())}, stretches[0][0].device()));
  for (std::size_t i = 0; i < chosen.size(); ++i) launch.bind(windows[i], lists[chosen[i]].written);
}

/// Calls `launch` for dispatches that cover the lists, all of one length. Tensors too long for a binding are
/// cut, at multiples of list_piece if a binding holds that many elements.
void for_each_list_dispatch(Gpu& gpu, std::span<const TensorList> lists,
                            const std::function<void(const ListDispatch&)>& launch) {
  const std::int64_t longest = longest_stretch(gpu, lists);
  std::map<std::vector<Place>, ListDispatch> open;
  std::int64_t pieces = 0;
  for (std::size_t i = 0; i < lists[0].tensors.size(); ++i) {
    const std::int64_t count = lists[0].tensors[i].count();
    for (std::int64_t begin = 0; begin < count; begin += longest) {
      std::vector<Tensor> stretches;
      std::vector<Place> places;
      for (const TensorList& list : lists) {
        stretches.push_back(take_stretch(list.tensors[i], begin, std::min(longest, count - begin)));
        places.push_back(place_of(gpu, stretches.back()));
      }
      ListDispatch& dispatch = open.try_emplace(places, ListDispatch{.lists = lists}).first->second;
      if (dispatch.groups + ceil_div(stretches[0].count(), list_piece) > most_groups(gpu))  // it is full
        launch(std::exchange(dispatch, {.lists = lists}));
      dispatch.add(stretches, pieces + begin / list_piece);
    }
    pieces += ceil_div(count, list_piece);
  }
  for (const auto& [places, dispatch] : open) launch(dispatch);
}

// --- the kernels

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
    Launch launch(gpu, shader_name(name, dispatch.type_of(1)),
                  {workgroup_size(gpu), static_cast<std::uint32_t>(list_piece), step.gradient_scale.defined(),
                   step.skip.defined(), !step.first_moment.empty()});
    dispatch.bind(launch, bound);
    launch.read(step.gradient_scale, step.skip);
    dispatch.push(launch);
    double bytes = dispatch.bytes(1);
    for (std::size_t list = 0; list < lists.size(); ++list)
      if (lists[list].written) bytes += 2 * dispatch.bytes(list);
    launch
        .push(rates.rate, step.beta1, 1 - step.beta1, step.beta2, 1 - step.beta2, rates.epsilon,
              step.decoupled_decay ? 0.0 : step.weight_decay,
              step.decoupled_decay ? 1 - step.learning_rate * step.weight_decay : 1.0)
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
    Launch launch(gpu, shader_name("sums_of_squares", dispatch.type_of(0)),
                  {workgroup_size(gpu), static_cast<std::uint32_t>(list_piece)});
    dispatch.bind(launch, std::array<std::size_t, 1>{0});
    launch.write(sums);
    dispatch.push(launch);
    launch.work(0, dispatch.bytes(0)).folded_groups(dispatch.groups);
  });

  Launch(gpu, "sum_pieces", {workgroup_size(gpu)})
      .read(sums, Tensor::from(first_piece, {static_cast<std::int64_t>(first_piece.size())}, out.device()))
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
    const DType from = dispatch.type_of(1), to = dispatch.type_of(0);
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
