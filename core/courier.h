#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace heed {

/// A thread that does one piece of work at a time, while who gave it goes on. All calls of a transport are made on one,
/// because MPI answers a single thread only.
class Courier {
 public:
  Courier();
  ~Courier();  ///< waits for the work; what it throws is lost
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Waits for what was started before, as finish() does, and hands the work over.
  void start(std::function<void()> work);
  /// Waits for the work and throws what it threw.
  void finish();
  /// Has the work done, at once where this thread is the courier's, and waits.
  void run(const std::function<void()>& work);
  bool is_current() const { return std::this_thread::get_id() == thread_.get_id(); }
  /// Whether another thread waits for the work.
  bool is_awaited() const;

 private:
  void serve();
  void wait(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: none
  bool busy_ = false, ending_ = false, awaited_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace heed
