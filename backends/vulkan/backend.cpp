// The Vulkan backend's memory as the rest of heed sees it, and transfers to and from the host.

#include <algorithm>
#include <cstring>
#include <optional>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"
#include "heed/base/error.h"

namespace heed::vulkan {

namespace {

/// Where the elements of a contiguous tensor lie.
struct Range {
  Gpu& gpu;
  Block& block;
  std::uint64_t skip;  ///< bytes of the block before the first element
  std::uint64_t bytes;
};

Range range_of(const Tensor& tensor) {
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
  const auto [gpu, block, skip, bytes] = range_of(to);
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
  const auto [gpu, block, skip, bytes] = range_of(from);
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
