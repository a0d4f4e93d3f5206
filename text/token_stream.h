#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// A stretch of a token stream that a language model reads at once: tokens begin to begin + length
/// - 1, each of which predicts the next one.
struct Window {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  /// Predictions before this index (from 0) are context and do not count.
  std::int64_t first_target = 0;
  friend bool operator==(const Window&, const Window&) = default;
};

struct WindowOptions {
  std::int64_t length = 256;  ///< tokens read per window
  std::int64_t rows = 16;     ///< windows per batch
  std::uint64_t seed = 1;
};

/// Cuts a stream into windows for training. In every epoch the windows are adjacent and start at a
/// new random offset, so that a token takes a different place in its window each time; their order
/// is random too. The batches are a pure function of the arguments and the epoch number.
class WindowPlan {
 public:
  /// Plans windows for a stream of `tokens` tokens. Throws Error if it holds no complete window,
  /// which reads `length` tokens and needs one more as the last target.
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
    std::vector<std::uint32_t> order_;  // of the windows, which are adjacent from first_ on
  };
  Epoch epoch(std::uint32_t epoch) const;

 private:
  std::int64_t tokens_;
  WindowOptions options_;
};

/// Returns windows for evaluation, which predict each token of a stream except the first exactly
/// once. They are `stride` tokens apart, and each predicted token has at least length - stride
/// tokens before it in its window (at the beginning of the stream, all there are). The last window
/// ends with the stream. A stream shorter than `length` gives one short window. Throws Error unless
/// 1 <= stride <= length and there are two tokens.
std::vector<Window> strided_windows(std::int64_t tokens, std::int64_t length, std::int64_t stride);

// Texts and token streams that need not fit in memory.

/// The bytes of a text, or of its tokens, that are kept in memory before the rest goes to a file.
inline constexpr std::int64_t default_memory_bytes = std::int64_t{64} << 20;

/// An append-only sequence of bytes with random access. Bytes are held in memory up to a limit and
/// beyond it in an unnamed file in the temporary folder ($TMPDIR, or /tmp), so nothing remains
/// afterwards. Throws Error if the file cannot be written.
class Spool {
 public:
  explicit Spool(std::int64_t memory_bytes = default_memory_bytes);
  Spool(Spool&&) noexcept;
  Spool& operator=(Spool&&) noexcept;
  ~Spool();

  void add(std::string_view bytes);
  std::int64_t size() const { return size_; }
  /// Returns bytes begin to begin + count - 1, which must exist.
  std::string read(std::int64_t begin, std::int64_t count) const;
  bool is_in_memory() const { return !file_; }

 private:
  struct File;

  std::int64_t memory_bytes_, size_ = 0;
  std::string memory_;  // with a file: the bytes not yet written
  std::unique_ptr<File> file_;
};

/// A stream of tokens, each in [0, 2^31 - 1].
class TokenStream {
 public:
  /// Creates an empty stream. Tokens take 2 bytes if `vocabulary` is at most 65,536, otherwise 4.
  explicit TokenStream(std::int64_t vocabulary, std::int64_t memory_bytes = default_memory_bytes)
      : bytes_(vocabulary <= 65536 ? 2 : 4), spool_(memory_bytes) {}
  TokenStream(const Tokens& tokens) : TokenStream(std::int64_t{1} << 31) { add(tokens); }
  void add(std::span<const std::int32_t> tokens);
  std::int64_t size() const { return spool_.size() / bytes_; }
  bool empty() const { return size() == 0; }
  /// Returns tokens begin to begin + count - 1, which must exist.
  Tokens read(std::int64_t begin, std::int64_t count) const;

 private:
  std::int64_t bytes_;
  Spool spool_;
};

}  // namespace heed
