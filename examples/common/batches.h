#pragma once

#include <utility>
#include <vector>

#include "heed/data/batching.h"
#include "heed/models/batch.h"
#include "settings.h"

namespace heed::programs {

/// The limits of a training batch: training.batch_tokens, data.max_tokens and the seed.
BatchOptions training_batches(const Settings& settings);
/// The batches of an evaluation: no example is left out, and like lengths stand together.
BatchOptions evaluation_batches(std::int64_t batch_size);

/// Lengths as the model sees them; each sequence gains `more` marks.
std::vector<std::int32_t> lengths_of(const std::vector<Tokens>& sequences, std::int32_t more = 0);
/// The elements that a batch names.
template <class Element>
std::vector<Element> pick(const std::vector<Element>& all, const Batch& rows) {
  std::vector<Element> picked;
  picked.reserve(rows.size());
  for (const std::int32_t row : rows) picked.push_back(all[static_cast<std::size_t>(row)]);
  return picked;
}

/// The batches of the epoch that was asked for last, so that a step need not plan the whole epoch again.
template <class Plan>
class EpochBatchesOf {
 public:
  using Batches = decltype(std::declval<const Plan&>().epoch(0));
  const Batches& of(const Plan& plan, std::int64_t epoch) {
    if (epoch != epoch_) {
      batches_ = plan.epoch(static_cast<std::uint32_t>(epoch));
      epoch_ = epoch;
    }
    return batches_;
  }

 private:
  std::int64_t epoch_ = -1;
  Batches batches_;
};
using EpochBatches = EpochBatchesOf<BatchPlan>;

}  // namespace heed::programs
