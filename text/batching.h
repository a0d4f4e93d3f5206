#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace heed {

struct BatchOptions {
  /// The most padded tokens in a batch: rows * (longest source + longest target). 0: no limit.
  std::int64_t max_tokens = 4096;
  /// The most rows in a batch. 0: no limit. With both limits, whichever is reached first applies.
  std::int64_t batch_size = 0;
  /// The most tokens of either side; longer examples are left out. 0: no limit.
  std::int64_t max_length = 0;
  std::uint64_t seed = 1;
  /// If false, every epoch has the same batches in the same order (for evaluation).
  bool shuffle = true;
};

using Batch = std::vector<std::int32_t>;  ///< Indices of examples.

/// Returns at most `most` of the indices of `count` examples, evenly spread and in ascending order;
/// 0: all.
Batch spread_over(std::size_t count, std::int64_t most);

/// Groups examples of similar length into batches with little padding. The batches of an epoch are
/// a pure function of the lengths, the options and the epoch number, so (epoch, batch index) is all
/// that a resumed run needs.
class BatchPlan {
 public:
  /// Plans batches from lengths in tokens, as the model sees them. `target_lengths` may be empty if
  /// there is no second side. Throws Error if the options set no limit, or if no example is left.
  BatchPlan(std::span<const std::int32_t> source_lengths, std::span<const std::int32_t> target_lengths,
            const BatchOptions& options);

  /// Returns all batches of an epoch; every kept example is in exactly one. With shuffling,
  /// examples of the same length are regrouped in each epoch, and the batches come in random order.
  std::vector<Batch> epoch(std::uint32_t epoch) const;

  /// Returns the share of padding among the tokens of batches of this plan, 0 to 1.
  double padding_share(std::span<const Batch> batches) const;
  std::int64_t kept() const { return static_cast<std::int64_t>(examples_.size()); }
  /// The examples that are in no batch, in ascending order. Programs should report them.
  const std::vector<std::int32_t>& left_out() const { return left_out_; }
  /// Returns "3 of 100 examples are left out: 2 with a side longer than 50 tokens (the longest has
  /// 70), 1 ...", or "" if there are none.
  std::string left_out_message() const;

 private:
  struct Example {
    std::int32_t index, source, target;
  };
  double band_tokens() const;
  std::vector<Batch> cut(std::span<const Example> order) const;

  BatchOptions options_;
  std::vector<Example> examples_;  // kept ones, by index
  std::vector<std::int32_t> left_out_;
  std::vector<std::int32_t> source_lengths_, target_lengths_;
};

}  // namespace heed
