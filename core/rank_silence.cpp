#include "heed/core/rank_silence.h"

#include <algorithm>
#include <cmath>

namespace heed {
namespace {

std::string names_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text.append(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ").append(std::to_string(ranks[i]));
  return text;
}

/// One rank speaks for all: the lowest that is not silent itself.
int speaker(const std::vector<int>& silent) {
  int rank = 0;
  while (std::ranges::count(silent, rank) > 0) ++rank;
  return rank;
}

}  // namespace

std::string silence_text(const std::vector<int>& ranks, const char* what, double seconds) {
  return concat_text(names_of(ranks), ranks.size() == 1 ? " has not " : " have not ", what, " for ",
                     std::llround(seconds), " s");
}

void AwakeTime::restart() {
  last_ = std::chrono::steady_clock::now();
  seconds_ = 0;
}

void AwakeTime::look() {
  const auto now = std::chrono::steady_clock::now();
  seconds_ += std::min(std::chrono::duration<double>(now - std::exchange(last_, now)).count(), 2.0);
}

void RankSilence::heard() {
  if (!named_.empty()) {
    quiet_.look();
    longest_ = std::max(longest_, quiet_.seconds());
    patience_.say(concat_text(names_of(named_), named_.size() == 1 ? " answers" : " answer", " again, after ",
                              std::llround(quiet_.seconds()), " s"));
    named_.clear();
  }
  quiet_.restart();
}

void RankSilence::wait_for(const std::vector<int>& silent) {
  if (!courier_.is_awaited()) return quiet_.restart();
  quiet_.look();
  const double seconds = quiet_.seconds();
  const bool speaks = speaker(silent) == rank_;
  // The speaker ends first, and its words are the ones that are read.
  if (patience_.timeout > 0 && seconds >= patience_.timeout + (speaks ? 0 : 2))
    throw RankSilent(concat_text("ranks: ", silence_text(silent, "answered", seconds),
                                 ": stopped, cut off, or at work for longer than the limit of ",
                                 patience_.timeout, " s; a run goes on from its last checkpoint"));
  // Who came late once and was waited for may be as late again.
  if (!named_.empty() || !speaks || !patience_.say) return;
  if (seconds < std::max(patience_.remark_after, 2 * longest_)) return;
  named_ = silent;
  patience_.say(silence_text(silent, "answered", seconds) + ": waiting on");
}

}  // namespace heed
