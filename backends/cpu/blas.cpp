#include "heed/backends/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "heed/backends/cpu/gemm.h"
#include "heed/backends/cpu/memory_pool.h"
#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/core/low_precision.h"
#include "heed/core/thread_pool.h"

namespace heed::cpu {
namespace {

/// Pins the calling thread to one processor while it lives.
class OneProcessor {
 public:
  OneProcessor() {
    if (sched_getaffinity(0, sizeof all_, &all_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    int first = 0;
    while (first < CPU_SETSIZE && !CPU_ISSET(first, &all_)) ++first;
    CPU_SET(first, &one);
    is_kept_ = sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OneProcessor() {
    if (is_kept_) sched_setaffinity(0, sizeof all_, &all_);
  }
  OneProcessor& operator=(OneProcessor&&) = delete;

 private:
  cpu_set_t all_;
  bool is_kept_ = false;
};

/// The bytes that OpenBLAS maps for each calling thread (32 << 22 on x86-64, less elsewhere).
constexpr std::size_t buffer_bytes = std::size_t{128} << 20;

/// Maps memory that a program may write to; null where the system refuses.
void* mapped(std::size_t bytes) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

bool has_room(std::size_t bytes) {
  void* const address = mapped(bytes);
  if (address) munmap(address, bytes);
  return address;
}

/// OpenBLAS is opened at run time, so that a program that only lists devices need not load 40 MB of
/// kernels, and in a linker namespace of its own, so that an application that also uses OpenBLAS keeps its
/// own copy and number of threads. OpenBLAS starts a thread per processor it sees; our copy starts none,
/// because the thread that opens it is pinned to one processor. It picks its kernels itself, unless the
/// user sets OPENBLAS_CORETYPE.
struct OpenBlas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&cblas_dgemm) dgemm = nullptr;
  std::string core_name;

  OpenBlas() {
    void* library = open();
    sgemm = symbol<decltype(sgemm)>(library, "cblas_sgemm");
    dgemm = symbol<decltype(dgemm)>(library, "cblas_dgemm");
    take_buffer = reinterpret_cast<decltype(take_buffer)>(dlsym(library, "blas_memory_alloc"));
    return_buffer = reinterpret_cast<decltype(return_buffer)>(dlsym(library, "blas_memory_free"));
    symbol<void (*)(int)>(library, "openblas_set_num_threads")(1);
    core_name = symbol<char* (*)()>(library, "openblas_get_corename")();
  }

  // Not part of the public interface; null in builds that manage their buffers differently.
  void* (*take_buffer)(int) = nullptr;
  void (*return_buffer)(void*) = nullptr;

  static const OpenBlas& instance() {
    static const OpenBlas blas;
    return blas;
  }

 private:
  static void* open() {
    // Newer versions take a buffer while they are loaded, and retry forever if there is no room for
    // it.
    constexpr std::size_t needed = (std::size_t{40} << 20) + buffer_bytes;
    if (address_limit() && !has_room(needed))
      throw OutOfMemory(concat_text("OpenBLAS could not be loaded: with a buffer it needs ", needed >> 20,
                                    " MiB of addresses; ", address_space()));
    const OneProcessor one_thread;
    void* library = dlmopen(LM_ID_NEWLM, "libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
    const char* message = dlerror();
    const std::string reason = message ? message : "libopenblas.so.0";
    if (reason.find("No such file") != std::string::npos)
      fail("OpenBLAS could not be loaded: ", reason,
           "; install it (Debian: apt install libopenblas0-pthread)");
    if (address_limit())
      throw OutOfMemory(concat_text("OpenBLAS could not be loaded: ", reason, "; ", address_space(),
                                    "; its code takes some 40 MiB, and each thread that calls it ",
                                    buffer_bytes >> 20));
    fail("OpenBLAS could not be loaded: ", reason);
  }

  template <class Function>
  static Function symbol(void* library, const char* name) {
    void* address = dlsym(library, name);
    check(address, "libopenblas.so.0 has no function ", name,
          "; install an OpenBLAS with its C interface (Debian: apt install libopenblas0-pthread)");
    return reinterpret_cast<Function>(address);
  }
};

/// Makes OpenBLAS's buffers in advance. OpenBLAS gives every thread inside one of its functions a
/// buffer, which the next caller reuses. If the system has no room for another one, OpenBLAS
/// retries forever. So this class makes one buffer per calling thread before the call, and throws
/// if there is no room.
class Buffers {
 public:
  /// Never destroyed: threads may outlive static objects.
  static Buffers& instance() {
    static Buffers& all = *new Buffers;
    return all;
  }

  /// Announces that this thread will call OpenBLAS until it leaves.
  void enter() {
    const std::lock_guard lock(mutex_);
    if (callers_ == made_) make(made_ == 0 ? std::min(cpu_threads(), available_processors()) : 1);
    ++callers_;
  }
  void leave() noexcept {
    const std::lock_guard lock(mutex_);
    --callers_;
  }

 private:
  Buffers() {
    // The child has one thread, which may or may not be a caller; count it as one.
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     instance().callers_ = std::min<std::size_t>(instance().callers_, 1);
                     instance().mutex_.unlock();
                   });
  }

