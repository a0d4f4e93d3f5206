#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "heed/base/fork.h"
#include "heed/models/attention/attention.h"
#include "heed/models/config.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"

namespace heed {

/// Caches values by the numbers they depend on, above all the length. Batches come in many lengths,
/// so a full cache of `most` values is cleared. Values are handles, cheap to copy. Several threads
/// may use it: one builds a missing value while the others wait.
template <class Value, std::size_t most>
class BoundedCache {
 public:
  using Key = std::vector<std::int64_t>;

  template <class Make>
  Value get(const Key& key, Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = values_.find(key);
      if (found != values_.end()) return found->second;
    }
    const Value made = make();
    std::map<Key, Value> old;  // which ends after the lock
    const std::lock_guard lock(mutex_);
    if (values_.size() >= most) old.swap(values_);
    return values_.emplace(key, made).first->second;
  }

 private:
  LeafMutex mutex_;
  std::map<Key, Value> values_;
};

/// Returns the cache key of a tensor with this dtype on this device that depends on these numbers.
std::vector<std::int64_t> cache_key(std::vector<std::int64_t> numbers, DType dtype, Device device);

/// Makes a tensor of numbers computed on the host; they pass through f32 unless `dtype` is f64.
Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype, Device device);

/// True when positions are added as vectors: not within attention ("rotary", "alibi", "relative")
/// and not "none".
bool has_position_vectors(const TransformerConfig& config);

/// The position vectors that are added to token embeddings.
class Positions : public Module {
 public:
  /// "sinusoidal": PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos of the same (Vaswani et al.
  /// 2017, section 3.5), for any length. "sinusoidal_halves": the same columns, with all sines
  /// before all cosines, as in Marian. "learned": a parameter "weight" [max_length, width], N(0,
  /// deviation^2).
  Positions(std::string_view kind, std::int64_t max_length, std::int64_t width, double deviation,
            Initialiser& initialiser);
  /// Returns positions begin ... begin + count - 1: [count, width], with the dtype and device of
  /// `like`. Learned positions throw beyond max_length.
  Tensor operator()(std::int64_t begin, std::int64_t count, const Tensor& like);

  Tensor weight;  ///< undefined for sinusoidal positions

 private:
  std::int64_t width_;
  bool halves_;
  BoundedCache<Tensor, 32> tables_;  // the sinusoids
};

/// Turns token ids into the input of a stack: dropout(embedding * sqrt(d) + positions) (Vaswani et
/// al. 2017, section 3.4). When configured, token type vectors are added and the sum is normalised:
/// dropout(LN(embedding + positions + types)) (Devlin et al., arXiv 1810.04805, figure 2). The
/// embedding belongs to the model, because it may be shared; "positions", "types" and "norm" are
/// parts.
class TokenInput : public Module {
 public:
  TokenInput(const TransformerConfig& config, const Embedding& embedding, Initialiser& initialiser);
  /// Maps ids i32 [B, N], the first at position `begin`, to [B, N, d]. types i32 [B, N]; undefined:
  /// all 0. Throws when types are given but the configuration has no token_types.
  Tensor operator()(const Tensor& ids, std::int64_t begin, Context& context, const Tensor& types = {});
  /// Maps vectors x [B, N, d] in place of embedded ids.
  Tensor from_vectors(Tensor x, std::int64_t begin, Context& context, const Tensor& types = {});

 private:
  const Embedding& embedding_;
  Part<Positions> positions_;
  bool has_positions_;
  double scale_, dropout_;
  std::unique_ptr<Embedding> types_;  // null: none
  std::unique_ptr<Norm> norm_;        // null: none
};

/// Returns the factor of embeddings: sqrt(d), or 1 without scale_embeddings.
double embedding_scale(const TransformerConfig& config);
/// Returns the standard deviation of initial embeddings: 1 / sqrt(d) unless the configuration sets
/// one.
double embedding_deviation(const TransformerConfig& config);

