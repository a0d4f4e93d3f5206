#include "heed/backends/vulkan/tensor_lists.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "heed/base/error.h"

namespace heed::vulkan {
namespace {

/// What stretches must share to share a binding: the buffer, a window of it, and the element type.
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
  const auto& block = static_cast<const Block&>(*stretch.storage());
  const std::uint64_t begin =
      block.offset() + static_cast<std::uint64_t>(stretch.offset()) * size_of(stretch.dtype());
  return {block.buffer(), begin / window_bytes(gpu), stretch.dtype()};
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

Tensor stretch_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  return x.view({count}, {1}, x.offset() + begin);
}

/// Adds one stretch of every list to the dispatch that binds their places; launches that dispatch first if it
/// is full.
class Dispatches {
 public:
  Dispatches(Gpu& gpu, std::span<const TensorList> lists,
             const std::function<void(const ListDispatch&)>& launch)
      : gpu_(gpu), lists_(lists), launch_(launch) {}

  void add(const std::vector<Tensor>& stretches, std::int64_t first_piece) {
    std::vector<Place> places;
    for (const Tensor& stretch : stretches) places.push_back(place_of(gpu_, stretch));
    ListDispatch& dispatch = open_[places];
    const std::int64_t count = stretches[0].count(), groups = ceil_div(count, list_piece);
    if (dispatch.groups + groups > most_groups(gpu_)) {
      launch_(dispatch);
      dispatch = {};
    }
    if (dispatch.stretches.empty()) {
      dispatch.stretches.resize(lists_.size());
      for (const TensorList& list : lists_) dispatch.written.push_back(list.written);
      for (const Tensor& stretch : stretches) dispatch.types.push_back(stretch.dtype());
    }
    dispatch.heads.push_back({static_cast<std::int32_t>(dispatch.groups), static_cast<std::int32_t>(count),
                              static_cast<std::int32_t>(first_piece)});
    for (std::size_t list = 0; list < stretches.size(); ++list)
      dispatch.stretches[list].push_back(stretches[list]);
    dispatch.groups += groups;
    dispatch.elements += count;
  }
  void finish() {
    for (const auto& [places, dispatch] : open_) launch_(dispatch);
  }

 private:
  Gpu& gpu_;
  std::span<const TensorList> lists_;
  const std::function<void(const ListDispatch&)>& launch_;
  std::map<std::vector<Place>, ListDispatch> open_;
};

}  // namespace

void ListDispatch::bind(Launch& launch, std::span<const std::size_t> lists) const {
  std::vector<Window> windows;
  for (const std::size_t list : lists) windows.push_back(launch.window_of(stretches[list]));
  std::vector<std::int32_t> words;
  for (std::size_t entry = 0; entry < heads.size(); ++entry) {
    words.insert(words.end(), heads[entry].begin(), heads[entry].end());
    for (const Window& window : windows) words.push_back(static_cast<std::int32_t>(window.begins[entry]));
  }
  launch.read_own(Tensor::from(words, {static_cast<std::int64_t>(words.size())}, stretches[0][0].device()));
  for (std::size_t i = 0; i < lists.size(); ++i) launch.bind(windows[i], written[lists[i]]);
}

void for_each_list_dispatch(Gpu& gpu, std::span<const TensorList> lists,
                            const std::function<void(const ListDispatch&)>& launch) {
  const std::int64_t longest = longest_stretch(gpu, lists);
  Dispatches dispatches(gpu, lists, launch);
  std::int64_t pieces = 0;
  for (std::size_t i = 0; i < lists[0].tensors.size(); ++i) {
    const std::int64_t count = lists[0].tensors[i].count();
    for (std::int64_t begin = 0; begin < count; begin += longest) {
      std::vector<Tensor> stretches;
      for (const TensorList& list : lists)
        stretches.push_back(stretch_of(list.tensors[i], begin, std::min(longest, count - begin)));
      dispatches.add(stretches, pieces + begin / list_piece);
    }
    pieces += ceil_div(count, list_piece);
  }
  dispatches.finish();
}

}  // namespace heed::vulkan
