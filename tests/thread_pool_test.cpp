#include "heed/backends/cpu/thread_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/device.h"
#include "with_threads.h"

namespace heed {

TEST_CASE("parallel_for runs every task once, for any number of threads") {
  for (int threads : {1, 2, 3, 8}) {
    const WithThreads scope(threads);
    CHECK(cpu_threads() == threads);
    for (std::int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(tasks));
      cpu::parallel_for(tasks, [&](std::int64_t task) { ++runs[static_cast<std::size_t>(task)]; });
      CHECK(runs == std::vector<int>(static_cast<std::size_t>(tasks), 1));
    }
  }
}

TEST_CASE("parallel_for sees what earlier loops wrote, loop after loop") {
  const WithThreads scope(4);
  std::vector<std::uint64_t> values(64, 1);
  std::uint64_t even = 1, odd = 1;
  for (int loop = 0; loop < 2000; ++loop) {
    // Every task reads its neighbour, which another thread may have written in the loop before.
    cpu::parallel_for(32, [&](std::int64_t task) {
      const std::size_t mine = static_cast<std::size_t>(2 * task) + static_cast<std::size_t>(loop % 2);
      values[mine] += values[mine ^ 1];
    });
    (loop % 2 ? odd : even) += loop % 2 ? even : odd;
  }
  for (std::size_t i = 0; i < 64; ++i) CHECK(values[i] == (i % 2 ? odd : even));
}

TEST_CASE("parallel_for uses several threads at once") {
  const WithThreads scope(3);
  std::atomic<int> inside{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  cpu::parallel_for(3, [&](std::int64_t) {  // ends only when all three have begun
    ++inside;
    while (inside < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  CHECK(inside == 3);
  CHECK(std::chrono::steady_clock::now() < deadline);
}

TEST_CASE("parallel_for wakes threads that have gone to sleep") {
  const WithThreads scope(2);
  for (int loop = 0; loop < 5; ++loop) {
    std::atomic<std::int64_t> sum{0};
    cpu::parallel_for(100, [&](std::int64_t task) { sum += task; });
    CHECK(sum == 4950);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_CASE("parallel_for inside a task runs serially") {
  const WithThreads scope(4);
  std::atomic<int> runs{0};
  cpu::parallel_for(8, [&](std::int64_t) {
    const auto self = std::this_thread::get_id();
    cpu::parallel_for(5, [&](std::int64_t) {
      CHECK(std::this_thread::get_id() == self);
      ++runs;
    });
  });
  CHECK(runs == 40);
}

TEST_CASE("parallel_for throws a task's exception in the caller, and goes on working") {
  for (int threads : {1, 4}) {
    const WithThreads scope(threads);
    for (int loop = 0; loop < 20; ++loop) {
      CHECK_THROWS_WITH_AS(cpu::parallel_for(50,
                                             [](std::int64_t task) {
                                               if (task == 17) throw std::runtime_error("task 17");
                                             }),
                           "task 17", std::runtime_error);
      std::atomic<int> runs{0};
      cpu::parallel_for(50, [&](std::int64_t) { ++runs; });
      CHECK(runs == 50);
    }
  }
}

TEST_CASE("parallel_for called by several threads of the program") {
  const WithThreads scope(3);
  std::vector<std::thread> callers;
  std::vector<std::int64_t> sums(4, 0);
  for (std::size_t caller = 0; caller < sums.size(); ++caller)
    callers.emplace_back([&sums, caller] {
      for (int loop = 0; loop < 200; ++loop) {
        std::vector<std::int64_t> squares(20);
        cpu::parallel_for(20,
                          [&](std::int64_t task) { squares[static_cast<std::size_t>(task)] = task * task; });
        sums[caller] += std::accumulate(squares.begin(), squares.end(), std::int64_t{0});
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(sums == std::vector<std::int64_t>(4, 200 * 2470));
}

TEST_CASE("parallel_ranges cuts where the grain says, whatever the number of threads") {
  for (int threads : {1, 3}) {
    const WithThreads scope(threads);
    std::vector<std::int64_t> ends(3, 0);
    cpu::parallel_ranges(25, 10, [&](std::int64_t begin, std::int64_t end) {
      ends[static_cast<std::size_t>(begin / 10)] = end;
    });
    CHECK(ends == std::vector<std::int64_t>{10, 20, 25});
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which end the program at such a size
TEST_CASE("working memory of a thread is there again after an allocation that failed") {
  const auto* const first = cpu::thread_scratch<float>(0, 100);
  REQUIRE(first);
  CHECK_THROWS_AS(cpu::thread_scratch<float>(0, std::size_t{1} << 60), std::bad_alloc);
  float* const again = cpu::thread_scratch<float>(0, 50);
  REQUIRE(again);
  again[49] = 1;
}
#endif

TEST_CASE("set_cpu_threads refuses nonsense") {
  CHECK_THROWS_AS(set_cpu_threads(0), Error);
  CHECK_THROWS_AS(set_cpu_threads(-3), Error);
  CHECK_THROWS_AS(set_cpu_threads(100000), Error);
  const WithThreads scope(2);
  CHECK_THROWS_AS(cpu::parallel_for(1000, [](std::int64_t) { set_cpu_threads(1); }), Error);
}

}  // namespace heed
