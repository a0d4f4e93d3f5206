#include "heed/backends/vulkan/memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "heed/base/error.h"

namespace heed::vulkan {

namespace {

constexpr std::uint64_t granule = 256;  // every block begins and ends at a multiple of it
constexpr std::uint64_t first_slab = 256u << 20, largest_slab = 1u << 30;
/// A NaN in every floating type, and not a valid index.
constexpr std::uint32_t guard_word = 0xfff1fff1;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

VkBuffer create_buffer(const DeviceApi& api, std::uint64_t bytes) {
  auto info = structure<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  VkBuffer buffer = VK_NULL_HANDLE;
  check_result(api.CreateBuffer(api.device, &info, nullptr, &buffer), "vkCreateBuffer");
  return buffer;
}

/// The first memory type among `allowed` with all of `flags`; -1 if there is none.
int memory_type(const VkPhysicalDeviceMemoryProperties& memory, std::uint32_t allowed,
                VkMemoryPropertyFlags flags) {
  for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i)
    if ((allowed >> i & 1) && (memory.memoryTypes[i].propertyFlags & flags) == flags)
      return static_cast<int>(i);
  return -1;
}

/// A buffer with its own memory, of the first type in `wishes` that the device has; a null buffer if no
/// memory is left.
Allocation allocate_buffer(OpenDevice& device, std::uint64_t bytes,
                           std::initializer_list<VkMemoryPropertyFlags> wishes) {
  const DeviceApi& api = device.api();
  Allocation made{.buffer = create_buffer(api, bytes)};
  VkMemoryRequirements needs;
  api.GetBufferMemoryRequirements(api.device, made.buffer, &needs);
  int type = -1;
  VkMemoryPropertyFlags flags = 0;
  for (const VkMemoryPropertyFlags wish : wishes) {
    if (type >= 0) break;
    type = memory_type(device.memory_properties(), needs.memoryTypeBits, wish);
    flags = wish;
  }
  check(type >= 0, "vulkan: ", device.name(), " has no suitable type of memory");
  auto info = structure<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
  info.allocationSize = needs.size;
  info.memoryTypeIndex = static_cast<std::uint32_t>(type);
  const VkResult result = api.AllocateMemory(api.device, &info, nullptr, &made.memory);
  if (result != VK_SUCCESS) {
    api.DestroyBuffer(api.device, made.buffer, nullptr);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY) return {};
    check_result(result, "vkAllocateMemory");
  }
  check_result(api.BindBufferMemory(api.device, made.buffer, made.memory, 0), "vkBindBufferMemory");
  if (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) {
    void* data = nullptr;
    check_result(api.MapMemory(api.device, made.memory, 0, VK_WHOLE_SIZE, 0, &data), "vkMapMemory");
    made.data = static_cast<std::byte*>(data);
  }
  return made;
}

void free_buffer(const OpenDevice& device, const Allocation& made) {
  device.api().DestroyBuffer(device.api().device, made.buffer, nullptr);
  device.api().FreeMemory(device.api().device, made.memory, nullptr);
}

constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags visible =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

}  // namespace

// --- host buffers ------------------------------------------------------------------------------------------

HostBuffer::HostBuffer(OpenDevice& device, std::uint64_t bytes, bool read_by_host)
    : device_(device),
      made_(read_by_host ? allocate_buffer(device, bytes, {visible | cached, visible})
                         : allocate_buffer(device, bytes, {visible})) {
  if (!made_.buffer)
    throw OutOfMemory(concat_text(device_.name(), ": no room for ", bytes, " bytes of host-visible memory"));
}

HostBuffer::~HostBuffer() {
  free_buffer(device_, made_);
}

// --- slabs and blocks --------------------------------------------------------------------------------------

struct Slab {
  Allocation allocation;
  std::uint64_t bytes = 0;
  FreeRanges free;
};

Block::~Block() {
  if (!slab_ || is_forked_child()) return;  // in a child the memory is the parent's
  const std::lock_guard lock(memory_.device_.mutex());
  memory_.free(*this);
}

VkBuffer Block::buffer() const {
  return slab_ ? slab_->allocation.buffer : memory_.placeholder();
}

std::byte* Block::mapped() const {
  return slab_ && slab_->allocation.data ? slab_->allocation.data + offset_ : nullptr;
}

