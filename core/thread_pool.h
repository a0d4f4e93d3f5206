#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "heed/base/error.h"

// One pool of threads for CPU kernels and for preparing data. The number and size of a loop's tasks depend only on the shapes,
// never on the number of threads, so that results have the same bits on any number of cores.

namespace heed {

/// A reference to a callable, which must outlive the call: two words, no allocation.
class TaskRef {
 public:
  template <class Body, class = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<Body>, TaskRef>>>
  TaskRef(Body&& body)
      : body_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
        call_([](void* b, std::int64_t task) { (*static_cast<std::remove_reference_t<Body>*>(b))(task); }) {}
  void operator()(std::int64_t task) const { call_(body_, task); }

 private:
  void* body_;
  void (*call_)(void*, std::int64_t);
};

/// Calls body(task) for every task in [0, tasks), in any order, on the pool; returns when all are
/// done. A task that throws ends the loop early, and the exception is rethrown here. A call from
/// inside a task, or while another thread of the program is using the pool, runs serially. Waking
/// the threads costs 1 to 80 us: make work below about 10 us a single task.
void parallel_for(std::int64_t tasks, TaskRef body);

/// Calls body(begin, end) for [0, count) cut into pieces of `grain` (the last may be shorter).
template <class Body>
void parallel_ranges(std::int64_t count, std::int64_t grain, Body&& body) {
  const std::int64_t tasks = ceil_div(count, grain);
  parallel_for(tasks, [&](std::int64_t task) {
    const std::int64_t begin = task * grain;
    body(begin, std::min(begin + grain, count));
  });
}

/// Returns how many pieces of `piece_elements` make a task of about `task_elements`; at least 1.
inline std::int64_t pieces_per_task(std::int64_t task_elements, std::int64_t piece_elements) {
  return std::max<std::int64_t>(1, task_elements / std::max<std::int64_t>(1, piece_elements));
}

/// Returns the number of processors this process may run on.
int available_processors();

/// Returns working memory of the calling thread: one buffer per slot, kept between tasks and grown
/// when needed, cache-line aligned. It holds whatever the last user left.
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
  constexpr int slots = 13;
  thread_local Buffer buffers[slots];
  Buffer& buffer = buffers[slot];
  if (const std::size_t needed = count * sizeof(T); buffer.size < needed) {
    buffer.bytes.reset();
    buffer.size = 0;  // in case the next line throws
    buffer.bytes.reset(static_cast<std::byte*>(::operator new[](needed, alignment)));
    buffer.size = needed;
  }
  return reinterpret_cast<T*>(buffer.bytes.get());
}

}  // namespace heed
