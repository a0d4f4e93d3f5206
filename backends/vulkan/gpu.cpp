#include "heed/backends/vulkan/gpu.h"

#include <algorithm>
#include <map>
#include <mutex>

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

Gpu::Gpu(int index)
    : OpenDevice(index),
      pipelines_(std::make_unique<Pipelines>(*this)),
      stream_(std::make_unique<Stream>(*this)),
      memory_(std::make_unique<Memory>(*this, *stream_)),
      staging_(std::make_unique<Staging>(*this, *stream_)),
      errors_(std::make_unique<DeviceErrors>(*this)) {
  enlist();
}

void Gpu::finish() noexcept {
  stream_->finish();
  pipelines_->save();
}

Gpu& gpu(int index) {
  check(!forked_from_driver(), "device vulkan:", index,
        ": this process was forked from one that uses Vulkan, whose ",
        "driver does not survive fork(); use the device in the parent alone, or start a program of its own "
        "(exec)");
  static std::mutex mutex;
  static std::map<int, Gpu*>& opened = *new std::map<int, Gpu*>;  // never destroyed, like the devices
  const std::lock_guard lock(mutex);
  const auto found = opened.find(index);
  return found != opened.end() ? *found->second : *opened.emplace(index, new Gpu(index)).first->second;
}

}  // namespace heed::vulkan

namespace heed {

std::string device_platform(Device device) {
  const vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const std::string& tuned = gpu.tuning().digest;
  return concat_text(gpu.name(), ", ", gpu.described().driver, tuned.empty() ? "" : ", tuned ", tuned);
}

DeviceCounters device_counters(Device device) {
  check(device.type == DeviceType::vulkan, "device_counters: ", device, " counts nothing");
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

}  // namespace heed
