#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/backends/cpu/thread_pool.h"

// How a program would scale: the tasks of its parallel loops, timed one by one on one thread, and what a
// number of threads would make of them. Only machines with many cores can measure that; this says it
// anywhere.

namespace heed::cpu {

/// One parallel loop. Times are seconds of the processor, so that other programs do not count.
struct LoopTimes {
  std::string kernel;         ///< that it belongs to, while a profile is recorded, too
  double before = 0;          ///< since the loop before, or since the start
  std::vector<double> tasks;  ///< in order
};

/// A stretch of a program: its loops, and what comes after the last.
struct StepTimes {
  std::vector<LoopTimes> loops;
  double after = 0;
};

/// Records the loops of the calling thread from here to stop(). They run on this thread alone meanwhile, to
/// the same bits; loops of other threads are not touched. One at a time: a second one throws an Error.
class LoopRecorder {
 public:
  LoopRecorder();
  ~LoopRecorder();
  LoopRecorder(const LoopRecorder&) = delete;
  LoopRecorder& operator=(const LoopRecorder&) = delete;

  StepTimes stop();

 private:
  friend void parallel_for(std::int64_t tasks, TaskRef body);  // asks once a loop whether one is active
  void run(std::int64_t tasks, TaskRef body);

  static inline constinit thread_local LoopRecorder* active_ = nullptr;

  StepTimes times_;
  double last_;  // when the last loop ended
};

/// The same step several times: the median of each task and of each stretch between loops. Throws an Error
/// when the steps do not consist of the same loops.
StepTimes median_of(std::span<const StepTimes> steps);

/// What a step takes on some threads, in seconds.
struct Schedule {
  double total = 0;
  double serial = 0;  ///< of it, where only one thread has work: between loops, and in loops of one task
};

/// Each task of a loop, in order, goes to the thread that is free first; nobody goes on before the loop is
/// done. A loop of two tasks or more starts `start` seconds late where there are two threads or more.
Schedule schedule(const StepTimes& step, int threads, double start);

/// The seconds by the clock until all threads of the pool have begun a loop and ended it again: the first
/// decile of many tries, so that other programs do not count.
double measure_loop_start();

}  // namespace heed::cpu