/// Rotary positions of queries and keys (Su et al. 2021, arXiv 2104.09864, sections 3.2.2 and 3.4):
/// in every head, the i-th pair of elements at position n is rotated by the angle n f_i
/// (RotaryAngles), so that the product of a query and a key depends only on the distance of their
/// positions. A pair consists of elements i and i + dh / 2, as in published models of the LLaMA
/// family (in the paper 2i and 2i + 1, which only reorders the rows of the maps). There are no
/// parameters and no limit on the length, but beyond the lengths of training a model sees distances
/// that it has not learned.
class Rotary {
 public:
  /// Does nothing for an attention without rotary positions (AttentionConfig::rotary). Throws when
  /// a head has an odd width.
  explicit Rotary(const AttentionConfig& config);
  /// Rotates queries or keys x [B, N, H dh], for any number of heads H, at positions begin, begin +
  /// 1, ...
  Tensor operator()(const Tensor& x, std::int64_t begin = 0);
  /// Rotates x at positions i32 [N], each below `end`.
  Tensor at(const Tensor& x, const Tensor& positions, std::int64_t end);

 private:
  struct Angles {
    Tensor cosines, sines;  // [positions, turned_ / 2], times the amplitude
  };
  /// Returns the tables of positions begin ... end - 1 of a text that is read up to `end`.
  Angles angles(std::int64_t begin, std::int64_t end, const Tensor& like);
  Tensor apply_rotary(const Tensor& x, const Angles& angles) const;

  std::int64_t width_, turned_;  // of a head, and its elements that rotate; 0: no rotary positions
  RotaryAngles angles_;
  BoundedCache<Angles, 32> tables_;
};

/// Returns the rotary settings of a configuration. Throws for lists that are not numbers.
RotaryAngles rotary_angles(const TransformerConfig& config);

/// The bias that self-attention adds to its logits by the distance of query and key, instead of
/// position vectors.
///
/// AttentionConfig::alibi: -m_h |i - j| with m_h = 2^(-8 h / H), h = 1, ..., H (ALiBi: Press, Smith
/// and Lewis 2022, arXiv 2108.12409, section 3). It has no parameters. When H is not a power of
/// two, the authors' code and BLOOM (arXiv 2211.05100) use other slopes, and so does
/// AttentionConfig::interleaved_slopes: those of n heads, n the next smaller power of two, then the
/// first, third, fifth, ... of 2 n heads.
///
/// AttentionConfig::relative: a learned number per head and bucket of distances (T5: Raffel et al.
/// 2020, arXiv 1910.10683, section 2.1). There are 32 buckets; unless attention is causal, half of
/// them are for keys after the query. Each small distance has its own bucket, larger ones share
/// buckets of growing width, and all distances from 128 on share one. The table is the parameter
/// "weight" [32, H].
///
/// Any length is allowed.
class DistanceBias : public Module {
 public:
  /// Without alibi and relative (AttentionConfig) it adds nothing, has no parameters and draws
  /// nothing.
  DistanceBias(const AttentionConfig& config, Initialiser& initialiser);

  bool active() const { return alibi_ || relative_; }
  bool has_parameters() const { return relative_; }
  /// Passes the distances between `queries` queries and `keys` keys, aligned at their ends, to the
  /// kernel; dtype and device are those of `like`.
  void add_to(AttentionOptions& options, std::int64_t queries, std::int64_t keys, const Tensor& like);
  /// Returns the bias as a matrix [1, H, N, M], for code that regroups heads or queries.
  Tensor matrix(std::int64_t queries, std::int64_t keys, const Tensor& like);
  /// Returns the bias of queries at positions i32 [G] against keys 0, 1, ...: [1, H, G, M]. For
  /// alibi only.
  Tensor matrix_at(const Tensor& positions, std::int64_t keys, const Tensor& like);

  /// Returns the bucket of a key at distance `ahead` = j - i from the query.
  static std::int32_t bucket(std::int64_t ahead, bool causal);

  Tensor weight;  ///< for relative: [32, H]

 private:
  /// Returns m_h, [H].
  Tensor slopes(const Tensor& like);
  Tensor learned(std::int64_t queries, std::int64_t keys, const Tensor& like);

  bool alibi_, interleaved_, relative_, causal_;
  std::int64_t heads_;
  BoundedCache<Tensor, 8> slopes_;
  BoundedCache<Tensor, 1> buckets_;  // i32 [N M]: only the last, since it is large
};

}  // namespace heed