  void make(int more) {
    const auto count = static_cast<std::size_t>(more), wanted = made_ + count;
    // While this thread holds the free buffers below, another caller may need one in place of its own.
    probe(callers_ == 0 ? count : count + 1);
    const OpenBlas& blas = OpenBlas::instance();
    if (blas.take_buffer && blas.return_buffer) {
      std::vector<void*> taken;
      taken.reserve(wanted);
      while (taken.size() < wanted && known_.size() < wanted) {
        void* buffer = blas.take_buffer(1);
        if (!buffer) break;  // OpenBLAS's table is full
        taken.push_back(buffer);
        known_.insert(buffer);
      }
      for (void* buffer : taken) blas.return_buffer(buffer);
    }
    made_ = wanted;
  }

  /// Maps as much memory as OpenBLAS will need, and unmaps it again.
  static void probe(std::size_t count) {
    std::vector<void*> taken;
    taken.reserve(count);
    while (taken.size() < count) {
      void* const address = mapped(buffer_bytes);
      if (!address) break;
      taken.push_back(address);
    }
    for (void* address : taken) munmap(address, buffer_bytes);
    if (taken.size() == count) return;
    throw OutOfMemory(concat_text(
        "matmul: OpenBLAS needs ", count, " buffers of ", buffer_bytes >> 20,
        " MiB of addresses, one for each thread that calls it, and the system has room for ", taken.size(),
        "; ", address_space(), "; raise the limit, or use fewer threads (now ", cpu_threads(), ")"));
  }

  std::mutex mutex_;
  std::size_t callers_ = 0;  // threads between enter() and leave()
  std::size_t made_ = 0;     // buffers made, at least one per caller
  std::set<void*> known_;
};

/// OpenBLAS's functions; ensures that the calling thread has a buffer.
const OpenBlas& openblas() {
  struct Caller {
    Caller() { Buffers::instance().enter(); }
    ~Caller() { Buffers::instance().leave(); }
    Caller& operator=(Caller&&) = delete;
  };
  const OpenBlas& blas = OpenBlas::instance();  // first, because loading takes memory too
  thread_local const Caller caller;
  return blas;
}

blasint blas_int(std::int64_t extent) {
  check(extent <= std::numeric_limits<blasint>::max(), "matmul: an extent of ", extent,
        " exceeds what OpenBLAS can take (2^31 - 1)");
  return static_cast<blasint>(extent);
}

}  // namespace

bool own_products() {
  static const bool own = [] {
    const char* const choice = std::getenv("HEED_PRODUCTS");
    if (!choice || !*choice || std::string_view(choice) == "own") return true;
    check(std::string_view(choice) == "openblas", "HEED_PRODUCTS is ", choice,
          "; it must be own or openblas");
    return false;
  }();
  return own;
}

template <class T>
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc) {
  if constexpr (std::is_same_v<T, float>) {
    if (WithMatmulPrecision::is_lower() || own_products())
      return own_gemm(product_kernel(), {a, lda, trans_a}, {b, ldb, trans_b}, m, n, k, alpha, beta != 0, c,
                      ldc);
  }
  const OpenBlas& blas = openblas();
  const CBLAS_TRANSPOSE op_a = trans_a ? CblasTrans : CblasNoTrans,
                        op_b = trans_b ? CblasTrans : CblasNoTrans;
  const auto call = [&](auto* function) {
    function(CblasRowMajor, op_a, op_b, blas_int(m), blas_int(n), blas_int(k), alpha, a, blas_int(lda), b,
             blas_int(ldb), beta, c, blas_int(ldc));
  };
  if constexpr (std::is_same_v<T, float>) {
    call(blas.sgemm);
  } else {
    call(blas.dgemm);
  }
}

template void gemm<float>(bool, bool, std::int64_t, std::int64_t, std::int64_t, float, const float*,
                          std::int64_t, const float*, std::int64_t, float, float*, std::int64_t);
template void gemm<double>(bool, bool, std::int64_t, std::int64_t, std::int64_t, double, const double*,
                           std::int64_t, const double*, std::int64_t, double, double*, std::int64_t);

}  // namespace heed::cpu

namespace heed {

std::string blas_core_name() {
  return cpu::OpenBlas::instance().core_name;
}

}  // namespace heed
