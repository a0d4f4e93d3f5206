#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>

// What survives fork(): the child has the memory of its parent, but only one of its threads.

namespace heed {

/// The number of fork() calls between the first process and this one.
std::uint64_t fork_depth();

/// A mutex for short sections in which no other lock is taken. fork() waits for it, so that the
/// child finds it free, and what it guards whole.
class LeafMutex {
 public:
  LeafMutex();
  ~LeafMutex();
  LeafMutex& operator=(LeafMutex&&) = delete;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// An object that every process makes for itself, at its first use. A child leaves that of its
/// parent alone: threads that it does not have may hold its locks.
template <class T>
class PerProcess {
 public:
  PerProcess() = default;
  ~PerProcess() {
    Own* const own = own_.load();
    if (own && own->depth == fork_depth()) delete own;
  }
  PerProcess& operator=(PerProcess&&) = delete;

  template <class... Arguments>
  T& get(const Arguments&... arguments) {
    Own* own = own_.load();
    while (!own || own->depth != fork_depth()) {
      std::unique_ptr<Own> made(new Own{fork_depth(), T(arguments...)});
      if (own_.compare_exchange_strong(own, made.get())) own = made.release();
    }
    return own->value;
  }

 private:
  struct Own {
    std::uint64_t depth;
    T value;
  };
  std::atomic<Own*> own_ = nullptr;
};

/// Lets calls that read an object run together, and one that changes it run alone. In a child of
/// fork() it is free. It throws there if a thread of the parent was changing the object.
class UseLock {
 public:
  class Alone {
   public:
    explicit Alone(UseLock& of) : lock_(of.mutex()), of_(of) { of_.changing_in_ = fork_depth(); }
    ~Alone() { of_.changing_in_ = nowhere; }
    Alone& operator=(Alone&&) = delete;

   private:
    std::unique_lock<std::shared_mutex> lock_;
    UseLock& of_;
  };

  std::shared_lock<std::shared_mutex> shared() { return std::shared_lock(mutex()); }
  Alone alone() { return Alone(*this); }

 private:
  static constexpr std::uint64_t nowhere = UINT64_MAX;
  std::shared_mutex& mutex();

  PerProcess<std::shared_mutex> mutex_;
  std::atomic<std::uint64_t> changing_in_ = nowhere;  // the depth of the process that changes it
};

}  // namespace heed
