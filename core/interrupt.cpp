#include "heed/core/interrupt.h"

#include <chrono>
#include <utility>

namespace heed {

namespace {
thread_local StopCheck* innermost = nullptr;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

StopCheck::StopCheck(std::function<bool()> stop)
    : previous_(std::exchange(innermost, this)), stop_(std::move(stop)) {}

StopCheck::~StopCheck() {
  innermost = previous_;
}

void check_stop() {
  if (!innermost || !innermost->stop_) return;
  const double now = seconds_now();
  if (now < innermost->next_) return;
  if (innermost->stop_()) throw Interrupted();
  innermost->next_ = now + 0.05;
}

}  // namespace heed
