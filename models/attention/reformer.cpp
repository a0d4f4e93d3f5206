// LSH attention: "Reformer: The Efficient Transformer", Kitaev et al. 2020, arXiv 2001.04451,
// section 2. Queries and keys share a projection, k_j = q_j / |q_j|. In each of R rounds, with a
// random matrix rot_r:
//
//   bucket_r(i) = argmax [q_i rot_r ; -q_i rot_r]
//   order_r     = words by bucket, then position;  chunk_r(i) = rank div m
//   W_r         = pairs in one bucket, key in the query's chunk or the one before (causal: not
//                 later)
//   o_i         = sum_r softmax_r(z_r(i)) o_r(i)
//                 z_r = log sum exp over W_r,  o_r = softmax over W_r
//
// A pair that is in several W_r must count once; the paper subtracts the log of its multiplicity.
// Here it counts only in the first of them, which gives the same sum: one softmax of q k / sqrt(dh)
// over the union. A word sees itself only if it sees no other word (logit - 1e5). While N <= 3/2 m
// R, one softmax over the union is less work than separate rounds and is used instead. Time min(N,
// R m) N d + R N log N + N d^2, memory R N d + H N min(N, R m) for the masks, parameters 3 d^2.
//
// Later words never contribute values, but their ranks can push earlier words out of a chunk. The
// causal form is strictly causal only while no bucket is longer than a chunk.
//
// A word sees only its own bucket, as in the paper. Hugging Face's implementation lets all words of
// a chunk and the one before meet, in any bucket.
//
// Departures: the first chunk does not look back to the last one (the released code does). Training
// draws new rotations in every pass; inference keeps them, so equal inputs give equal outputs.
//
// Options: "rounds" R (8), "chunk" m (64), "buckets" (0: 2 ceil(N / m); otherwise a fixed even
// number, with the rotations in a buffer).

#include <algorithm>
#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/tensor.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/sorting.h"

namespace heed {
namespace {

// Hashing.

/// 0, 1, ... n - 1 in every row of [G, n].
Tensor counted(const Tensor& like) {
  return expand(unsqueeze(Tensor::arange(like.size(1), DType::i32, like.device()), 0), like.shape());
}

/// The chunk of every rank below n: [n].
Tensor chunks_of_ranks(std::int64_t n, std::int64_t chunk, Device device) {
  const std::int64_t chunks = ceil_div(n, chunk);
  const Tensor numbers = unsqueeze(Tensor::arange(chunks, DType::i32, device), 1);
  return slice(reshape(expand(numbers, {chunks, chunk}), {-1}), 0, 0, n);
}

/// The rounds of hashing. In each, G sequences of N words are sorted by bucket and cut into chunks;
/// a word sees the words of its bucket in its own chunk and in the one before (W_r).
class HashRounds {
 public:
  HashRounds(std::int64_t buckets, std::int64_t chunk, bool causal)
      : buckets_(buckets), chunk_(chunk), causal_(causal) {}

  /// Adds a round: sides [G, N, buckets / 2] are the words times its rotation; real i32 [G, N] or
  /// undefined.
  void add(const Tensor& sides, const Tensor& real) {
    const std::int64_t length = sides.size(1);
    Round round;
    round.bucket = at_real(argmax(concat({sides, -sides}, -1), -1), real, buckets_);
    round.order = argsort(round.bucket);
    const Tensor rank = reshape(inverse_order(round.order), {-1});
    const Tensor chunk = index_select(chunks_of_ranks(length, chunk_, sides.device()), 0, rank);
    const std::int64_t chunks = ceil_div(length, chunk_);
    round.place = round.bucket * (chunks + 1) + reshape(chunk, round.bucket.shape());
    rounds_.push_back(round);
  }

  /// i32 [G, chunks, m, 2 m] for the last round, from sorted queries to the keys of the chunk
  /// before and their own chunk: 1 for pairs in W, except a word with itself and pairs of earlier
  /// rounds.
  Tensor allowed() const {
    const Round& last = rounds_.back();
    // x at the queries [G, chunks, m, 1] and at the keys [G, chunks, 1, 2 m]; `filler` completes
    // the blocks.
    const auto pairs = [&](const Tensor& x, std::int64_t filler) {
      const auto fill = static_cast<double>(filler);
      const Tensor queries = into_blocks(gather(x, 1, last.order), chunk_, fill);
      return std::pair(unsqueeze(queries, 3), unsqueeze(with_block_before(queries, fill), 2));
    };
    const auto [bucket_q, bucket_k] = pairs(last.bucket, buckets_);
    const auto [position_q, position_k] = pairs(counted(last.order), -1);
    const Tensor beside = causal_ ? less(position_k, position_q) : not_equal(position_k, position_q);
    // Work on the keys alone comes before the broadcast against the queries.
    const Tensor real_bucket_k = where(less(bucket_k, buckets_), bucket_k, -1);
    Tensor allowed = equal(bucket_q, real_bucket_k) * beside;
    for (std::size_t r = 0; r + 1 < rounds_.size(); ++r) {
      const auto [place_q, place_k] = pairs(rounds_[r].place, -2);
      allowed = allowed * not_equal(place_q, place_k);
      allowed = allowed * not_equal(place_q - 1, place_k);
    }
    return allowed;
  }

