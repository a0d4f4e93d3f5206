#include "heed/text/batching.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "heed/base/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

// The two random streams of an epoch: the grouping of examples of equal length, and the order of the
// batches.
enum class EpochStream : std::uint32_t { examples, batches };

RandomKey epoch_key(std::uint64_t seed, std::uint32_t epoch, EpochStream stream) {
  return {seed, epoch, static_cast<std::uint32_t>(stream)};
}

/// Fisher-Yates; the swap partner is the random word scaled to the range.
void shuffle_batches(std::vector<Batch>& batches, const RandomKey& key) {
  for (std::size_t i = batches.size(); i > 1; --i)
    std::swap(batches[i - 1], batches[(std::uint64_t{random_word(key, i)} * i) >> 32]);
}

}  // namespace

Batch spread_over(std::size_t count, std::int64_t most) {
  const auto all = static_cast<std::int64_t>(count);
  const std::int64_t some = most == 0 ? all : std::min(all, most);
  Batch rows;
  for (std::int64_t i = 0; i < some; ++i) rows.push_back(static_cast<std::int32_t>(i * all / some));
  return rows;
}

BatchPlan::BatchPlan(std::span<const std::int32_t> source_lengths,
                     std::span<const std::int32_t> target_lengths, const BatchOptions& options)
    : options_(options),
      source_lengths_(source_lengths.begin(), source_lengths.end()),
      target_lengths_(target_lengths.begin(), target_lengths.end()) {
  target_lengths_.resize(target_lengths.empty() ? source_lengths.size() : target_lengths.size(), 0);
  check(source_lengths_.size() == target_lengths_.size(),
        "batches need as many targets as sources: ", source_lengths_.size(), " sources, ",
        target_lengths_.size(), " targets");
  check(options.max_tokens >= 0 && options.batch_size >= 0 && options.max_length >= 0 &&
            (options.max_tokens > 0 || options.batch_size > 0),
        "batches need a limit: max_tokens ", options.max_tokens, ", batch_size ", options.batch_size,
        ", max_length ", options.max_length);
  checked_range("the number of examples", static_cast<std::int64_t>(source_lengths_.size()), 0,
                std::numeric_limits<std::int32_t>::max());
  for (std::size_t i = 0; i < source_lengths_.size(); ++i) {
    const Example example{static_cast<std::int32_t>(i), source_lengths_[i], target_lengths_[i]};
    check(example.source >= 0 && example.target >= 0, "example ", i, " has a negative length");
    const std::int64_t tokens = std::int64_t{example.source} + example.target;
    const bool too_long =
        options.max_length > 0 && std::max(example.source, example.target) > options.max_length;
    if (too_long || (options.max_tokens > 0 && tokens > options.max_tokens))
      left_out_.push_back(example.index);
    else
      examples_.push_back(example);
  }
  check(!examples_.empty(), "there is nothing to make batches of: ", source_lengths_.size(), " examples, ",
        left_out_message());
}

std::string BatchPlan::left_out_message() const {
  if (left_out_.empty()) return "";
  std::int64_t sides = 0, longest_side = 0, sums = 0, largest_sum = 0;
  for (const std::int32_t index : left_out_) {
    const auto i = static_cast<std::size_t>(index);
    const std::int64_t side = std::max(source_lengths_[i], target_lengths_[i]),
                       sum = std::int64_t{source_lengths_[i]} + target_lengths_[i];
    if (options_.max_length > 0 && side > options_.max_length)
      ++sides, longest_side = std::max(longest_side, side);
    else
      ++sums, largest_sum = std::max(largest_sum, sum);
  }
  std::string text =
      concat_text(left_out_.size(), " of ", source_lengths_.size(), " examples are left out: ");
  if (sides > 0)
    text += concat_text(sides, " with a side longer than ", options_.max_length, " tokens (the longest has ",
                        longest_side, ")");
  if (sums > 0)
    text +=
        concat_text(sides > 0 ? ", " : "", sums, " whose source and target together exceed the budget of ",
                    options_.max_tokens, " tokens a batch (the largest has ", largest_sum, ")");
  return text;
}

