// The CPU backend and its process: fork, limits of the address space, memory that runs out.

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <new>

#include "heed/backends/cpu/memory_pool.h"
#include "heed/core/thread_pool.h"
#include "heed/tests/child_process.h"

namespace {

/// Of products in f32, by heed, and in f64, by OpenBLAS.
Floats product_of(std::uint32_t seed) {
  const Tensor a = uniform({300, 200}, -1, 1, {seed, 0, 0}), b = uniform({200, 250}, -1, 1, {seed, 0, 1});
  const Tensor exact = matmul(a.to(DType::f64), b.to(DType::f64));
  return softmax(matmul(a, b) + exact.to(DType::f32)).to_vector<float>();
}

}  // namespace

// A sanitizer's allocator has no handlers for fork: a child that begins while a thread allocates waits
// forever.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST_CASE("fork: a child computes the same bits with a pool of its own, and leaves without a crash") {
  const WithThreads scope(3);
  const Floats expected = product_of(1);  // the pool's threads are running now
  CHECK(status_of_fork([&] { return product_of(1) == expected && cpu_threads() == 3; }) == 0);
  CHECK(status_of_fork([] { return true; }) == 0);
  CHECK(status_of_fork([&] {  // a child's child
          return product_of(1) == expected && status_of_fork([&] { return product_of(1) == expected; }) == 0;
        }) == 0);
  CHECK(product_of(1) == expected);  // the parent's pool goes on
}

TEST_CASE("fork: a child has as many threads at work as its parent") {
  const WithThreads scope(3);
  parallel_for(3, [](std::int64_t) {});
  CHECK(status_of_fork([] {
          std::atomic<int> inside{0};
          parallel_for(3, [&](std::int64_t) {  // ends only when all three have begun
            ++inside;
            while (inside < 3) std::this_thread::yield();
          });
          return inside == 3;
        }) == 0);
}

TEST_CASE("fork: while other threads of the program compute and allocate") {
  const WithThreads scope(2);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) product_of(2);
  });
  const Floats expected = product_of(1);
  for (int i = 0; i < 10; ++i) CHECK(status_of_fork([&] { return product_of(1) == expected; }) == 0);
  stop = true;
  other.join();
}

#endif

TEST_CASE("child: an application that uses OpenBLAS itself" * doctest::skip()) {
  const WithThreads scope(1);
  const auto threads_of_process = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  if (std::getenv("HEED_IS_FIRST")) {
    product_of(1);
    CHECK(threads_of_process() == 1);  // OpenBLAS starts none
  }
  void* library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_GLOBAL);
  REQUIRE(library);
  const auto set = reinterpret_cast<void (*)(int)>(::dlsym(library, "openblas_set_num_threads"));
  const auto get = reinterpret_cast<int (*)()>(::dlsym(library, "openblas_get_num_threads"));
  REQUIRE((set && get));
  set(2);
  const Floats product = product_of(1);
  CHECK(get() == 2);
  set(1);
  CHECK(product_of(1) == product);
  CHECK(std::getenv("OPENBLAS_NUM_THREADS") == std::string_view("2"));
}

TEST_CASE("guest: heed's OpenBLAS is not the application's, whoever comes first") {
  for (const bool heed_is_first : {false, true}) {
    ChildOptions options{.environment = {{"OPENBLAS_NUM_THREADS", "2"}}};
    if (heed_is_first) options.environment.emplace_back("HEED_IS_FIRST", "1");
    const ChildResult result = run_in_child("child: an application that uses OpenBLAS itself", options);
    INFO("heed first: ", heed_is_first, ", ", result.text());
    CHECK(result.status == 0);
    CHECK(contains(result.output, "1 passed"));
  }
}

TEST_CASE("child: leaves while its threads sleep" * doctest::skip()) {
  set_cpu_threads(3);
  product_of(1);
  std::exit(7);
}

TEST_CASE("exit: a program may leave from anywhere") {
  const ChildResult result = run_in_child("child: leaves while its threads sleep");
  INFO(result.text());
  CHECK(result.status == 7);
}

TEST_CASE("child: multiplies" * doctest::skip()) {
  set_cpu_threads(2);
  try {
    product_of(1);
    std::cout << "multiplied\n";
  } catch (const OutOfMemory& error) {
    std::cout << "out of memory: " << error.what() << '\n';
  } catch (const Error& error) {
    std::cout << "another error: " << error.what() << '\n';
  } catch (const std::bad_alloc&) {  // the heap, which programs report as such
    std::cout << "out of memory: the heap has no more of the MiB of addresses\n";
  }
}

