#pragma once

#include <initializer_list>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>

namespace heed {

/// The one exception type of the library. Its message says what was wrong, with the values, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// Puts `prefix` before the message. A caller that knows more than the thrower catches by reference, adds
  /// what it knows and rethrows with a bare `throw`, so that the error keeps its type:
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

/// A device has no room left. The message holds the report of its allocator.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A device stopped answering; nothing that is on it can be read any more. The message names its last kernels.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

/// A value and how it is written: what keeps the templates below small, for they stand wherever a value is checked.
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

/// Concatenates anything that has an operator<< into a string.
template <class... Parts>
std::string concat_text(const Parts&... parts) {
  return concat_parts({text_part(parts)...});
}

/// Throws an Error whose message is the concatenation of `parts`.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  fail_with({text_part(parts)...});
}

/// Throws an Error built from `parts` unless `condition` holds. The parts are formatted only on failure.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

}  // namespace heed
