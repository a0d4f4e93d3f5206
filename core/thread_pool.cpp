#include "heed/core/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "heed/base/error.h"
#include "heed/base/plain_arithmetic.h"
#include "heed/core/device.h"
#include "heed/core/scope.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace heed {

namespace {

constexpr int max_threads = 1000;
constexpr auto spin_time = std::chrono::microseconds(50);

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// A running loop: a counter hands out the tasks.
class Job {
 public:
  Job(std::int64_t tasks, TaskRef body) : tasks_(tasks), body_(body) {}

  void run() {
    const Scope before = std::exchange(current_scope, scope_);
    try {
      for (;;) {
        const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
        if (task >= tasks_) break;
        body_(task);
      }
    } catch (...) {
      next_.store(tasks_, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    current_scope = before;
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const std::int64_t tasks_;
  const TaskRef body_;
  const Scope scope_ = current_scope.in_task();
  std::atomic<std::int64_t> next_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// The workers watch one word, the gate: {epoch, open, workers inside}. A job is published by opening the
/// gate in a new epoch. A worker enters with a compare-exchange, so none can enter once the caller has
/// closed the gate. Workers that are late (asleep) are not waited for.
class ThreadPool {
 public:
  /// The pool of this process. Its threads end when static objects are destroyed; later work starts them
  /// again. After fork() the child has none of the threads, only their memory, which it leaves alone: it
  /// gets a pool of its own and computes the same bits.
  static ThreadPool& instance() {
    ThreadPool* pool = current_.load(std::memory_order_acquire);
    return pool ? *pool : first_use();
  }

  int threads() const { return threads_.load(std::memory_order_relaxed); }

  void resize(int threads) {
    const std::lock_guard lock(owner_);
    if (threads == this->threads()) return;
    stop();
    threads_.store(threads, std::memory_order_relaxed);
  }

  void run(std::int64_t tasks, TaskRef body) {
    std::unique_lock lock(owner_, std::defer_lock);
    if (tasks <= 1 || threads() == 1 || current_scope.inside_task || !lock.try_lock()) {
      for (std::int64_t task = 0; task < tasks; ++task) body(task);
      return;
    }
    if (workers_.empty()) start();
    Job job(tasks, body);
    job_ = &job;
    const std::uint32_t epoch = (gate_.load(std::memory_order_relaxed) & ~(epoch_unit - 1)) + epoch_unit;
    gate_.store(epoch | open_bit, std::memory_order_release);
    gate_.notify_all();
    job.run();
    gate_.fetch_and(~open_bit, std::memory_order_acq_rel);
    wait_until_empty();
    lock.unlock();
    job.rethrow();
  }

 private:
  static constexpr std::uint32_t inside_mask = 0x3ff;  // up to 1023 workers
  static constexpr std::uint32_t open_bit = 0x400;
  // Epochs wrap around; if a worker then misses a job, no harm is done.
  static constexpr std::uint32_t epoch_unit = 0x800;

  explicit ThreadPool(int threads) : threads_(threads) {}

  static ThreadPool& first_use() {
    static std::mutex mutex;
    static const bool prepared = [] {
      pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                     [] {
                       mutex.unlock();
                       if (ThreadPool* pool = current_.exchange(nullptr)) parents_ = pool;
                     });
      return true;
    }();
    static const Joiner joiner;
    static_cast<void>(prepared);
    const std::lock_guard lock(mutex);
    ThreadPool* pool = current_.load(std::memory_order_relaxed);
    if (!pool) {
      pool = new ThreadPool(parents_ ? parents_->threads() : std::min(available_processors(), max_threads));
      current_.store(pool, std::memory_order_release);
    }
    return *pool;
  }

  /// Ends the threads when static objects are destroyed, since the library may be unloaded then.
  struct Joiner {
    ~Joiner() {
      if (ThreadPool* pool = current_.load(std::memory_order_acquire)) pool->stop();
    }
  };

  void start() {
    stopping_.store(false, std::memory_order_relaxed);
    const int workers = threads() - 1;
    workers_.reserve(static_cast<std::size_t>(workers));
    // A worker without a processor of its own would only take time from the others by spinning.
    const bool spin = threads() <= available_processors();
    try {
      for (int i = 0; i < workers; ++i) workers_.emplace_back([this, spin] { work(spin); });
    } catch (const std::system_error&) {
      // The system refuses more threads: the loop runs on those that started, and always on the caller.
    }
  }

  void stop() {
    stopping_.store(true, std::memory_order_relaxed);
    gate_.store((gate_.load(std::memory_order_relaxed) & ~(epoch_unit - 1)) + epoch_unit,
                std::memory_order_release);
    gate_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  void work(bool spin) {
    const PlainArithmetic plain;  // instead of what the thread inherits
    std::uint32_t seen = gate_.load(std::memory_order_acquire) & ~(epoch_unit - 1);
    // The job that started this worker may already be running: treat it as new.
    seen -= epoch_unit;
    while (!stopping_.load(std::memory_order_acquire)) {
      std::uint32_t gate = wait_for_new_epoch(seen, spin);
      seen = gate & ~(epoch_unit - 1);
      while ((gate & open_bit) && (gate & ~(epoch_unit - 1)) == seen) {
        if (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) continue;
        job_->run();
        gate_.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }

  std::uint32_t wait_for_new_epoch(std::uint32_t seen, bool spin) {
    const auto is_new = [&](std::uint32_t gate) { return (gate & ~(epoch_unit - 1)) != seen; };
    std::uint32_t gate = gate_.load(std::memory_order_acquire);
    if (spin) {
      const auto end = std::chrono::steady_clock::now() + spin_time;
      while (!is_new(gate) && std::chrono::steady_clock::now() < end) {
        for (int i = 0; i < 16 && !is_new(gate); ++i) {
          relax();
          gate = gate_.load(std::memory_order_acquire);
        }
      }
    }
    while (!is_new(gate)) {
      gate_.wait(gate, std::memory_order_acquire);
      gate = gate_.load(std::memory_order_acquire);
    }
    return gate;
  }

  void wait_until_empty() {
    const auto end = std::chrono::steady_clock::now() + spin_time;
    for (int i = 0; gate_.load(std::memory_order_acquire) & inside_mask; ++i)
      if (i % 16 == 15 && std::chrono::steady_clock::now() > end)
        std::this_thread::yield();
      else
        relax();
  }

  static inline std::atomic<ThreadPool*> current_{nullptr};
  static inline ThreadPool* parents_ = nullptr;  // the parent's pool, in a forked process

  std::mutex owner_;  // held by the thread whose job is running
  std::atomic<int> threads_;
  std::atomic<std::uint32_t> gate_{0};
  std::atomic<bool> stopping_{false};
  Job* job_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace

int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void parallel_for(std::int64_t tasks, TaskRef body) {
  const PlainArithmetic plain;
  ThreadPool::instance().run(tasks, body);
}

void set_cpu_threads(int count) {
  check(count >= 1 && count <= max_threads, "set_cpu_threads: the number of threads must lie in [1, ",
        max_threads, "], got ", count);
  check(!current_scope.inside_task, "set_cpu_threads: must not be called from inside a kernel");
  ThreadPool::instance().resize(count);
}

int cpu_threads() {
  return ThreadPool::instance().threads();
}

}  // namespace heed