  /// i32 [G, N, N], words in their own order: 1 for pairs that are in W of any round, except a word
  /// with itself.
  Tensor allowed_by_any() const {
    Tensor times;  // in how many rounds, or undefined before the first
    const auto count = [&](const Tensor& place_q, const Tensor& place_k) {
      const Tensor found = equal(place_q, place_k);
      times = times.defined() ? times + found : found;
    };
    for (const Round& round : rounds_) {
      const Tensor place_q = unsqueeze(round.place, 2);
      const Tensor place_k = unsqueeze(where(less(round.bucket, buckets_), round.place, -2), 1);
      count(place_q, place_k);
      if (round.place.size(1) > chunk_) count(place_q - 1, place_k);
    }
    const Tensor at = Tensor::arange(times.size(1), DType::i32, times.device());
    const Tensor position_q = unsqueeze(at, 1), position_k = unsqueeze(at, 0);
    return logical_and(times, causal_ ? less(position_k, position_q) : not_equal(position_k, position_q));
  }

  const Tensor& order() const { return rounds_.back().order; }  ///< i32 [G, N] of the last round
  Tensor all_orders() const { return all(&Round::order); }      ///< [R, G, N]
  Tensor all_buckets() const { return all(&Round::bucket); }    ///< [R, G, N], `buckets` at padding

 private:
  struct Round {
    Tensor bucket, order;
    /// bucket (chunks + 1) + chunk: a query may see a key if its place minus the key's is 0 or 1.
    Tensor place;
  };

  Tensor all(Tensor Round::*part) const {
    std::vector<Tensor> parts;
    for (const Round& round : rounds_) parts.push_back(round.*part);
    return stack(parts, 0);
  }

  std::int64_t buckets_, chunk_;
  bool causal_;
  std::vector<Round> rounds_;
};

// The layer.

class Reformer : public Attention {
 public:
  explicit Reformer(const AttentionConfig& config)
      : Attention(config),
        rounds_(config.options.take_integer("rounds", 8, 1, 128)),
        chunk_(config.options.take_integer("chunk", 64, 1, most_positions)),
        buckets_(config.options.take_integer("buckets", 0, 0, most_units)),
        query_key_(*this, "query_key", config.width, config.width, config.bias, initialiser_),
        value_(*this, "value", config.width, config.width, config.bias, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_),
        inference_key_{initialiser_.next_seed(), 0, 0} {
    check(buckets_ % 2 == 0, "setting 'buckets' must be even, is ", buckets_);
    if (buckets_) add_buffer("rotations", rotations_, initial_rotations());
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t batch = input.x.size(0), length = input.x.size(1), heads = config().heads;
    const auto sequences = [&](const Tensor& x) {  // [B, N, d] -> [G, N, dh]
      return reshape(split_heads(x, heads), {batch * heads, length, x.size(2) / heads});
    };
    const Tensor query = sequences(query_key_(input.x)), value = sequences(value_(input.x));
    const Tensor key = unit_vectors(query);
    const Tensor real = input.mask.defined()
                            ? reshape(expand(unsqueeze(input.mask, 1), {batch, heads, length}), {-1, length})
                            : Tensor();
    const std::int64_t buckets = buckets_ ? buckets_ : 2 * ceil_div(length, chunk_);
    const Tensor rotations = rotations_for(input.x, buckets, context);  // [R, H, dh, buckets / 2]

    // The first part is each word by itself, in case it sees no other word. Half precision cannot
    // represent -1e5.
    const Tensor self = cast(sum(query * key, -1), statistics_type(query.dtype()));
    std::vector<AttentionPart> parts{{value, self * scale() - 1e5}};
    const std::int64_t chunk = std::min(chunk_, length);
    HashRounds rounds(buckets, chunk, config().causal);
    const bool at_once = 2 * length <= 3 * chunk * rounds_;  // measured: from there the rounds are faster
    const Tensor by_head = reshape(query.detach(), {batch, heads, length, query.size(2)});
    std::vector<Tensor> shown;  // softmax over W_r, or over all, between all words [G, N, N], under a capture
    for (std::int64_t r = 0; r < rounds_; ++r) {
      const Tensor sides = matmul(by_head, select(rotations, 0, r));  // [B, H, N, buckets / 2]
      rounds.add(reshape(sides, {batch * heads, length, buckets / 2}), real);
      if (at_once) continue;
      parts.push_back(attend(query, key, value, rounds, context));
      if (context.capture) shown.push_back(weights(query, key, rounds));
    }
    if (at_once) {
      AttentionOptions options = kernel_options({}, context);
      options.mask = unsqueeze(rounds.allowed_by_any(), 0);
      const Tensor q = unsqueeze(query, 0), k = unsqueeze(key, 0);  // all sequences as heads
      const AttentionPart part = attention_part(q, k, unsqueeze(value, 0), options);
      parts.push_back({squeeze(part.output, 0), squeeze(part.log_sum_exp, 0)});
      if (context.capture) shown.push_back(squeeze(attention_weights(q, k, options), 0));
    }
    const Tensor joined = join_attention(parts);  // [G, N, dh]

    if (context.capture) {
      const Shape shape{rounds_, batch, heads, length};
      show(context, "buckets", reshape(rounds.all_buckets(), shape));
      show(context, "order", reshape(rounds.all_orders(), shape));
      show(context, "weights", reshape(all_weights(parts, shown), {batch, heads, length, length}));
    }
    return output_(merge_heads(reshape(joined, {batch, heads, length, query.size(2)})));
  }

