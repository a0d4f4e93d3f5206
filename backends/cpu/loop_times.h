#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/core/thread_pool.h"

// Predicts how a program would scale: times the tasks of its parallel loops one by one on one thread,
// and schedules them on a given number of threads. Measuring this takes a machine with many cores;
// predicting it works anywhere.

namespace heed::cpu {

/// One parallel loop. Times are seconds of processor time, so that other programs do not count.
struct LoopTimes {
  std::string kernel;         ///< the kernel it belongs to, if a profile is recorded
  double before = 0;          ///< time since the previous loop, or since the start
  std::vector<double> tasks;  ///< in order
};

/// A section of a program: its loops, and the time after the last.
struct StepTimes {
  std::vector<LoopTimes> loops;
  double after = 0;
};

/// Records the loops of the calling thread until stop(). Meanwhile they run on this thread alone,
/// with the same bits; loops of other threads are not affected. Throws an Error if this thread is
/// already recording.
class LoopRecorder final : LoopRunner {
 public:
  LoopRecorder();
  ~LoopRecorder();
  LoopRecorder& operator=(LoopRecorder&&) = delete;

  StepTimes stop();

 private:
  void run(std::int64_t tasks, TaskRef body) override;

  StepTimes times_;
  double last_;  // end of the last loop
};

/// Combines several runs of the same step: the median of each task and of each gap between loops.
/// Throws an Error if the steps do not consist of the same loops.
StepTimes median_step(std::span<const StepTimes> steps);

/// The time of a step on a given number of threads, in seconds.
struct Schedule {
  double total = 0;
  /// The part with work for one thread only: between loops, and loops of one task.
  double serial = 0;
};

/// Simulates a step on `threads` threads. Each task of a loop, in order, goes to the thread that is
/// free first; all threads wait for the end of the loop. With two or more threads, a loop of two or
/// more tasks starts `start` seconds late.
Schedule schedule(const StepTimes& step, int threads, double start);

/// Measures the wall-clock seconds that all threads of the pool need to begin a loop and end it
/// again: the first decile of many tries, so that other programs do not count.
double measure_loop_start();

}  // namespace heed::cpu
