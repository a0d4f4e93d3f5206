#include "heed/backends/cpu/loop_times.h"

#include <ctime>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <queue>

#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/core/profile.h"
#include "heed/core/scope.h"

namespace heed::cpu {

/// Processor time spent on this thread, in seconds.
static double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

static double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

LoopRecorder::LoopRecorder() {
  check(!current_scope.loop_runner, "LoopRecorder: this thread is recording its loops already");
  current_scope.loop_runner = this;
  last_ = thread_seconds();
}

LoopRecorder::~LoopRecorder() {
  if (current_scope.loop_runner == this) current_scope.loop_runner = nullptr;
}

StepTimes LoopRecorder::stop() {
  times_.after = thread_seconds() - last_;
  current_scope.loop_runner = nullptr;
  return std::move(times_);
}

void LoopRecorder::run(std::int64_t tasks, TaskRef body) {
  if (tasks == 0) return;
  LoopTimes loop;
  double begin = thread_seconds();
  loop.before = begin - last_;
  if (const char* kernel = profiled_kernel()) loop.kernel = kernel;
  loop.tasks.reserve(static_cast<std::size_t>(tasks));
  current_scope.loop_runner = nullptr;  // a loop inside a task belongs to the task
  struct Again {
    LoopRecorder* self;
    ~Again() { current_scope.loop_runner = self; }
  } again{this};
  begin = thread_seconds();
  for (std::int64_t task = 0; task < tasks; ++task) {
    body(task);
    const double end = thread_seconds();
    loop.tasks.push_back(end - begin);
    begin = end;
  }
  times_.loops.push_back(std::move(loop));
  last_ = thread_seconds();
}

StepTimes median_step(std::span<const StepTimes> steps) {
  check(!steps.empty(), "median_step: there is no step");
  StepTimes result = steps[0];
  const auto over_steps = [&](auto choose_value) {
    std::vector<double> values;
    for (const StepTimes& step : steps) values.push_back(choose_value(step));
    return median(std::move(values));
  };
  result.after = over_steps([](const StepTimes& step) { return step.after; });
  for (const StepTimes& step : steps)
    check(step.loops.size() == result.loops.size(), "median_step: one step has ", result.loops.size(),
          " parallel loops, another ", step.loops.size());
  for (std::size_t i = 0; i < result.loops.size(); ++i) {
    LoopTimes& loop = result.loops[i];
    for (const StepTimes& step : steps)
      check(step.loops[i].tasks.size() == loop.tasks.size(), "median_step: loop ", i, " has ",
            loop.tasks.size(), " tasks in one step, ", step.loops[i].tasks.size(), " in another");
    loop.before = over_steps([&](const StepTimes& step) { return step.loops[i].before; });
    for (std::size_t task = 0; task < loop.tasks.size(); ++task)
      loop.tasks[task] = over_steps([&](const StepTimes& step) { return step.loops[i].tasks[task]; });
  }
  return result;
}

Schedule schedule(const StepTimes& step, int threads, double start) {
  check(threads >= 1, "schedule: the number of threads must be positive, got ", threads);
  Schedule result{step.after, step.after};
  for (const LoopTimes& loop : step.loops) {
    result.total += loop.before;
    result.serial += loop.before;
    const bool shared = threads > 1 && loop.tasks.size() > 1;
    // The times when threads become free, earliest first.
    std::priority_queue<double, std::vector<double>, std::greater<>> free(
        std::greater<>(), std::vector<double>(static_cast<std::size_t>(threads), shared ? start : 0.0));
    double end = 0;
    for (const double task : loop.tasks) {
      const double done = free.top() + task;
      free.pop();
      free.push(done);
      end = std::max(end, done);
    }
    result.total += end;
    if (loop.tasks.size() <= 1) result.serial += end;
  }
  return result;
}

double measure_loop_start() {
  constexpr int loops = 1000;
  const int threads = cpu_threads();
  std::vector<double> times;
  for (int i = 0; i < loops; ++i) {
    std::atomic<int> begun{0};
    const auto begin = std::chrono::steady_clock::now();
    const auto end = begin + std::chrono::milliseconds(1);
    parallel_for(threads, [&](std::int64_t) {
      ++begun;
      while (begun < threads && std::chrono::steady_clock::now() < end) {
      }
    });
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[loops / 10];
}

}  // namespace heed::cpu
