#include "heed/data/text_windows.h"

#include <algorithm>
#include <numeric>

#include "heed/core/checked.h"
#include "heed/core/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

// The two random streams of an epoch: where the first window begins, and the order of the windows.
enum class WindowStream : std::uint32_t { offset, order };

RandomKey window_key(std::uint64_t seed, std::uint32_t epoch, WindowStream stream) {
  return {seed, epoch, static_cast<std::uint32_t>(stream)};
}

}  // namespace

WindowPlan::WindowPlan(std::int64_t tokens, const WindowOptions& options)
    : tokens_(tokens), options_(options) {
  check(options.length >= 1 && options.rows >= 1, "windows need a length and rows of at least 1, got ",
        options.length, " and ", options.rows);
  const std::int64_t needed = checked_sum("a window's length", options.length, 1);
  check(tokens >= needed, "the text has ", tokens, " tokens, but a window of ", options.length, " needs ",
        needed, "; take a longer text or a shorter window");
}

WindowPlan::Epoch WindowPlan::epoch(std::uint32_t epoch) const {
  // Where the text is shorter than two windows, the first must not begin so late that none fits.
  const std::int64_t places = std::min(options_.length, tokens_ - options_.length);
  Epoch result;
  result.first_ = Draws(window_key(options_.seed, epoch, WindowStream::offset)).below(places);
  result.length_ = options_.length;
  result.rows_ = static_cast<std::size_t>(options_.rows);
  const std::int64_t windows = (tokens_ - 1 - result.first_) / options_.length;  // each needs one token more
  check(windows < std::int64_t{1} << 32, "a text of ", tokens_, " tokens has ", windows,
        " windows, more than 2^32; take longer ones");
  result.order_.resize(static_cast<std::size_t>(windows));
  std::iota(result.order_.begin(), result.order_.end(), 0U);
  const RandomKey key = window_key(options_.seed, epoch, WindowStream::order);
  for (std::size_t i = result.order_.size(); i > 1; --i)  // Fisher-Yates
    std::swap(result.order_[i - 1], result.order_[below(random_word(key, i), i)]);
  return result;
}

std::vector<Window> WindowPlan::Epoch::operator[](std::size_t batch) const {
  std::vector<Window> windows;
  for (std::size_t i = batch * rows_; i < std::min((batch + 1) * rows_, order_.size()); ++i)
    windows.push_back({first_ + static_cast<std::int64_t>(order_[i]) * length_, length_, 0});
  return windows;
}

std::vector<Window> strided_windows(std::int64_t tokens, std::int64_t length, std::int64_t stride) {
  check(length >= 1 && stride >= 1 && stride <= length, "the stride must be 1 to the window's length ",
        length, ", but is ", stride);
  check(tokens >= 2, "there is nothing to predict in a text of ", tokens, " tokens");
  const std::int64_t targets = tokens - 1;
  if (targets <= length) return {{0, targets, 0}};
  std::vector<Window> windows{{0, length, 0}};
  for (std::int64_t done = length; done < targets;) {
    const std::int64_t end = std::min(done + stride, targets);
    windows.push_back({end - length, length, length - (end - done)});
    done = end;
  }
  return windows;
}

}  // namespace heed
