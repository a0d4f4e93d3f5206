#include "heed/base/error.h"

#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <system_error>
#include <utility>

#include "heed/base/plain_numbers.h"

namespace heed {

std::string concat_parts(std::initializer_list<TextPart> parts) {
  PlainStream text;
  for (const TextPart& part : parts) part.write(text, part.value);
  return text.str();
}

void fail_with(std::initializer_list<TextPart> parts) {
  throw Error(concat_parts(parts));
}

std::string reason_of(int code) {
  std::string reason = std::generic_category().message(code);
  if (code != EFBIG) return reason;
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return reason + ": the file system allows no larger file";
  return reason + concat_text(": this process may write files of at most ", limit.rlim_cur,
                              " bytes; raise that limit (ulimit -f)");
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