TEST_CASE("memory limit: a product under a limit of the address space works or says what it lacks") {
  if (test::sanitized) return;  // shadow memory leaves nothing to limit
  int worked = 0, told = 0;
  for (const rlim_t mebibytes : {150, 200, 250, 300, 400, 500, 600, 700, 1000, 2000}) {
    const ChildResult result = run_in_child(
        "child: multiplies", {.address_space = mebibytes << 20, .timeout = std::chrono::seconds(20)});
    INFO(mebibytes, " MiB: ", result.text());
    CHECK(result.status == 0);
    const bool multiplied = result.output.find("multiplied") != std::string::npos;
    const bool out_of_memory = result.output.find("out of memory: ") != std::string::npos;
    CHECK(multiplied != out_of_memory);
    // Two buffers, and one more of newer versions of OpenBLAS; what is left serves the pool of tensors
    // and the heap.
    CHECK((multiplied || mebibytes < 600));
    CHECK_FALSE(contains(result.output, "install it"));
    if (out_of_memory) CHECK(contains(result.output, "MiB of addresses"));
    (multiplied ? worked : told) += 1;
  }
  CHECK(worked > 0);
  CHECK(told > 0);
}

namespace {

/// Multiplies in a second thread, which has 100 MiB of addresses.
void multiply_in_a_thread_too_many(DType dtype) {
  set_cpu_threads(1);
  const auto multiply = [&] {
    const Tensor a = Tensor::ones({300, 200}, dtype);
    static_cast<void>(sum(matmul(a, transpose(a, 0, 1))).item());
  };
  multiply();
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlimit limit{pages * 4096 + (rlim_t{100} << 20), RLIM_INFINITY};
  REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  multiply();  // this thread has its buffer
  std::thread([&] {
    try {
      multiply();
      std::cout << "multiplied\n";
    } catch (const OutOfMemory& error) {
      std::cout << "out of memory: " << error.what() << '\n';
    }
  }).join();
}

}  // namespace

TEST_CASE("child: multiplies f32 in a thread too many" * doctest::skip()) {
  multiply_in_a_thread_too_many(DType::f32);
}

TEST_CASE("child: multiplies f64 in a thread too many" * doctest::skip()) {
  multiply_in_a_thread_too_many(DType::f64);
}

TEST_CASE("memory limit: each further thread that calls OpenBLAS is looked after, and f32 needs none") {
  if (test::sanitized) return;  // shadow memory leaves nothing to limit
  for (const bool f64 : {false, true}) {
    const ChildResult result =
        run_in_child(concat_text("child: multiplies f", f64 ? 64 : 32, " in a thread too many"),
                     {.timeout = std::chrono::seconds(20)});
    INFO(result.text());
    CHECK(result.status == 0);
    CHECK(result.output.find(f64 ? "out of memory: matmul: OpenBLAS needs" : "multiplied") !=
          std::string::npos);
  }
}

TEST_CASE("child: releases blocks where nothing can be allocated" * doctest::skip()) {
  cpu::MemoryPool pool;
  std::vector<cpu::MemoryPool::Block> blocks;
  for (int i = 0; i < 3000; ++i) blocks.push_back(pool.allocate(i % 3 == 0 ? 20000 + 64 * i : 100 + i));
  // No more memory, down to the last small piece that malloc has.
  const rlimit limit{1, RLIM_INFINITY};
  REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  void* volatile piece = nullptr;  // clang++ leaves out an allocation whose address nobody keeps
  for (std::size_t bytes = 1 << 20; bytes >= 16; bytes /= 2) {
    do {
      piece = std::malloc(bytes);
    } while (piece);
  }
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool.release(blocks[i]);
  for (std::size_t i = 1; i < blocks.size(); i += 2) pool.release(blocks[i]);
  ::_exit(pool.stats().current_bytes == 0 ? 0 : 1);
}

TEST_CASE("memory limit: releasing memory needs none") {
  if (test::sanitized) return;  // shadow memory leaves nothing to limit
  const ChildResult result = run_in_child("child: releases blocks where nothing can be allocated");
  INFO(result.text());
  CHECK(result.status == 0);
}
