#include "heed/data/large_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "heed/base/error.h"

using namespace heed;

namespace {

std::vector<Window> flatten(const WindowPlan::Epoch& batches) {
  std::vector<Window> all;
  for (std::size_t i = 0; i < batches.size(); ++i)
    for (const Window& window : batches[i]) all.push_back(window);
  return all;
}

}  // namespace

TEST_CASE("The windows of an epoch lie side by side and fill the text") {
  WindowOptions options;
  options.length = 7;
  options.rows = 3;
  for (const std::int64_t tokens : {8, 9, 14, 15, 16, 100}) {
    CAPTURE(tokens);
    const WindowPlan plan(tokens, options);
    for (std::uint32_t epoch = 0; epoch < 20; ++epoch) {
      const WindowPlan::Epoch batches = plan.epoch(epoch);
      for (std::size_t i = 0; i < batches.size(); ++i)
        CHECK((batches[i].size() == 3 || (i + 1 == batches.size() && !batches[i].empty())));
      std::vector<Window> windows = flatten(batches);
      REQUIRE(!windows.empty());
      std::sort(windows.begin(), windows.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
      CHECK(windows.front().begin < 7);
      for (std::size_t i = 1; i < windows.size(); ++i) CHECK(windows[i].begin == windows[i - 1].begin + 7);
      CHECK(windows.back().begin + 7 < tokens);       // the last prediction has its token
      CHECK(windows.back().begin + 2 * 7 >= tokens);  // there was no room for another window
    }
  }
}

TEST_CASE("An epoch depends on the seed and its number alone; places and order change") {
  WindowOptions options;
  options.length = 8;
  options.rows = 4;
  const WindowPlan plan(500, options), again(500, options);
  CHECK(plan.epoch(3) == again.epoch(3));
  CHECK(plan.epoch(3) != plan.epoch(4));
  std::set<std::int64_t> places;
  for (std::uint32_t epoch = 0; epoch < 100; ++epoch) {
    const std::vector<Window> windows = flatten(plan.epoch(epoch));
    CHECK(
        !std::is_sorted(windows.begin(), windows.end(), [](auto& a, auto& b) { return a.begin < b.begin; }));
    places.insert(windows.front().begin % 8);
  }
  CHECK(places.size() == 8);
  options.seed = 2;
  CHECK(WindowPlan(500, options).epoch(3) != plan.epoch(3));
}

TEST_CASE("Strided windows predict every token but the first exactly once") {
  for (const std::int64_t tokens : {2, 5, 8, 9, 10, 17, 50}) {
    for (const std::int64_t length : {1, 4, 8}) {
      for (std::int64_t stride = 1; stride <= length; ++stride) {
        CAPTURE(tokens);
        CAPTURE(length);
        CAPTURE(stride);
        std::int64_t next = 1;
        for (const Window& window : strided_windows(tokens, length, stride)) {
          CHECK(window.length <= length);
          for (std::int64_t i = window.first_target; i < window.length; ++i) {
            CHECK(window.begin + i + 1 == next++);
            CHECK((window.begin == 0 || i >= length - stride));  // the promised context
          }
        }
        CHECK(next == tokens);
      }
    }
  }
}

TEST_CASE("Windows that do not fit are refused") {
  WindowOptions options;
  options.length = 8;
  CHECK_THROWS_WITH_AS(
      WindowPlan(8, options),
      "the text has 8 tokens, but a window of 8 needs 9; take a longer text or a shorter window", Error);
  options.length = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(WindowPlan(100, options), Error);
  options.length = 8;
  options.rows = std::numeric_limits<std::int64_t>::max();
  CHECK(WindowPlan(100, options).epoch(0).size() == 1);
  options.rows = 0;
  CHECK_THROWS_AS(WindowPlan(100, options), Error);
  CHECK_THROWS_AS(strided_windows(10, 4, 0), Error);
  CHECK_THROWS_AS(strided_windows(10, 4, 5), Error);
  CHECK_THROWS_AS(strided_windows(1, 4, 2), Error);
}
