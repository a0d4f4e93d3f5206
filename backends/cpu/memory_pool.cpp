#include "heed/backends/cpu/memory_pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>

#include "heed/backends/cpu/operands.h"

namespace heed::cpu {

std::optional<std::size_t> address_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::size_t addresses_used() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::string address_space() {
  const std::size_t used = addresses_used() >> 20;
  const std::optional<std::size_t> limit = address_limit();
  if (!limit) return concat_text("the process uses ", used, " MiB of addresses");
  return concat_text("the process may use ", *limit >> 20, " MiB of addresses (ulimit -v) and uses ", used);
}

}  // namespace heed::cpu

#if defined(__SANITIZE_ADDRESS__) && __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#define HEED_POISON(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define HEED_UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define HEED_POISON(address, bytes) static_cast<void>(0)
#define HEED_UNPOISON(address, bytes) static_cast<void>(0)
#endif

namespace heed::cpu {
namespace {

constexpr std::size_t line = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t small_limit = 16 << 10;
constexpr std::size_t small_chunk = 128 << 10;
constexpr std::size_t first_segment = std::size_t{256} << 20;
constexpr std::size_t largest_segment = std::size_t{8} << 30;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Size classes of small blocks, in lines of 64 bytes: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ...:
/// four per power of two, so that beyond one line at most a fifth of a block is unused.
constexpr std::size_t class_lines(std::size_t index) {
  return index < 4 ? index + 1 : (4 + index % 4 + 1) << (index / 4 - 1);
}

std::size_t block_class(std::size_t bytes) {
  const std::size_t lines = std::max<std::size_t>(1, (bytes + line - 1) / line);
  if (lines <= 4) return lines - 1;
  // Lines in (4, 8] << exponent.
  const auto exponent = static_cast<std::size_t>(std::bit_width(lines - 1)) - 3;
  return 4 * exponent + ((lines - 1) >> exponent);
}
static_assert(class_lines(4) == 5 && class_lines(7) == 8 && class_lines(8) == 10 && class_lines(31) == 512);

std::size_t system_memory() {
  static const std::size_t total = [] {
    struct sysinfo info {};
    if (sysinfo(&info) != 0) return SIZE_MAX;
    return (info.totalram + info.totalswap) * info.mem_unit;
  }();
  return total;
}

void* map_pages(std::size_t bytes) {
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

}  // namespace

MemoryPool::Block MemoryPool::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Block block = bytes <= small_limit ? allocate_small(block_class(bytes)) : allocate_large(bytes);
  current_ += block.capacity;
  peak_ = std::max(peak_, current_);
  highest_ = std::max(highest_, current_);
  HEED_UNPOISON(block.address, bytes);
  return block;
}

void MemoryPool::release(Block block) noexcept {
  const std::lock_guard lock(mutex_);
  current_ -= block.capacity;
  HEED_POISON(block.address, block.capacity);
  if (block.capacity <= small_limit)
    small_free_[block_class(block.capacity)].push_back(block.address);
  else
    release_large(block);
}

MemoryPool::Block MemoryPool::allocate_small(std::size_t size_class) {
  std::vector<std::byte*>& free = small_free_[size_class];
  const std::size_t size = class_lines(size_class) * line;
  if (free.empty()) {
    const Block chunk = allocate_large(small_chunk);
    free.reserve(small_blocks_[size_class] + chunk.capacity / size);
    small_blocks_[size_class] += chunk.capacity / size;
    HEED_POISON(chunk.address, chunk.capacity);
    for (std::size_t end = chunk.capacity / size; end > 0; --end)
      free.push_back(chunk.address + (end - 1) * size);
  }
  std::byte* address = free.back();
  free.pop_back();
  return {address, size};
}

MemoryPool::Block MemoryPool::allocate_large(std::size_t bytes) {
  if (bytes > system_memory() - std::min(system_memory(), current_)) exhausted(bytes);
  bytes = round_up(bytes, page);
  reserve_nodes();
  const auto fit = free_by_size_.lower_bound({bytes, nullptr});
  const Block block =
      fit == free_by_size_.end() ? extend(bytes) : take(free_by_address_.find(fit->second), bytes);
  ++large_blocks_;
  return block;
}

void MemoryPool::reserve_nodes() {
  while (address_nodes_.size() <= large_blocks_) {
    if (nodes_ == address_nodes_.capacity()) address_nodes_.reserve(2 * nodes_ + 16);
    if (nodes_ == size_nodes_.capacity()) size_nodes_.reserve(2 * nodes_ + 16);
    FreeMap address{{nullptr, {}}};
    FreeSet size{{0, nullptr}};
    address_nodes_.push_back(address.extract(address.begin()));
    size_nodes_.push_back(size.extract(size.begin()));
    ++nodes_;
  }
}

MemoryPool::Block MemoryPool::take(FreeMap::iterator found, std::size_t bytes) {
  const auto [address, free] = *found;
  erase_free(found);
  const std::size_t rest = free.size - bytes;
  // Which pages are resident is not recorded.
  const std::size_t rest_resident = std::min(rest, free.resident);
  reserved_ += bytes + rest_resident - free.resident;
  if (rest > 0) insert_free(address + bytes, {rest, rest_resident});
  return {address, bytes};
}

/// Cuts a block from memory never used so far, extending a free block just before it.
MemoryPool::Block MemoryPool::extend(std::size_t bytes) {
  // If all free blocks are too small for this request, the pool holds too much: keep it
  // within a quarter above its peak.
  const std::size_t limit = std::max(highest_, current_ + bytes) / 4 * 5;
  if (reserved_ + bytes > limit) drop_pages(reserved_ + bytes - limit);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (Segment& segment : segments_) {
      std::byte* begin = segment.base + segment.used;
      auto last = free_by_address_.lower_bound(begin);
      Free before;
      if (last != free_by_address_.begin() && segment.used > 0) {
        --last;
        if (last->first + last->second.size == begin) before = last->second;
      }
      if (segment.size - segment.used < bytes - before.size) continue;
      if (before.size > 0) erase_free(last);
      segment.used += bytes - before.size;
      reserved_ += bytes - before.resident;
      return {begin - before.size, bytes};
    }
    add_segment(bytes);
  }
  exhausted(bytes);
}

