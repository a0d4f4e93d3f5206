#include "heed/backends/vulkan/launch.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "heed/backends/vulkan/shader_code.h"
#include "heed/base/error.h"

namespace heed::vulkan {

/// Where the bytes of a view begin and end in its buffer.
static std::pair<std::uint64_t, std::uint64_t> bytes_of(const Tensor& tensor) {
  const std::uint64_t begin = byte_offset(tensor);
  return {begin, begin + static_cast<std::uint64_t>(spanned_elements(tensor)) * size_of(tensor.dtype())};
}

static std::string_view module_name(std::string_view base, DType dtype, std::string_view type) {
  check(dtype != DType::f64, base, ": f64 exists on the CPU only");
  std::string name(base);
  name += '_';
  name += type;
  return shader_code(name).name;
}

std::string_view shader_name(std::string_view base, DType dtype) {
  return module_name(base, dtype, name_of(dtype));
}

std::string_view shader_name_by_size(std::string_view base, DType dtype) {
  return module_name(base, dtype, size_of(dtype) == 4 ? "u32" : "u16");
}

Launch::Launch(Gpu& gpu, std::string_view shader, std::initializer_list<std::uint32_t> constants)
    : gpu_(gpu), lock_(gpu.mutex()), shader_(shader), constant_count_(constants.size()) {
  check(constants.size() <= constants_.size(), shader, ": ", constants.size(), " specialisation constants");
  std::ranges::copy(constants, constants_.begin());
}

Binding& Launch::next_binding() {
  check(binding_count_ < max_bindings, shader_, ": more than ", max_bindings, " bindings");
  return bindings_[binding_count_++];
}

void Launch::check_range(std::uint64_t bytes) const {
  check(bytes <= gpu_.limits().max_range, "vulkan: ", shader_, " binds ", bytes, " bytes at once, ",
        gpu_.name(), " allows ", gpu_.limits().max_range);
}

Launch& Launch::bind(const Tensor& tensor, bool read, bool written) {
  const std::size_t at = binding_count_;
  Binding& binding = next_binding();
  if (!tensor.defined() || tensor.count() == 0) {
    binding = {gpu_.memory().placeholder(), 0, Memory::placeholder_bytes, read, written};
    return *this;
  }
  check(tensor.device() == Device{DeviceType::vulkan, gpu_.index()}, "vulkan: ", shader_,
        " on vulkan:", gpu_.index(), " is given a tensor on ", tensor.device());
  auto& block = static_cast<Block&>(*tensor.storage());
  const auto [begin, end] = bytes_of(tensor);
  const std::uint64_t aligned = begin / gpu_.limits().offset_alignment * gpu_.limits().offset_alignment;
  skips_[at] = static_cast<std::uint32_t>((begin - aligned) / size_of(tensor.dtype()));
  binding = {block.buffer(), aligned, end - aligned, read, written};
  blocks_[at] = &block;
  check_range(binding.bytes);
  if (const std::uint64_t guards = block.end_of_guards(); guards > 0)
    binding.bytes = std::max(binding.bytes, std::min(gpu_.limits().max_range, guards - aligned));
  return *this;
}

Launch& Launch::read_own(Tensor tensor) {
  own_ = std::move(tensor);
  return read(own_);
}

bool fits_window(const Gpu& gpu, std::span<const Tensor> tensors) {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max(), last = 0;
  for (const Tensor& tensor : tensors) {
    const auto find_buffer = [](const Tensor& x) { return static_cast<const Block&>(*x.storage()).buffer(); };
    if (find_buffer(tensor) != find_buffer(tensors[0])) return false;
    const auto [begin, end] = bytes_of(tensor);
    first = std::min(first, begin / gpu.limits().offset_alignment * gpu.limits().offset_alignment);
    last = std::max(last, end);
  }
  return tensors.empty() || last - first <= gpu.limits().max_range;
}

Window Launch::index_window(std::span<const Tensor> tensors) const {
  Window window;
  std::uint64_t end = 0;
  std::vector<std::uint64_t> begins;  // bytes
  for (const Tensor& tensor : tensors) {
    auto& block = static_cast<Block&>(*tensor.storage());
    const auto [first, last] = bytes_of(tensor);
    begins.push_back(first);
    end = std::max(end, last);
    window.buffer = block.buffer();
    window.blocks.push_back(&block);
  }
  const std::uint64_t alignment = gpu_.limits().offset_alignment;
  window.offset = *std::ranges::min_element(begins) / alignment * alignment;
  window.bytes = end - window.offset;
  for (const std::uint64_t begin : begins)
    window.begins.push_back((begin - window.offset) / size_of(tensors[0].dtype()));
  return window;
}

Launch& Launch::bind(const Window& window, bool written) {
  check_range(window.bytes);
  next_binding() = {window.buffer, window.offset, window.bytes, true, written};
  for (Block* block : window.blocks) in_windows_.emplace_back(block, written);
  return *this;
}

Launch& Launch::reports_errors(std::string message) {
  DeviceErrors& errors = gpu_.device_errors();
  const std::uint64_t offset = errors.add(std::move(message));
  next_binding() = {errors.buffer(), offset, sizeof(std::uint32_t), true, true};
  return *this;
}

Launch& Launch::push(std::uint32_t value) {
  check(binding_count_ + pushed_count_ < max_words, shader_, ": more than ", max_words, " push constants");
  pushed_[pushed_count_++] = value;
  return *this;
}

Launch& Launch::push(std::int64_t value) {
  check(value >= 0 && value <= std::numeric_limits<std::uint32_t>::max(), "vulkan: ", shader_, ": ", value,
        " does not fit 32 bits");
  return push(static_cast<std::uint32_t>(value));
}

Launch& Launch::work(double flops, double bytes) {
  work_ = {flops, bytes};
  return *this;
}

void Launch::groups(std::int64_t x, std::int64_t y, std::int64_t z) {
  if (x == 0 || y == 0 || z == 0) return;
  const std::int64_t most = gpu_.limits().max_groups;
  check(x <= most && y <= most && z <= most, "vulkan: ", shader_, " asks for ", x, " x ", y, " x ", z,
        " workgroups, ", gpu_.name(), " allows ", most, " per axis");
  std::array<std::uint32_t, max_words> push;
  std::copy_n(skips_.begin(), binding_count_, push.begin());
  std::copy_n(pushed_.begin(), pushed_count_, push.begin() + static_cast<std::ptrdiff_t>(binding_count_));
  const Pipeline& pipeline =
      gpu_.pipelines().get(shader_, std::span(constants_).first(constant_count_), binding_count_);
  for (std::size_t i = 0; i < binding_count_; ++i)
    if (blocks_[i]) blocks_[i]->used(gpu_.stream().recording(), bindings_[i].written);
  for (const auto& [block, written] : in_windows_) block->used(gpu_.stream().recording(), written);
  const std::uint32_t counts[3] = {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y),
                                   static_cast<std::uint32_t>(z)};
  gpu_.stream().dispatch(shader_, pipeline, std::span(bindings_).first(binding_count_),
                         std::span(push).first(binding_count_ + pushed_count_), counts, work_);
}

void Launch::folded_groups(std::int64_t count) {
  const std::int64_t most = gpu_.limits().max_groups;
  const std::int64_t y = ceil_div(count, most);
  groups(y == 0 ? 0 : ceil_div(count, y), y);
}

}  // namespace heed::vulkan
