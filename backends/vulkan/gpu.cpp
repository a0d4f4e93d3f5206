#include "heed/backends/vulkan/gpu.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "heed/backends/kernels.h"
#include "heed/base/error.h"
#include "heed/core/device.h"

namespace heed::vulkan {

DeviceErrors::DeviceErrors(Gpu& gpu)
    : gpu_(gpu),
      stride_(std::max<std::uint64_t>(gpu.limits().offset_alignment, sizeof(std::uint32_t))),
      words_(std::make_unique<HostBuffer>(gpu, slots * stride_, true)),
      slots_(slots) {
  for (std::size_t i = 0; i < slots; ++i) word(i) = no_error;
}

std::uint32_t& DeviceErrors::word(std::size_t slot) const {
  return *reinterpret_cast<std::uint32_t*>(words_->data() + slot * stride_);
}

std::uint64_t DeviceErrors::add(std::string text) {
  if (slots_[next_].value != 0) {  // the ring is full: waits for its oldest launch
    gpu_.stream().wait(slots_[next_].value);
    check();
  }
  slots_[next_] = {gpu_.stream().recording(), std::move(text)};
  const std::size_t slot = next_;
  next_ = (next_ + 1) % slots;
  return slot * stride_;
}

void DeviceErrors::check() {
  const std::uint64_t done = gpu_.stream().completed();
  std::string first;
  for (; slots_[oldest_].value != 0 && slots_[oldest_].value <= done; oldest_ = (oldest_ + 1) % slots) {
    const std::uint32_t position = word(oldest_);
    if (position != no_error && first.empty())
      first = concat_text(slots_[oldest_].text, " (position ", position, ")");
    word(oldest_) = no_error;
    slots_[oldest_].value = 0;
  }
  heed::check(first.empty(), first);
}

Gpu& gpu(int index) {
  check(!is_forked_child(), "device vulkan:", index,
        ": this process was forked from one that uses Vulkan, whose ",
        "driver does not survive fork(); use the device only in the parent, or start a separate program "
        "(exec)");
  static std::mutex mutex;
  static std::map<int, Gpu*>& opened = *new std::map<int, Gpu*>;  // never destroyed, like the devices
  const std::lock_guard lock(mutex);
  const auto found = opened.find(index);
  return found != opened.end() ? *found->second : *opened.emplace(index, new Gpu(index)).first->second;
}

// --- memory and transfers as the rest of heed sees them

namespace {

/// The place of a contiguous tensor's elements.
struct Range {
  Gpu& gpu;
  Block& block;
  std::uint64_t skip;  ///< bytes of the block before the first element
  std::uint64_t bytes;
};

Range memory_range(const Tensor& tensor) {
  const std::uint64_t element = size_of(tensor.dtype());
  return {gpu_of(tensor), static_cast<Block&>(*tensor.storage()),
          static_cast<std::uint64_t>(tensor.offset()) * element,
          static_cast<std::uint64_t>(tensor.count()) * element};
}

}  // namespace

std::shared_ptr<Storage> allocate(Device device, std::size_t bytes) {
  Gpu& on = gpu(device.index);
  const std::lock_guard lock(on.mutex());
  return on.memory().allocate(device, bytes);
}

void upload(const void* host, const Tensor& to) {
  const auto [gpu, block, skip, bytes] = memory_range(to);
  const std::lock_guard lock(gpu.mutex());
  if (block.mapped() && block.last_use() <= gpu.stream().completed()) {
    std::memcpy(block.mapped() + skip, host, bytes);
    return;
  }
  const auto* from = static_cast<const std::byte*>(host);
  for (std::uint64_t done = 0; done < bytes; done += Staging::largest_piece) {
    const std::uint64_t part = std::min(bytes - done, Staging::largest_piece);
    const Staging::Piece piece = gpu.staging().for_upload(part);
    std::memcpy(piece.data, from + done, part);
    block.used(gpu.stream().recording(), true);
    gpu.stream().copy(piece.buffer, piece.offset, block.buffer(), block.offset() + skip + done, part);
  }
}

void download(const Tensor& from, void* host) {
  const auto [gpu, block, skip, bytes] = memory_range(from);
  const std::lock_guard lock(gpu.mutex());
  if (block.mapped()) {
    // Waits for launches that may report an error too, whatever they write: the next read of anything throws
    // it.
    gpu.stream().wait(std::max(block.last_write(), gpu.device_errors().last()));
    gpu.device_errors().check();
    std::memcpy(host, block.mapped() + skip, bytes);
    return;
  }
  auto* to = static_cast<std::byte*>(host);
  struct Piece {
    std::byte *from, *to;
    std::uint64_t bytes, value;
  };
  const auto take = [&gpu = gpu](const Piece& piece) {
    gpu.stream().wait(piece.value);
    gpu.device_errors().check();
    std::memcpy(piece.to, piece.from, piece.bytes);
  };
  std::optional<Piece> before;  // the host takes it while the device copies the next
  for (std::uint64_t done = 0; done < bytes; done += Staging::largest_piece) {
    HostBuffer& buffer = gpu.staging().for_download();
    const Piece piece{buffer.data(), to + done, std::min(bytes - done, Staging::largest_piece),
                      gpu.stream().recording()};
    block.used(piece.value, false);
    gpu.stream().copy(block.buffer(), block.offset() + skip + done, buffer.buffer(), 0, piece.bytes);
    gpu.stream().submit();
    if (before) take(*before);
    before = piece;
  }
  if (before) take(*before);
}

MemoryStats memory_stats(Device device) {
  Gpu& on = gpu(device.index);
  const std::lock_guard lock(on.mutex());
  return on.memory().stats();
}

void reset_peak(Device device) {
  Gpu& on = gpu(device.index);
  const std::lock_guard lock(on.mutex());
  on.memory().reset_peak();
}

void trim(Device device) {
  Gpu& on = gpu(device.index);
  const std::lock_guard lock(on.mutex());
  on.memory().trim();
}

}  // namespace heed::vulkan

