// The batches of an epoch: of examples, and of windows of a long text.

#include "heed/text/batching.h"
#include "heed/tests/support.h"
#include "heed/text/token_stream.h"

using LengthList = Ints;

namespace {

LengthList random_lengths(std::size_t count, std::uint32_t stream) {
  LengthList lengths;
  for (std::size_t i = 0; i < count; ++i)
    lengths.push_back(static_cast<std::int32_t>(random_word({3, stream, 0}, i) % 40) + 1);
  return lengths;
}

Ints flatten(const std::vector<Batch>& batches) {
  Ints all;
  for (const Batch& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

}  // namespace

TEST_CASE("An epoch holds every example once, within the budget") {
  const LengthList source = random_lengths(2000, 0), target = random_lengths(2000, 1);
  BatchOptions options;
  options.max_tokens = 500;
  const BatchPlan plan(source, target, options);
  const auto batches = plan.epoch(0);
  std::int64_t padded = 0, real = 0;
  for (const Batch& batch : batches) {
    REQUIRE(!batch.empty());
    std::int32_t longest_source = 0, longest_target = 0;
    for (const std::int32_t i : batch) {
      const auto index = static_cast<std::size_t>(i);
      longest_source = std::max(longest_source, source[index]);
      longest_target = std::max(longest_target, target[index]);
      real += source[index] + target[index];
    }
    const auto size = static_cast<std::int64_t>(batch.size()) * (longest_source + longest_target);
    CHECK(size <= 500);
    padded += size;
  }
  auto all = flatten(batches);
  std::sort(all.begin(), all.end());
  CHECK(all.size() == 2000);
  CHECK(std::set(all.begin(), all.end()).size() == 2000);
  CHECK(plan.kept() == 2000);
  CHECK(plan.left_out_message().empty());
  const double padding = 1 - static_cast<double>(real) / static_cast<double>(padded);
  CHECK(plan.padding_share(batches) == doctest::Approx(padding));
  CHECK(padding < 0.08);  // sorted by target and then by source: 0.13; unsorted: about one half
}

TEST_CASE("A sample of examples is evenly spread") {
  CHECK(spread_over(7, 3) == Batch{0, 2, 4});
  CHECK(spread_over(3, 3) == Batch{0, 1, 2});
  CHECK(spread_over(3, 9) == Batch{0, 1, 2});
  CHECK(spread_over(3, 0) == Batch{0, 1, 2});
  CHECK(spread_over(0, 5).empty());
}

TEST_CASE("An epoch depends on the seed and its number alone") {
  const LengthList lengths = random_lengths(300, 2);
  BatchOptions options;
  options.max_tokens = 200;
  const BatchPlan plan(lengths, {}, options), again(lengths, {}, options);
  const auto third = plan.epoch(3);
  CHECK(plan.epoch(4) != third);
  CHECK(again.epoch(3) == third);
  options.seed = 2;
  CHECK(BatchPlan(lengths, {}, options).epoch(3) != third);
  options.shuffle = false;
  const BatchPlan fixed(lengths, {}, options);
  CHECK(fixed.epoch(0) == fixed.epoch(1));
}

TEST_CASE("Examples of one length meet others in each epoch") {
  const LengthList lengths(64, 10);
  BatchOptions options;
  options.batch_size = 8;
  const BatchPlan plan(lengths, lengths, options);
  auto first = plan.epoch(0), second = plan.epoch(1);
  for (auto* epoch : {&first, &second}) {
    CHECK(epoch->size() == 8);
    for (Batch& batch : *epoch) std::sort(batch.begin(), batch.end());
    std::sort(epoch->begin(), epoch->end());
  }
  CHECK(first != second);
}

TEST_CASE("A fixed number of rows needs no token budget") {
  BatchOptions options;
  options.max_tokens = 0;
  options.batch_size = 32;
  const BatchPlan plan(random_lengths(100, 3), {}, options);
  std::vector<std::size_t> sizes;
  for (const Batch& batch : plan.epoch(0)) sizes.push_back(batch.size());
  std::sort(sizes.begin(), sizes.end());
  CHECK(sizes == std::vector<std::size_t>{4, 32, 32, 32});
}

TEST_CASE("Examples that fit nowhere are named, not dropped in silence") {
  const LengthList source = {5, 60, 5, 45, 50}, target = {5, 5, 51, 45, 50};
  BatchOptions options;
  options.max_tokens = 90;
  options.max_length = 50;
  const BatchPlan plan(source, target, options);
  CHECK(plan.left_out() == Ints{1, 2, 4});
  CHECK(plan.kept() == 2);
  CHECK(plan.left_out_message() ==
        "3 of 5 examples are left out: 2 with a side longer than 50 tokens (the longest has 60), 1 whose "
        "source "
        "and target together exceed the budget of 90 tokens a batch (the largest has 100)");
  auto all = flatten(plan.epoch(0));
  std::sort(all.begin(), all.end());
  CHECK(all == Ints{0, 3});
}

TEST_CASE("Limits may be arbitrarily large") {
  BatchOptions options;
  options.max_tokens = options.batch_size = options.max_length = std::numeric_limits<std::int64_t>::max();
  CHECK(BatchPlan(LengthList{4, 5}, {}, options).epoch(0).size() == 1);
}

TEST_CASE("Impossible batches are refused") {
  BatchOptions options;
  options.max_tokens = 3;
  CHECK_THROWS_AS(BatchPlan(LengthList{4, 5}, {}, options), Error);
  CHECK_THROWS_AS(BatchPlan(LengthList{}, {}, options), Error);
  CHECK_THROWS_AS(BatchPlan(LengthList{1, 1}, LengthList{1}, options), Error);
  CHECK_THROWS_AS(BatchPlan(LengthList{-1}, {}, options), Error);
  options.max_tokens = 0;
  CHECK_THROWS_AS(BatchPlan(LengthList{1}, {}, options), Error);
}

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
