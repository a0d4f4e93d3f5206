#include "heed/models/attention/hash_rounds.h"

#include "heed/autograd/ops.h"
#include "heed/models/attention/sorting.h"

namespace heed {

namespace {

/// 0, 1, ... n - 1 in every row of [G, n].
Tensor counted(const Tensor& like) {
  return expand(unsqueeze(Tensor::arange(like.size(1), DType::i32, like.device()), 0), like.shape());
}

/// The chunk of every rank below n: [n].
Tensor chunks_of_ranks(std::int64_t n, std::int64_t chunk, Device device) {
  const std::int64_t chunks = (n + chunk - 1) / chunk;
  const Tensor numbers = unsqueeze(Tensor::arange(chunks, DType::i32, device), 1);
  return slice(reshape(expand(numbers, {chunks, chunk}), {-1}), 0, 0, n);
}

}  // namespace

void HashRounds::add(const Tensor& sides, const Tensor& real) {
  const std::int64_t length = sides.size(1);
  Round round;
  round.bucket = at_real(argmax(concat({sides, -sides}, -1), -1), real, buckets_);
  round.order = argsort(round.bucket);
  const Tensor rank = reshape(inverse_order(round.order), {-1});
  const Tensor chunk = index_select(chunks_of_ranks(length, chunk_, sides.device()), 0, rank);
  const std::int64_t chunks = (length + chunk_ - 1) / chunk_;
  round.place = round.bucket * (chunks + 1) + reshape(chunk, round.bucket.shape());
  rounds_.push_back(round);
}

Tensor HashRounds::allowed() const {
  const Round& last = rounds_.back();
  // Of the queries [G, chunks, m, 1] and keys [G, chunks, 1, 2 m]; what fills up blocks is in no bucket.
  const auto pairs = [&](const Tensor& x, std::int64_t filler) {
    const auto fill = static_cast<double>(filler);
    const Tensor queries = into_blocks(gather(x, 1, last.order), chunk_, fill);
    return std::pair(unsqueeze(queries, 3), unsqueeze(with_block_before(queries, fill), 2));
  };
  const auto [bucket_q, bucket_k] = pairs(last.bucket, buckets_);
  const auto [position_q, position_k] = pairs(counted(last.order), -1);
  const Tensor beside = causal_ ? less(position_k, position_q) : not_equal(position_k, position_q);
  // What needs the queries or the keys alone is done before both are set against each other.
  const Tensor real_bucket_k = where(less(bucket_k, buckets_), bucket_k, -1);
  Tensor allowed = equal(bucket_q, real_bucket_k) * beside;
  for (std::size_t r = 0; r + 1 < rounds_.size(); ++r) {
    const auto [place_q, place_k] = pairs(rounds_[r].place, -2);
    allowed = allowed * not_equal(place_q, place_k);
    allowed = allowed * not_equal(place_q - 1, place_k);
  }
  return allowed;
}

Tensor HashRounds::all_orders() const {
  std::vector<Tensor> orders;
  for (const Round& round : rounds_) orders.push_back(round.order);
  return stack(orders, 0);
}

Tensor HashRounds::all_buckets() const {
  std::vector<Tensor> buckets;
  for (const Round& round : rounds_) buckets.push_back(round.bucket);
  return stack(buckets, 0);
}

}  // namespace heed
