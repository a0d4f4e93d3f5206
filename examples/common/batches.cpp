#include "batches.h"

namespace heed::programs {

BatchOptions training_batches(const Settings& settings) {
  BatchOptions options;
  options.max_tokens = settings.get<std::int64_t>("training.batch_tokens");
  options.max_length = settings.get<std::int64_t>("data.max_tokens");
  options.seed = settings.get<std::uint64_t>("seed");
  return options;
}

BatchOptions evaluation_batches(std::int64_t batch_size) {
  BatchOptions options;
  options.shuffle = false;
  options.max_tokens = 0;
  options.batch_size = batch_size;
  return options;
}

std::vector<std::int32_t> lengths_of(const std::vector<Tokens>& sequences, std::int32_t more) {
  std::vector<std::int32_t> lengths;
  for (const Tokens& tokens : sequences) lengths.push_back(static_cast<std::int32_t>(tokens.size()) + more);
  return lengths;
}

}  // namespace heed::programs
