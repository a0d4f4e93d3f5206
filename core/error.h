#pragma once

#include <memory>
#include <sstream>
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

/// Concatenates anything that has an operator<< into a string.
template <class... Parts>
std::string concat_text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws an Error whose message is the concatenation of `parts`.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(concat_text(parts...));
}

/// Throws an Error built from `parts` unless `condition` holds. The parts are formatted only on failure.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

}  // namespace heed
