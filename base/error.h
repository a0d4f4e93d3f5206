#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace heed {

/// The library's exception type. The message says what went wrong, with the values, and how to fix
/// it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// Puts `prefix` before the message. A caller that knows more than the thrower catches by
  /// reference, adds what it knows and rethrows with a bare `throw`, so that the error keeps its
  /// type:
  ///     catch (Error& error) { error.add_context("layer 3: "); throw; }
  void add_context(const std::string& prefix) {
    message_ = std::make_shared<const std::string>(prefix + what());
  }

  const char* what() const noexcept override {
    return message_ ? message_->c_str() : std::runtime_error::what();
  }

 private:
  std::shared_ptr<const std::string> message_;  // shared: copying an exception must not throw
};

/// A device has run out of memory. The message includes its allocator's report.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A device stopped answering; nothing on it can be read any more. The message names its last
/// kernels.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

/// A value with a function that prints it. It keeps the templates below small, since they are
/// instantiated wherever a value is checked.
struct TextPart {
  const void* value;
  void (*write)(std::ostream& out, const void* value);
};
template <class T>
TextPart text_part(const T& value) {
  return {&value, [](std::ostream& out, const void* one) { out << *static_cast<const T*>(one); }};
}
inline TextPart text_part(const char* value) {
  return {value, [](std::ostream& out, const void* one) { out << static_cast<const char*>(one); }};
}
std::string concat_parts(std::initializer_list<TextPart> parts);
[[noreturn]] void fail_with(std::initializer_list<TextPart> parts);

/// Concatenates values that have an operator<< into a string.
template <class... Parts>
std::string concat_text(const Parts&... parts) {
  return concat_parts({text_part(parts)...});
}

/// Throws an Error whose message is the concatenation of `parts`.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  fail_with({text_part(parts)...});
}

/// Throws an Error built from `parts` unless `condition` holds. The parts are formatted only on
/// failure.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

// Arithmetic on sizes from settings, files and shapes that throws an Error instead of overflowing.

/// a * b for sizes. Throws an Error that names `what` and both numbers when one is negative or the
/// product does not fit.
inline std::int64_t checked_product(std::string_view what, std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  check(a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &product), what, ": ", a, " times ", b,
        " is not a size: it must not be negative and at most ", std::numeric_limits<std::int64_t>::max());
  return product;
}
template <class... Rest>
std::int64_t checked_product(std::string_view what, std::int64_t a, std::int64_t b, std::int64_t c,
                             Rest... rest) {
  return checked_product(what, checked_product(what, a, b), c, rest...);
}

/// Returns a + b for sizes, checked like checked_product().
inline std::int64_t checked_sum(std::string_view what, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  check(a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, &sum), what, ": ", a, " plus ", b,
        " is not a size: it must not be negative and at most ", std::numeric_limits<std::int64_t>::max());
  return sum;
}

/// a / b rounded up, for a >= 0 and b > 0; never overflows.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// Returns a size that must lie in [low, high]; throws an Error with `what` and the value
/// otherwise.
inline std::int64_t checked_range(std::string_view what, std::int64_t value, std::int64_t low,
                                  std::int64_t high) {
  check(value >= low && value <= high, what, " is ", value, "; it must be ", low, " to ", high);
  return value;
}

/// The system's text for a value of errno; for a file that is too large, also which limit it
/// exceeded.
std::string reason_of(int code);

/// Thrown by a StopCheck to end work. It is not a heed::Error, so code that skips a bad line or
/// file after an Error does not swallow it.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted, as the program asked"; }
};

/// Lets a program stop work on this thread. While a StopCheck lives, ops call `stop` when they
/// allocate their result (which can throw anyway, for lack of memory), at most 20 times a second.
/// When `stop` returns true, Interrupted ends the work.
///
/// Use it for computing and measuring, not for code that changes weights or gradients in several
/// steps, which must not be left half done. Nested scopes call only the innermost `stop`.
class StopCheck {
 public:
  explicit StopCheck(std::function<bool()> stop);
  ~StopCheck();
  StopCheck& operator=(StopCheck&&) = delete;

 private:
  StopCheck* previous_;
  std::function<bool()> stop_;
  double next_ = 0;  // time of the next call, in seconds
  friend void check_stop();
};

/// Calls the innermost StopCheck of this thread, if any, and throws Interrupted when it returns
/// true.
void check_stop();

}  // namespace heed
