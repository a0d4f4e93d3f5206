#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace heed {

struct BatchOptions {
  /// The most padded tokens in a batch: rows * (longest source + longest target). 0: no such limit.
  std::int64_t max_tokens = 4096;
  /// The most rows in a batch. 0: no such limit. With both limits the one that is met first counts.
  std::int64_t batch_size = 0;
  /// Examples with a longer side are left out. 0: no such limit.
  std::int64_t max_length = 0;
  std::uint64_t seed = 1;
  bool shuffle = true;  ///< Without it every epoch has the same batches, from short to long (for evaluation).
};

using Batch = std::vector<std::int32_t>;  ///< Indices of examples.

/// Puts examples of like length together, so that little is padded. The batches of an epoch are a pure
/// function of the lengths, the options and the epoch number, so that (epoch, batch index) is all that a
/// resumed run needs.
class BatchPlan {
 public:
  /// Lengths in tokens as the model sees them. `target_lengths` may be empty where there is no second side.
  /// Throws Error when the options give no limit at all, or when no example is left.
  BatchPlan(std::span<const std::int32_t> source_lengths, std::span<const std::int32_t> target_lengths,
            const BatchOptions& options);

  /// All batches of an epoch; every kept example is in exactly one. Shuffled examples of the same length meet
  /// others in each epoch, and the batches come in random order.
  std::vector<Batch> epoch(std::uint32_t epoch) const;

  std::int64_t kept() const { return static_cast<std::int64_t>(examples_.size()); }
  /// Examples that are in no batch, in ascending order. A program says so when there are any:
  const std::vector<std::int32_t>& left_out() const { return left_out_; }
  /// "3 of 100 examples are left out: 2 with a side longer than 50 tokens (the longest has 70), 1 ...", or ""
  /// when none is.
  std::string left_out_message() const;
  /// Padded tokens of a batch: rows * (longest source + longest target). Throws an Error for an example that
  /// is not there.
  std::int64_t padded_tokens(const Batch& batch) const;

 private:
  struct Example {
    std::int32_t index, source, target;
  };
  std::vector<Batch> cut(std::span<const Example> order) const;

  BatchOptions options_;
  std::vector<Example> examples_;  // kept ones, by index
  std::vector<std::int32_t> left_out_;
  std::vector<std::int32_t> source_lengths_, target_lengths_;
};

}  // namespace heed
