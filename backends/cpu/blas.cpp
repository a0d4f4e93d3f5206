#include "heed/backends/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>

#include <cstdlib>
#include <limits>
#include <optional>

#include "heed/core/cpu_info.h"
#include "heed/core/error.h"

namespace heed::cpu {
namespace {

/// Sets an environment variable for a while.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~ScopedVariable() {
    if (old_) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

/// OpenBLAS, opened at run time: its constructor reads the number of threads from the environment, and with
/// one it starts none of its own beside our pool; and a program that only lists devices need not load 40 MB
/// of kernels. Which kernels it takes is its own choice, or the user's by OPENBLAS_CORETYPE.
struct OpenBlas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&cblas_dgemm) dgemm = nullptr;
  decltype(&cblas_sgemv) sgemv = nullptr;
  decltype(&cblas_dgemv) dgemv = nullptr;
  std::string core_name;

  OpenBlas() {
    void* library = open();
    sgemm = symbol<decltype(sgemm)>(library, "cblas_sgemm");
    dgemm = symbol<decltype(dgemm)>(library, "cblas_dgemm");
    sgemv = symbol<decltype(sgemv)>(library, "cblas_sgemv");
    dgemv = symbol<decltype(dgemv)>(library, "cblas_dgemv");
    symbol<void (*)(int)>(library, "openblas_set_num_threads")(1);
    core_name = symbol<char* (*)()>(library, "openblas_get_corename")();
  }

  static const OpenBlas& instance() {
    static const OpenBlas blas;
    return blas;
  }

 private:
  static void* open() {
    const ScopedVariable threads("OPENBLAS_NUM_THREADS", "1");
    void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library)
      fail("OpenBLAS could not be loaded: ", dlerror(),
           "; install it (Debian: apt install libopenblas0-pthread)");
    return library;
  }

  template <class Function>
  static Function symbol(void* library, const char* name) {
    void* address = dlsym(library, name);
    check(address, "libopenblas.so.0 has no function ", name,
          "; install an OpenBLAS with its C interface (Debian: apt install libopenblas0-pthread)");
    return reinterpret_cast<Function>(address);
  }
};

blasint blas_int(std::int64_t extent) {
  check(extent <= std::numeric_limits<blasint>::max(), "matmul: an extent of ", extent,
        " exceeds what OpenBLAS can take (2^31 - 1)");
  return static_cast<blasint>(extent);
}

}  // namespace

template <class T>
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc) {
  const OpenBlas& blas = OpenBlas::instance();
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

template <class T>
void gemv(bool trans_a, std::int64_t rows, std::int64_t columns, T alpha, const T* a, std::int64_t lda,
          const T* x, std::int64_t x_stride, T beta, T* y, std::int64_t y_stride) {
  const OpenBlas& blas = OpenBlas::instance();
  const auto call = [&](auto* function) {
    function(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, blas_int(rows), blas_int(columns), alpha, a,
             blas_int(lda), x, blas_int(x_stride), beta, y, blas_int(y_stride));
  };
  if constexpr (std::is_same_v<T, float>) {
    call(blas.sgemv);
  } else {
    call(blas.dgemv);
  }
}

template void gemv<float>(bool, std::int64_t, std::int64_t, float, const float*, std::int64_t, const float*,
                          std::int64_t, float, float*, std::int64_t);
template void gemv<double>(bool, std::int64_t, std::int64_t, double, const double*, std::int64_t,
                           const double*, std::int64_t, double, double*, std::int64_t);
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