void MemoryPool::add_segment(std::size_t bytes) {
  std::size_t size = first_segment;
  for (const Segment& segment : segments_) size += segment.size;  // doubles the total
  if (const std::optional<std::size_t> limit = address_limit())   // others need part of the limit
    size = std::min(size, (*limit - std::min(*limit, addresses_used())) / 16 / huge_page * huge_page);
  size = std::max(std::min(size, largest_segment), round_up(bytes, huge_page));
  void* address = map_pages(size + huge_page);
  if (!address) {  // address space is limited: settle for what is needed now
    size = round_up(bytes, huge_page);
    address = map_pages(size + huge_page);
  }
  if (!address) exhausted(bytes);
  auto* base = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(address), huge_page));
  madvise(base, size, MADV_HUGEPAGE);  // best effort: fewer page faults
  segments_.push_back({base, size, 0});
}

bool MemoryPool::starts_segment(const std::byte* address) const {
  return std::any_of(segments_.begin(), segments_.end(), [&](const Segment& s) { return s.base == address; });
}

void MemoryPool::insert_free(std::byte* address, Free free) noexcept {
  FreeMap::node_type by_address = std::move(address_nodes_.back());
  FreeSet::node_type by_size = std::move(size_nodes_.back());
  address_nodes_.pop_back();
  size_nodes_.pop_back();
  by_address.key() = address;
  by_address.mapped() = free;
  by_size.value() = {free.size, address};
  free_by_address_.insert(std::move(by_address));
  free_by_size_.insert(std::move(by_size));
}

void MemoryPool::erase_free(FreeMap::iterator free) noexcept {
  size_nodes_.push_back(free_by_size_.extract({free->second.size, free->first}));
  address_nodes_.push_back(free_by_address_.extract(free));
}

void MemoryPool::release_large(Block block) noexcept {
  --large_blocks_;
  std::byte* address = block.address;
  Free merged{block.capacity, block.capacity};
  const auto after = free_by_address_.find(address + block.capacity);
  if (after != free_by_address_.end() && !starts_segment(after->first)) {
    merged = {merged.size + after->second.size, merged.resident + after->second.resident};
    erase_free(after);
  }
  auto before = free_by_address_.lower_bound(address);
  if (before != free_by_address_.begin() && !starts_segment(address)) {
    --before;
    if (before->first + before->second.size == address) {
      address = before->first;
      merged = {merged.size + before->second.size, merged.resident + before->second.resident};
      erase_free(before);
    }
  }
  insert_free(address, merged);
}

void MemoryPool::drop_pages(std::size_t bytes) {
  std::size_t dropped = 0;
  for (auto free = free_by_size_.rbegin(); free != free_by_size_.rend() && dropped < bytes; ++free) {
    Free& block = free_by_address_.at(free->second);
    if (block.resident == 0) continue;
    madvise(free->second, block.size, MADV_DONTNEED);
    dropped += block.resident;
    reserved_ -= block.resident;
    block.resident = 0;
  }
}

void MemoryPool::trim() {
  const std::lock_guard lock(mutex_);
  drop_pages(SIZE_MAX);
}

MemoryStats MemoryPool::stats() const {
  const std::lock_guard lock(mutex_);
  return {current_, peak_, reserved_};
}

void MemoryPool::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = current_;
}

void MemoryPool::exhausted(std::size_t bytes) const {
  throw OutOfMemory(concat_text(
      "out of memory: ", bytes, " bytes requested on cpu, where tensors hold ", current_, " bytes (peak ",
      highest_, ", reserved from the system ", reserved_, ", system memory ", system_memory(),
      address_limit() ? "); " + address_space() : ")", "; use smaller batches or shorter sequences"));
}

// --- the memory entries of the backend ---------------------------------------------------------------------

namespace {

/// Never destroyed: tensors in static variables may outlive every other static object.
MemoryPool& pool() {
  static MemoryPool& instance = []() -> MemoryPool& {
    auto* made = new MemoryPool;
    pthread_atfork([] { pool().lock(); }, [] { pool().unlock(); }, [] { pool().unlock(); });
    return *made;
  }();
  return instance;
}

class CpuStorage final : public Storage {
 public:
  CpuStorage(Device device, std::size_t bytes, MemoryPool::Block block)
      : Storage(device, bytes, block.address), block_(block) {}
  ~CpuStorage() override { pool().release(block_); }

 private:
  MemoryPool::Block block_;
};

}  // namespace

std::shared_ptr<Storage> allocate(Device device, std::size_t bytes) {
  const MemoryPool::Block block = pool().allocate(bytes);
  try {
    return std::make_shared<CpuStorage>(device, bytes, block);
  } catch (...) {
    pool().release(block);
    throw;
  }
}

void upload(const void* host, const Tensor& to) {
  std::memcpy(first_byte(to), host, static_cast<std::size_t>(to.count()) * size_of(to.dtype()));
}

void download(const Tensor& from, void* host) {
  std::memcpy(host, first_byte(from), static_cast<std::size_t>(from.count()) * size_of(from.dtype()));
}

MemoryStats memory_stats(Device) {
  return pool().stats();
}
void reset_peak(Device) {
  pool().reset_peak();
}
void trim(Device) {
  pool().trim();
}

}  // namespace heed::cpu