/// The tokens of a band: examples with targets of similar length, which are then sorted by source, so that a
/// batch is about as narrow in both lengths. 0: there are no targets, and all are one band. The constant left
/// the least padding in five sets of pairs.
double BatchPlan::band_tokens() const {
  double tokens = 0, targets = 0;
  for (const Example& example : examples_) {
    tokens += static_cast<double>(example.source) + example.target;
    targets += example.target;
  }
  if (targets == 0) return 0;
  const double by_tokens = options_.max_tokens > 0 ? tokens / static_cast<double>(options_.max_tokens) : 0,
               by_rows = options_.batch_size > 0
                             ? static_cast<double>(kept()) / static_cast<double>(options_.batch_size)
                             : 0;
  return tokens / std::max(1.0, std::round(1.4 * std::sqrt(std::max(by_tokens, by_rows))));
}

std::vector<Batch> BatchPlan::epoch(std::uint32_t epoch) const {
  struct Keyed {
    Example example;
    std::uint32_t random;
  };
  std::vector<Keyed> keyed;
  keyed.reserve(examples_.size());
  const RandomKey key = epoch_key(options_.seed, epoch, EpochStream::examples);
  for (const Example& example : examples_)
    keyed.push_back(
        {example, options_.shuffle ? random_word(key, static_cast<std::uint64_t>(example.index)) : 0});
  const auto by_target = [](const Keyed& one) {
    return std::tie(one.example.target, one.example.source, one.random, one.example.index);
  };
  const auto by_source = [](const Keyed& one) {
    return std::tie(one.example.source, one.example.target, one.random, one.example.index);
  };
  std::ranges::sort(keyed, {}, by_target);
  const double band = band_tokens();
  double tokens = 0;
  bool turned = false;  // every other band goes from long sources to short ones: no jump between bands
  for (std::size_t begin = 0, end = 0; band > 0 && begin < keyed.size(); begin = end, turned = !turned) {
    const double before = tokens;
    for (; end < keyed.size() && tokens < before + band; ++end)
      tokens += static_cast<double>(keyed[end].example.source) + keyed[end].example.target;
    const std::span examples = std::span(keyed).subspan(begin, end - begin);
    std::ranges::sort(examples, {}, by_source);
    if (turned) std::ranges::reverse(examples);
  }
  std::vector<Example> order;
  order.reserve(keyed.size());
  for (const Keyed& entry : keyed) order.push_back(entry.example);
  std::vector<Batch> batches = cut(order);
  if (options_.shuffle) shuffle_batches(batches, epoch_key(options_.seed, epoch, EpochStream::batches));
  return batches;
}

double BatchPlan::padding_share(std::span<const Batch> batches) const {
  double real = 0, all = 0;
  for (const Batch& batch : batches) {
    std::int32_t source = 0, target = 0;
    for (const std::int32_t index : batch) {
      const auto i = static_cast<std::size_t>(index);
      source = std::max(source, source_lengths_[i]);
      target = std::max(target, target_lengths_[i]);
      real += static_cast<double>(source_lengths_[i]) + target_lengths_[i];
    }
    all += (static_cast<double>(source) + target) * static_cast<double>(batch.size());
  }
  return all > 0 ? 1 - real / all : 0;
}

std::vector<Batch> BatchPlan::cut(std::span<const Example> order) const {
  // rows and lengths are below 2^31, so that (rows + 1) * (source + target) fits 63 bits
  std::vector<Batch> batches;
  std::int64_t source = 0, target = 0;  // the longest of the current batch
  for (const Example& example : order) {
    const std::int64_t wider_source = std::max<std::int64_t>(source, example.source);
    const std::int64_t wider_target = std::max<std::int64_t>(target, example.target);
    const std::int64_t rows = batches.empty() ? 0 : static_cast<std::int64_t>(batches.back().size());
    const bool over_tokens =
        options_.max_tokens > 0 && (rows + 1) * (wider_source + wider_target) > options_.max_tokens;
    const bool over_rows = options_.batch_size > 0 && rows + 1 > options_.batch_size;
    if (batches.empty() || over_tokens || over_rows) {
      batches.emplace_back();
      source = example.source;
      target = example.target;
    } else {
      source = wider_source;
      target = wider_target;
    }
    batches.back().push_back(example.index);
  }
  return batches;
}

}  // namespace heed