namespace heed {

std::string device_platform(Device device) {
  const vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const std::string& tuned = gpu.tuning().digest;
  return concat_text(gpu.name(), ", ", gpu.described().driver, tuned.empty() ? "" : ", tuned ", tuned);
}

DeviceCounters device_counters(Device device) {
  check(device.type == DeviceType::vulkan, "device_counters: ", device, " has no counters");
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const std::lock_guard lock(gpu.mutex());
  return gpu.stream().counters();
}

const VulkanDevices& vulkan_devices() {
  static const VulkanDevices all = [] {
    VulkanDevices list;
    const vulkan::PhysicalDevices& found = vulkan::physical_devices();
    list.problem = found.problem;
    for (const vulkan::PhysicalDevice& device : found.devices) {
      const auto yes_no = [](bool yes) { return std::string(yes ? "yes" : "no"); };
      list.devices.push_back({{DeviceType::vulkan, static_cast<int>(list.devices.size())},
                              device.name,
                              device.kind,
                              device.refusal,
                              {{"driver", device.driver},
                               {"identifier", device.uuid},
                               {"memory", concat_text(device.memory_bytes >> 20, " MiB")},
                               {"largest binding", concat_text(device.limits.max_range >> 20, " MiB")},
                               {"subgroup size", std::to_string(device.capabilities.subgroup_size)},
                               {"subgroup exchange", yes_no(device.limits.exchanging > 1)},
                               {"half precision", yes_no(device.capabilities.storage16)},
                               {"f16 arithmetic", yes_no(device.capabilities.float16)}}});
    }
    return list;
  }();
  return all;
}

const Backend& vulkan_backend() {
  static const Backend backend{
      .name = "vulkan",
#define HEED_KERNEL(kernel, ...) .kernel = vulkan::kernel,
#define HEED_FUSED(kernel, ...) .kernel = {vulkan::kernel##_forward, vulkan::kernel##_backward},
#define HEED_CPU_KERNEL(...)
#include "heed/core/kernels.def"
  };
  return backend;
}

}  // namespace heed
