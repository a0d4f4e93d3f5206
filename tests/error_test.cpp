#include "heed/base/error.h"

#include <doctest/doctest.h>

#include <exception>
#include <string>
#include <type_traits>

using namespace heed;

namespace {

template <class Thrown>
void passes_with_context(const std::string& message) {
  const auto inner = [&] {
    try {
      throw Thrown(message);
    } catch (Error& error) {
      error.add_context("layer 3: ");
      throw;
    }
  };
  const auto outer = [&] {
    try {
      inner();
    } catch (Error& error) {
      error.add_context("model: ");
      throw;
    }
  };
  CHECK_THROWS_WITH_AS(outer(), ("model: layer 3: " + message).c_str(), Thrown);
}

}  // namespace

TEST_CASE("error: what adds context keeps the type of the error") {
  passes_with_context<Error>("shapes differ");
  passes_with_context<OutOfMemory>("no room for 5 bytes");
  passes_with_context<DeviceLost>("the device was lost");
}

TEST_CASE("error: a copy keeps the message, and is made without throwing") {
  static_assert(std::is_nothrow_copy_constructible_v<Error>);
  OutOfMemory error("no room");
  CHECK(std::string(error.what()) == "no room");
  const OutOfMemory before = error;
  error.add_context("cpu: ");
  const OutOfMemory after = error;
  CHECK(std::string(before.what()) == "no room");
  CHECK(std::string(after.what()) == "cpu: no room");
  const std::exception& base = after;
  CHECK(std::string(base.what()) == "cpu: no room");
}