Memory::Memory(OpenDevice& device, Stream& stream)
    : device_(device),
      stream_(stream),
      placeholder_(device, placeholder_bytes, false),
      next_slab_bytes_(first_slab) {
  if (is_set("HEED_VULKAN_GUARDS")) guard_bytes_ = granule;
}

Memory::~Memory() = default;

std::shared_ptr<Block> Memory::allocate(Device device, std::size_t bytes) {
  auto block = std::make_shared<Block>(*this, device, bytes);
  if (bytes == 0) return block;
  const std::uint64_t room = round_up(bytes, granule) + 2 * guard_bytes_;
  auto found = free_by_size_.lower_bound(room);
  if (found == free_by_size_.end()) {
    Slab* slab = add_slab(room);
    found = std::ranges::find_if(free_by_size_, [&](const auto& entry) { return entry.second.slab == slab; });
  }
  const Place place = found->second;
  const auto range = place.slab->free.find(place.offset);
  const FreeRange taken = range->second;
  if (taken.bytes > room) add_free(*place.slab, place.offset + room, {taken.bytes - room, taken.last_use});
  block->size_node_ = free_by_size_.extract(found);
  block->range_node_ = place.slab->free.extract(range);
  block->slab_ = place.slab;
  block->offset_ = place.offset + guard_bytes_;
  block->room_ = room;
  block->last_use_ = block->last_write_ = taken.last_use;
  stats_.current_bytes += room;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.current_bytes);
  if (guard_bytes_ > 0) write_guards(*block);
  return block;
}

void Memory::free(Block& block) noexcept {
  if (guard_bytes_ > 0) check_guards(block);
  stats_.current_bytes -= block.room_;
  Slab& slab = *block.slab_;
  std::uint64_t offset = block.offset_ - guard_bytes_;
  FreeRange merged{block.room_, block.last_use_};
  const auto absorb = [&](FreeRanges::iterator neighbour) {
    offset = std::min(offset, neighbour->first);
    merged.bytes += neighbour->second.bytes;
    merged.last_use = std::max(merged.last_use, neighbour->second.last_use);
    remove_free(slab, neighbour);
  };
  const auto after = slab.free.find(offset + merged.bytes);
  if (after != slab.free.end()) absorb(after);
  const auto next = slab.free.lower_bound(offset);
  if (next != slab.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == offset) absorb(before);
  }
  block.range_node_.key() = offset;
  block.range_node_.mapped() = merged;
  block.size_node_.key() = merged.bytes;
  block.size_node_.mapped() = {&slab, offset};
  slab.free.insert(std::move(block.range_node_));
  free_by_size_.insert(std::move(block.size_node_));
}

void Memory::add_free(Slab& slab, std::uint64_t offset, const FreeRange& range) {
  const auto added = slab.free.emplace(offset, range).first;
  try {
    free_by_size_.emplace(range.bytes, Place{&slab, offset});
  } catch (...) {
    slab.free.erase(added);
    throw;
  }
}

FreeSizes::iterator Memory::size_entry(Slab& slab, FreeRanges::iterator range) {
  const auto [first, last] = free_by_size_.equal_range(range->second.bytes);
  return std::find_if(first, last, [&](const auto& entry) {
    return entry.second.slab == &slab && entry.second.offset == range->first;
  });
}

void Memory::remove_free(Slab& slab, FreeRanges::iterator range) {
  free_by_size_.erase(size_entry(slab, range));
  slab.free.erase(range);
}

Slab* Memory::try_slab(std::uint64_t bytes) {
  const std::initializer_list<VkMemoryPropertyFlags> mapped = {local | visible | cached, local | visible,
                                                               local};
  const Allocation made = device_.capabilities().unified_memory ? allocate_buffer(device_, bytes, mapped)
                                                                : allocate_buffer(device_, bytes, {local});
  if (!made.buffer) return nullptr;
  Slab& slab = slabs_.emplace_back();
  slab.allocation = made;
  slab.bytes = bytes;
  add_free(slab, 0, {bytes, 0});
  stats_.reserved_bytes += bytes;
  return &slab;
}

