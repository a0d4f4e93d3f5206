#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/tests/temporary_folder.h"

// Shared by all tests: the headers that most of them use, changes and properties of their process, texts, files
// and errors.

#ifdef __SANITIZE_ADDRESS__
extern "C" void __sanitizer_purge_allocator(void);
#endif

/// Checks that an expression throws a heed::Error whose message contains `part`.
#define CHECK_ERROR(expression, part) CHECK_THROWS_WITH_AS(expression, doctest::Contains(part), heed::Error)

/// CAPTURE() of several values.
#define CAPTURE_ALL(...) INFO(#__VA_ARGS__ " := ", heed::test::values_text(__VA_ARGS__))

namespace heed::test {

template <class... Values>
std::string values_text(const Values&... values) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + concat_text(values)), ...);
  return text;
}

/// True when a sanitizer watches. It takes several times the time, memory and addresses, so limits
/// are wider and tables of programs are sampled.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
/// True when an emulator runs the tests. It opens files of its own, and its libraries are not this
/// machine's.
#ifdef HEED_EMULATOR
inline constexpr bool under_emulator = true;
#else
inline constexpr bool under_emulator = false;
#endif

using Arguments = std::vector<std::string>;
using Ints = std::vector<std::int32_t>;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

inline Arguments joined(Arguments first, const Arguments& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Writes a file and creates its folders.
inline std::filesystem::path write_content(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

/// Returns the message of the Error that `body` throws; "" if it throws none.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Calls work(i) for i = 0 ... count - 1, each in a thread of its own, all at once.
template <class Work>
void at_once(std::size_t count, const Work& work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

/// Makes the CPU compute with so many threads while it lives.
class WithThreads {
 public:
  explicit WithThreads(int count) : before_(cpu_threads()) { set_cpu_threads(count); }
  ~WithThreads() { set_cpu_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

/// Limits files of this process to `bytes` while it lives: writes fail as they do on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

/// Returns the processor time of this thread in seconds, which other programs on the machine do not
/// affect.
inline double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Returns the most memory that this process has held, in bytes.
inline std::int64_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

/// Returns freed memory to the system. AddressSanitizer keeps it for a while to catch late uses,
/// and peak_memory() would count it again for each model of a test.
inline void release_freed_memory() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_purge_allocator();
#endif
}

/// Compresses a text to a gzip file of one member.
inline std::string gzip(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace heed::test

using namespace heed;
using namespace heed::test;
