#include "heed/backends/vulkan/device_errors.h"

#include <algorithm>

#include "heed/backends/vulkan/gpu.h"
#include "heed/core/error.h"

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
  if (slots_[next_].value != 0) {  // the ring is full: all of it is recorded, and most of it done
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

}  // namespace heed::vulkan
