#include "heed/base/fork.h"

#include <pthread.h>

#include <set>

#include "heed/base/error.h"

namespace heed {
namespace {

/// All of the process. Never destroyed, since static objects may hold mutexes.
struct LeafMutexes {
  std::mutex mutex;
  std::set<LeafMutex*> all;
  std::atomic<std::uint64_t> depth = 0;

  static LeafMutexes& instance() {
    static LeafMutexes& made = []() -> LeafMutexes& {
      auto* const mutexes = new LeafMutexes;
      pthread_atfork([] { instance().lock(); }, [] { instance().unlock(); },
                     [] {
                       ++instance().depth;
                       instance().unlock();
                     });
      return *mutexes;
    }();
    return made;
  }

  void lock() {
    mutex.lock();
    for (LeafMutex* one : all) one->lock();
  }
  void unlock() {
    for (LeafMutex* one : all) one->unlock();
    mutex.unlock();
  }
};

}  // namespace

std::uint64_t fork_depth() {
  return LeafMutexes::instance().depth.load(std::memory_order_relaxed);
}

LeafMutex::LeafMutex() {
  const std::lock_guard lock(LeafMutexes::instance().mutex);
  LeafMutexes::instance().all.insert(this);
}

LeafMutex::~LeafMutex() {
  const std::lock_guard lock(LeafMutexes::instance().mutex);
  LeafMutexes::instance().all.erase(this);
}

std::shared_mutex& UseLock::mutex() {
  const std::uint64_t depth = changing_in_;
  check(depth == nowhere || depth == fork_depth(),
        "another thread was changing this run when fork() made this process, so that it is half done here; "
        "open the run again");
  return mutex_.get();
}

}  // namespace heed
