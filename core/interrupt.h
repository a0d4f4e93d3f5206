#pragma once

#include <exception>
#include <functional>

namespace heed {

/// What a StopCheck ends work with. No heed::Error, so that nobody takes it for one of a line or a file and goes on.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted, as the program asked"; }
};

/// While it lives, work of this thread asks `stop` now and then, 20 times a second at most, where an op makes its result,
/// which may fail for want of memory too: true ends the work with Interrupted. For computing and measuring; what changes
/// weights or gradients in several steps is not to be left half done. Works within another ask the innermost alone.
class StopCheck {
 public:
  explicit StopCheck(std::function<bool()> stop);
  ~StopCheck();
  StopCheck(const StopCheck&) = delete;
  StopCheck& operator=(const StopCheck&) = delete;

 private:
  StopCheck* previous_;
  std::function<bool()> stop_;
  double next_ = 0;  // when to ask again, in seconds
  friend void check_stop();
};

/// Throws Interrupted when the StopCheck of this thread, if there is one, says so.
void check_stop();

}  // namespace heed
