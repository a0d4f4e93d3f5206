#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace heed {

/// Floating-point arithmetic as programs start with, in this thread while it lives: rounds to
/// nearest, keeps subnormal numbers and traps nothing, whatever the program that uses the library
/// has set. The destructor restores that.
class PlainArithmetic {
 public:
  PlainArithmetic() : differs_(is_other()) {
    if (!differs_) return;
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~PlainArithmetic() {
    if (differs_) std::fesetenv(&before_);
  }
  PlainArithmetic& operator=(PlainArithmetic&&) = delete;

 private:
  static bool is_other() {
#if defined(__x86_64__)
    constexpr unsigned raised = 0x3f;  // flags of exceptions
    if ((_mm_getcsr() & ~raised) != 0x1f80) return true;
#elif defined(__aarch64__)
    std::uint64_t control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control != 0;
#endif
    return std::fegetround() != FE_TONEAREST;
  }

  bool differs_;
  std::fenv_t before_{};
};

}  // namespace heed
