// The pools of threads and of memory.

#include <cfenv>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "heed/backends/cpu/memory_pool.h"
#include "heed/base/json.h"
#include "heed/base/plain_numbers.h"
#include "heed/core/backend.h"
#include "heed/core/thread_pool.h"
#include "heed/tests/support.h"

TEST_CASE("parallel_for runs every task once, for any number of threads") {
  for (int threads : {1, 2, 3, 8}) {
    const WithThreads scope(threads);
    CHECK(cpu_threads() == threads);
    for (std::int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(tasks));
      parallel_for(tasks, [&](std::int64_t task) { ++runs[static_cast<std::size_t>(task)]; });
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
    parallel_for(32, [&](std::int64_t task) {
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
  parallel_for(3, [&](std::int64_t) {  // ends only when all three have begun
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
    parallel_for(100, [&](std::int64_t task) { sum += task; });
    CHECK(sum == 4950);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_CASE("parallel_for inside a task runs serially") {
  const WithThreads scope(4);
  std::atomic<int> runs{0};
  parallel_for(8, [&](std::int64_t) {
    const auto self = std::this_thread::get_id();
    parallel_for(5, [&](std::int64_t) {
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
      CHECK_THROWS_WITH_AS(parallel_for(50,
                                        [](std::int64_t task) {
                                          if (task == 17) throw std::runtime_error("task 17");
                                        }),
                           "task 17", std::runtime_error);
      std::atomic<int> runs{0};
      parallel_for(50, [&](std::int64_t) { ++runs; });
      CHECK(runs == 50);
    }
  }
}

TEST_CASE("parallel_for called by several threads of the program") {
  const WithThreads scope(3);
  std::vector<std::int64_t> sums(4, 0);
  at_once(sums.size(), [&](std::size_t caller) {
    for (int loop = 0; loop < 200; ++loop) {
      std::vector<std::int64_t> squares(20);
      parallel_for(20, [&](std::int64_t task) { squares[static_cast<std::size_t>(task)] = task * task; });
      sums[caller] += std::accumulate(squares.begin(), squares.end(), std::int64_t{0});
    }
  });
  CHECK(sums == std::vector<std::int64_t>(4, 200 * 2470));
}

TEST_CASE("parallel_ranges cuts where the grain says, whatever the number of threads") {
  for (int threads : {1, 3}) {
    const WithThreads scope(threads);
    std::vector<std::int64_t> ends(3, 0);
    parallel_ranges(25, 10, [&](std::int64_t begin, std::int64_t end) {
      ends[static_cast<std::size_t>(begin / 10)] = end;
    });
    CHECK(ends == std::vector<std::int64_t>{10, 20, 25});
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which end the program at such a size
TEST_CASE("results and numbers in texts do not depend on the arithmetic that the program has set") {
  const auto bits = [] {
    const Tensor x = uniform({1 << 20}, -1, 1, {1, 0, 1}), tiny = x * 1e-20;
    const std::vector<Tensor> all{tiny * tiny, sum(reshape(x, {1 << 10, 1 << 10}), 1),
                                  softmax(reshape(x, {4, 1 << 18}), 1),
                                  matmul(reshape(x, {1 << 10, 1 << 10}), reshape(x, {1 << 10, 1 << 10}))};
    Doubles values{parsed_number("0.1").value(), parse_json<nlohmann::json>("0.1", "it").get<double>(),
                   parsed_number(formatted("%.3f", 0.1235)).value(),
                   parsed_number(concat_text(2.0 / 3)).value()};
    std::vector<Floats> results;
    for (const Tensor& one : all) results.push_back(one.to_vector<float>());
    return std::pair(values, results);
  };
  for (const int threads : {1, 4}) {
    const WithThreads scope(threads);
    const auto expected = bits();
    for (const bool started : {true, false})
      for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        CAPTURE(rounding);
        std::optional<WithThreads> others;
        if (!started) others.emplace(threads + 1);  // whose threads start below
        std::fenv_t before;
        std::fegetenv(&before);
        std::fesetround(rounding);
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);  // flush results, and take operands, to zero
        const unsigned set = _mm_getcsr();
#endif
        const auto found = bits();
        const bool kept = std::fegetround() == rounding;
#if defined(__x86_64__)
        const unsigned left = _mm_getcsr();
#endif
        std::fesetenv(&before);
        CHECK(found == expected);
        CHECK(kept);
#if defined(__x86_64__)
        CHECK((left & ~0x3fu) == (set & ~0x3fu));
#endif
      }
  }
}

TEST_CASE("the working memory of a thread is available again after a failed allocation") {
  const auto* const first = thread_scratch<float>(0, 100);
  REQUIRE(first);
  CHECK_THROWS_AS(thread_scratch<float>(0, std::size_t{1} << 60), std::bad_alloc);
  float* const again = thread_scratch<float>(0, 50);
  REQUIRE(again);
  again[49] = 1;
}
#endif

TEST_CASE("set_cpu_threads refuses nonsense") {
  CHECK_THROWS_AS(set_cpu_threads(0), Error);
  CHECK_THROWS_AS(set_cpu_threads(-3), Error);
  CHECK_THROWS_AS(set_cpu_threads(100000), Error);
  const WithThreads scope(2);
  CHECK_THROWS_AS(parallel_for(1000, [](std::int64_t) { set_cpu_threads(1); }), Error);
}

namespace {

using cpu::MemoryPool;

/// A block filled with its own number, so that overlaps are seen.
struct Owned {
  MemoryPool::Block block;
  std::size_t bytes;
  unsigned char mark;
};

bool intact(const Owned& owned) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(owned.block.address);
  return std::all_of(bytes, bytes + owned.bytes, [&](unsigned char byte) { return byte == owned.mark; });
}

}  // namespace

TEST_CASE("memory pool: blocks are aligned, large enough and never overlap") {
  MemoryPool pool;
  std::mt19937 generator(5);
  std::vector<Owned> live;
  std::size_t current = 0;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() > 40 || (!live.empty() && generator() % 3 == 0)) {
      std::swap(live[generator() % live.size()], live.back());
      CHECK(intact(live.back()));
      current -= live.back().block.capacity;
      pool.release(live.back().block);
      live.pop_back();
    } else {
      const std::size_t bytes = std::size_t{1} << (generator() % 18);
      Owned owned{{}, bytes + generator() % bytes, static_cast<unsigned char>(step)};
      owned.block = pool.allocate(owned.bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(owned.block.address) % 64 == 0);
      CHECK(owned.block.capacity >= owned.bytes);
      CHECK(owned.block.capacity <= std::max<std::size_t>(64, owned.bytes + owned.bytes / 4 + 64));
      std::memset(owned.block.address, owned.mark, owned.bytes);
      current += owned.block.capacity;
      live.push_back(owned);
    }
    CHECK(pool.stats().current_bytes == current);
    CHECK(pool.stats().peak_bytes >= current);
    CHECK(pool.stats().reserved_bytes >= current);
  }
  for (const Owned& owned : live) pool.release(owned.block);
  CHECK(pool.stats().current_bytes == 0);
}

TEST_CASE("memory pool: the same requests again take no more memory") {
  MemoryPool pool;
  const auto step = [&] {
    std::vector<MemoryPool::Block> blocks;
    for (std::size_t i = 0; i < 50; ++i) blocks.push_back(pool.allocate((i * 7919 % 50 + 1) * 10000));
    for (std::size_t i = 0; i < 50; ++i) pool.release(blocks[i * 17 % 50]);
  };
  step();
  const MemoryStats once = pool.stats();
  for (int i = 0; i < 10; ++i) step();
  CHECK(pool.stats().reserved_bytes == once.reserved_bytes);
  CHECK(pool.stats().peak_bytes == once.peak_bytes);
}

TEST_CASE("memory pool: free neighbours become one block") {
  MemoryPool pool;
  std::vector<MemoryPool::Block> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(1 << 20));
  const std::size_t reserved = pool.stats().reserved_bytes;
  for (int i : {1, 5, 3, 0, 7, 2, 6, 4}) pool.release(blocks[static_cast<std::size_t>(i)]);
  const MemoryPool::Block whole = pool.allocate(8 << 20);
  CHECK(pool.stats().reserved_bytes == reserved);
  pool.release(whole);
}

TEST_CASE("memory pool: trim gives free pages back, and what is live stays") {
  MemoryPool pool;
  const Owned kept{pool.allocate(100000), 100000, 77};
  std::memset(kept.block.address, kept.mark, kept.bytes);
  const MemoryPool::Block dropped = pool.allocate(10 << 20);
  pool.release(dropped);
  CHECK(pool.stats().reserved_bytes >= std::size_t{10} << 20);
  pool.trim();
  CHECK(pool.stats().reserved_bytes < std::size_t{1} << 20);
  CHECK(intact(kept));
  const MemoryPool::Block again = pool.allocate(5 << 20);
  CHECK(pool.stats().reserved_bytes >= std::size_t{5} << 20);
  std::memset(again.address, 1, 5 << 20);
  pool.release(again);
  pool.release(kept.block);
}

TEST_CASE("memory pool: growing requests do not pile up free blocks") {
  MemoryPool pool;
  for (std::size_t megabytes = 1; megabytes < 120; ++megabytes) {
    const MemoryPool::Block pin = pool.allocate(20000);  // keeps neighbours from merging
    pool.release(pool.allocate(megabytes << 20));
    const MemoryPool::Block pin_after = pool.allocate(20000);
    CHECK(pool.stats().reserved_bytes <= pool.stats().peak_bytes * 3 / 2);
    pool.release(pin);
    pool.release(pin_after);
  }
}

TEST_CASE("memory pool: more than the machine has is an error with figures") {
  MemoryPool pool;
  const MemoryPool::Block block = pool.allocate(1000);
  const std::string error = error_of([&] { pool.allocate(std::size_t{1} << 60); });
  CHECK(contains(error, "out of memory"));
  CHECK(contains(error, "1152921504606846976"));
  pool.release(block);
  CHECK(pool.stats().current_bytes == 0);
  CHECK_THROWS_AS(pool.allocate(SIZE_MAX), Error);
}

TEST_CASE("memory pool: threads share it") {
  MemoryPool pool;
  std::atomic<bool> overlap{false};
  at_once(4, [&](std::size_t thread) {
    for (std::size_t i = 1; i < 300; ++i) {
      const Owned owned{pool.allocate(i * 131), i * 131, static_cast<unsigned char>(thread + 1)};
      std::memset(owned.block.address, owned.mark, owned.bytes);
      std::this_thread::yield();
      if (!intact(owned)) overlap = true;
      pool.release(owned.block);
    }
  });
  CHECK_FALSE(overlap);
  CHECK(pool.stats().current_bytes == 0);
}

TEST_CASE("memory stats follow the tensors") {
  const MemoryStats before = memory_stats();
  {
    const Tensor x = Tensor::empty({1000, 1000});
    CHECK(memory_stats().current_bytes >= before.current_bytes + 4'000'000);
    CHECK(memory_stats().peak_bytes >= before.current_bytes + 4'000'000);
    const Tensor none = Tensor::empty({0, 3});
    CHECK(none.to_vector<float>().empty());
  }
  CHECK(memory_stats().current_bytes == before.current_bytes);
  reset_peak_memory();
  CHECK(memory_stats().peak_bytes == memory_stats().current_bytes);
  cpu_backend.trim({});
  CHECK(memory_stats().reserved_bytes >= memory_stats().current_bytes);
}