Slab* Memory::add_slab(std::uint64_t at_least) {
  const std::uint64_t most = device_.limits().max_allocation / granule * granule;
  if (at_least > most)
    throw OutOfMemory(concat_text(device_.name(), ": one tensor needs ", at_least,
                                  " bytes, more than the driver allocates at once (", most, ")"));
  const std::uint64_t wanted = std::clamp(next_slab_bytes_, at_least, most);
  Slab* slab = try_slab(wanted);
  if (!slab && wanted > at_least) slab = try_slab(at_least);
  if (!slab) {
    trim();
    slab = try_slab(at_least);
  }
  if (!slab) throw OutOfMemory(concat_text(device_.name(), ": no room for ", at_least, " bytes; ", report()));
  next_slab_bytes_ = std::min(2 * next_slab_bytes_, largest_slab);
  return slab;
}

void Memory::trim() {
  stream_.wait_idle();
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    const auto whole = slab->free.find(0);
    if (whole == slab->free.end() || whole->second.bytes != slab->bytes) {
      ++slab;
      continue;
    }
    remove_free(*slab, whole);
    free_buffer(device_, slab->allocation);
    stats_.reserved_bytes -= slab->bytes;
    slab = slabs_.erase(slab);
  }
}

std::string Memory::report() const {
  std::uint64_t largest = free_by_size_.empty() ? 0 : free_by_size_.rbegin()->first;
  return concat_text("tensors hold ", stats_.current_bytes, " bytes (at most ", stats_.peak_bytes, "), ",
                     slabs_.size(), " slabs of ", stats_.reserved_bytes, " bytes, ", free_by_size_.size(),
                     " free ranges, the largest of ", largest, " bytes", device_.memory_left(),
                     "; use a smaller batch, or recompute layers (model.recompute_layers)");
}

std::uint64_t Block::end_of_guards() const {
  const std::uint64_t guard = memory_.guard_bytes_;
  return slab_ && guard > 0 ? offset_ - guard + room_ : 0;
}

void Memory::write_guards(const Block& block) {
  const std::uint64_t begin = block.offset_ - guard_bytes_;
  if (!block.mapped()) return stream_.fill(block.buffer(), begin, block.room_, guard_word);
  stream_.fill(block.buffer(), begin, guard_bytes_, guard_word);
  stream_.fill(block.buffer(), begin + block.room_ - guard_bytes_, guard_bytes_, guard_word);
}

void Memory::check_guards(const Block& block) noexcept {
  if (stream_.is_finished()) return;
  try {
    const std::uint64_t end = block.room_ - 2 * guard_bytes_;
    if (!guards_seen_) guards_seen_ = std::make_unique<HostBuffer>(device_, 2 * guard_bytes_, true);
    HostBuffer& seen = *guards_seen_;
    stream_.copy(block.buffer(), block.offset_ - guard_bytes_, seen.buffer(), 0, guard_bytes_);
    stream_.copy(block.buffer(), block.offset_ + end, seen.buffer(), guard_bytes_, guard_bytes_);
    stream_.wait_idle();
    const auto* words = reinterpret_cast<const std::uint32_t*>(seen.data());
    const bool whole = std::all_of(words, words + 2 * guard_bytes_ / sizeof *words,
                                   [](std::uint32_t word) { return word == guard_word; });
    if (!whole) ++damaged_guards_;
  } catch (const DeviceLost&) {  // every further use of the device reports it
  } catch (const std::exception&) {
    ++damaged_guards_;  // guards that could not be checked must not count as intact
  }
}

Staging::Piece Staging::for_upload(std::uint64_t bytes) {
  if (chunks_.empty() || chunks_.back().used + bytes > largest_piece) {
    const bool reuse =
        !chunks_.empty() && (chunks_.size() >= most_chunks || chunks_.front().value <= stream_.completed());
    Chunk chunk;
    if (reuse) {
      chunk = std::move(chunks_.front());
      chunks_.pop_front();
      stream_.wait(chunk.value);
      chunk.used = 0;
    } else {
      chunk.buffer = std::make_unique<HostBuffer>(device_, largest_piece, false);
    }
    chunks_.push_back(std::move(chunk));
  }
  Chunk& chunk = chunks_.back();
  const Piece piece{chunk.buffer->buffer(), chunk.used, chunk.buffer->data() + chunk.used};
  chunk.used += (bytes + 15) / 16 * 16;
  chunk.value = stream_.recording();
  return piece;
}

HostBuffer& Staging::for_download() {
  std::unique_ptr<HostBuffer>& buffer = downloads_[next_download_];
  if (!buffer) buffer = std::make_unique<HostBuffer>(device_, largest_piece, true);
  next_download_ = 1 - next_download_;
  return *buffer;
}

}  // namespace heed::vulkan
