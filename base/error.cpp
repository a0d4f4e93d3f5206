#include "heed/base/error.h"
#include "heed/base/plain_numbers.h"

#include <chrono>
#include <limits>
#include <utility>

namespace heed {

std::string concat_parts(std::initializer_list<TextPart> parts) {
  PlainStream text;
  for (const TextPart& part : parts) part.write(text, part.value);
  return text.str();
}

void fail_with(std::initializer_list<TextPart> parts) {
  throw Error(concat_parts(parts));
}

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
  StopCheck& asked = *innermost;
  asked.next_ = std::numeric_limits<double>::infinity();  // no nested check while stop_() itself uses heed
  const bool stops = asked.stop_();
  asked.next_ = now + 0.05;
  if (stops) throw Interrupted();
}

}  // namespace heed
