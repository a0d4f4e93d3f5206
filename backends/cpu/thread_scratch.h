#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace heed::cpu {

/// Working memory of the calling thread: one buffer per slot, kept from task to task and grown when needed.
/// The content is whatever the last user left. Cache-line aligned.
template <class T>
T* thread_scratch(int slot, std::size_t count) {
  constexpr std::align_val_t alignment{64};
  struct Release {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, alignment); }
  };
  struct Buffer {
    std::unique_ptr<std::byte[], Release> bytes;
    std::size_t size = 0;
  };
  constexpr int slots = 8;
  thread_local Buffer buffers[slots];
  Buffer& buffer = buffers[slot];
  if (const std::size_t needed = count * sizeof(T); buffer.size < needed) {
    buffer.bytes.reset();
    buffer.size = 0;  // also where the next line throws
    buffer.bytes.reset(static_cast<std::byte*>(::operator new[](needed, alignment)));
    buffer.size = needed;
  }
  return reinterpret_cast<T*>(buffer.bytes.get());
}

}  // namespace heed::cpu