 private:
  double scale() const {
    const std::int64_t width = config().width / config().heads;
    return 1 / std::sqrt(static_cast<double>(width));
  }

  /// [R, H, dh, buckets / 2], entries N(0, 1).
  Tensor draw(const RandomKey& key, std::int64_t buckets, DType dtype, Device device) const {
    const std::int64_t heads = config().heads;
    return normal({rounds_, heads, config().width / heads, buckets / 2}, 0, 1, key, dtype, device);
  }

  Tensor initial_rotations() const {
    const std::int64_t heads = config().heads;
    if (ShapesOnly::active())
      return ShapesOnly::tensor({rounds_, heads, config().width / heads, buckets_ / 2});
    return draw(inference_key_, buckets_, DType::f32, {});
  }

  Tensor rotations_for(const Tensor& x, std::int64_t buckets, Context& context) const {
    if (context.training) return draw(context.random.next(), buckets, x.dtype(), x.device());
    return rotations_.defined() ? cast(rotations_, x.dtype())
                                : draw(inference_key_, buckets, x.dtype(), x.device());
  }

  /// o_r [G, N, dh] and z_r [G, N] of the last round, over the pairs not in earlier rounds.
  AttentionPart attend(const Tensor& query, const Tensor& key, const Tensor& value, const HashRounds& rounds,
                       Context& context) const {
    AttentionOptions options = kernel_options({}, context);
    options.mask = rounds.allowed();
    const Tensor k = with_block_before(split_into_chunks(key, rounds));  // [G, chunks, 2 m, dh]
    const Tensor v = with_block_before(split_into_chunks(value, rounds));
    const AttentionPart part =
        attention_part(split_into_chunks(query, rounds), k, v, options);  // chunks as heads
    const Tensor rank = inverse_order(rounds.order());
    const auto back = [&](const Tensor& x) { return gather_rows(from_blocks(x, query.size(1)), rank); };
    return {back(part.output), back(part.log_sum_exp)};
  }

  /// x [G, N, dh] in the order of the last round, cut into chunks: [G, chunks, m, dh].
  Tensor split_into_chunks(const Tensor& x, const HashRounds& rounds) const {
    return into_blocks(gather_rows(x, rounds.order()), std::min(chunk_, x.size(1)));
  }

  /// The weights of the last round between all words, [G, N, N].
  Tensor weights(const Tensor& query, const Tensor& key, const HashRounds& rounds) const {
    AttentionOptions options;
    options.mask = rounds.allowed();
    const Tensor k = with_block_before(split_into_chunks(key, rounds));
    const Tensor in_blocks =
        attention_weights(split_into_chunks(query, rounds), k, options);              // [G, chunks, m, 2 m]
    const Tensor sorted = unsqueeze(weights_of_blocks(in_blocks, query.size(1)), 1);  // [G, 1, N, N]
    return squeeze(unsorted_weights(sorted, rounds.order()), 1);
  }

  /// The weights of all parts combined, [G, N, N]; the first part is each word by itself.
  static Tensor all_weights(const std::vector<AttentionPart>& parts, const std::vector<Tensor>& rounds) {
    std::vector<Tensor> normalisers;
    for (const AttentionPart& part : parts) normalisers.push_back(part.log_sum_exp.detach());
    const Tensor shares = softmax(stack(normalisers, 2), -1);  // [G, N, 1 + R]
    const Tensor at = Tensor::arange(shares.size(1), DType::i32, shares.device());
    const Tensor self = cast(equal(unsqueeze(at, 0), unsqueeze(at, 1)), shares.dtype());
    Tensor total = self * slice(shares, 2, 0, 1);
    for (std::size_t r = 0; r < rounds.size(); ++r) {
      const auto column = static_cast<std::int64_t>(r) + 1;
      total = total + rounds[r] * slice(shares, 2, column, column + 1);
    }
    return total;
  }

  std::int64_t rounds_, chunk_, buckets_;
  Part<Linear> query_key_, value_, output_;
  RandomKey inference_key_;
  Tensor rotations_;
};

}  // namespace

AttentionVariant reformer_variant() {
  return {"reformer",
          {.causal = true, .strictly_causal = false, .reason = "queries and keys are the same words"},
          make_layer<Reformer>};
}

}  // namespace heed
