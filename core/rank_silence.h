#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "heed/core/courier.h"
#include "heed/core/ranks.h"

namespace heed {

/// "rank 1", "ranks 0 and 2", "ranks 0, 2 and 3", and how long: "rank 1 has not answered for 12 s".
std::string silence_text(const std::vector<int>& ranks, const char* what, double seconds);

/// Seconds from one look to the next, without those in which this process was stopped itself.
class AwakeTime {
 public:
  void restart();
  void look();
  double seconds() const { return seconds_; }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double seconds_ = 0;
};

/// Watches, on the courier's thread, how long other ranks have not answered. Only time during which somebody
/// waits for the courier counts: a rank that computes while its gradients travel misses nobody.
class RankSilence {
 public:
  RankSilence(int rank, RankPatience patience, const Courier& courier)
      : rank_(rank), patience_(std::move(patience)), courier_(courier) {}

  /// For transports: a transfer begins, or bytes have moved.
  void heard();
  /// For transports, about once a second while nothing moves: the ranks, in their order, with which bytes are
  /// outstanding. Throws RankSilent when patience is at its end.
  void wait_for(const std::vector<int>& silent);

 private:
  int rank_;
  RankPatience patience_;
  const Courier& courier_;
  AwakeTime quiet_;
  std::vector<int> named_;  // ranks that were said not to answer
  double longest_ = 0;      // silence of those that answered in the end, in seconds
};

}  // namespace heed
