#pragma once

#include <cstdint>
#include <vector>

namespace heed {

/// A stretch of a token stream that a language model reads at once: tokens begin to begin + length - 1, each
/// of which is to predict the next one.
struct Window {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t first_target = 0;  ///< predictions before this one (from 0) are context and do not count
  friend bool operator==(const Window&, const Window&) = default;
};

struct WindowOptions {
  std::int64_t length = 256;  ///< tokens that a window reads
  std::int64_t rows = 16;     ///< windows in a batch
  std::uint64_t seed = 1;
};

/// Cuts a stream into windows to learn from. In every epoch the windows lie side by side, from a new random
/// place on, so that a token stands at another place of its window each time; their order is random too. The
/// batches are a pure function of the arguments and the epoch's number.
class WindowPlan {
 public:
  /// `tokens`: length of the stream. Throws Error when it holds no window, which reads `length` tokens and
  /// needs one more to predict.
  WindowPlan(std::int64_t tokens, const WindowOptions& options);
  /// The batches of an epoch; the last one may have fewer rows.
  class Epoch {
   public:
    std::size_t size() const { return (order_.size() + rows_ - 1) / rows_; }
    std::vector<Window> operator[](std::size_t batch) const;
    friend bool operator==(const Epoch&, const Epoch&) = default;

   private:
    friend class WindowPlan;
    std::int64_t first_ = 0, length_ = 0;
    std::size_t rows_ = 1;
    std::vector<std::uint32_t> order_;  // of the windows, which lie side by side from first_ on
  };
  Epoch epoch(std::uint32_t epoch) const;

 private:
  std::int64_t tokens_;
  WindowOptions options_;
};

/// Windows that predict each token of a stream but the first exactly once, to measure with: from window to
/// window it is `stride` tokens, of which each sees at least length - stride others before it (those at the
/// beginning of the stream: all there are). The last window ends with the stream. A stream that is shorter
/// than `length` makes one short window. Throws Error unless 1 <= stride <= length and there are two tokens.
std::vector<Window> strided_windows(std::int64_t tokens, std::int64_t length, std::int64_t stride);

}  // namespace heed
