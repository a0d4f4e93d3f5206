#include "heed/models/attention/distance_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

constexpr std::int64_t buckets = 32, farthest = 128;

}  // namespace

DistanceBias::DistanceBias(const AttentionConfig& config, Initialiser& initialiser)
    : alibi_(config.alibi), relative_(config.relative), causal_(config.causal), heads_(config.heads) {
  if (!relative_) return;
  const double deviation = 1 / std::sqrt(static_cast<double>(config.width));
  add_parameter("weight", weight, initialiser.normal({buckets, heads_}, deviation));
}

void DistanceBias::add_to(AttentionOptions& options, std::int64_t queries, std::int64_t keys,
                          const Tensor& like) {
  if (alibi_) options.slopes = slopes(like);
  if (relative_) options.bias = learned(queries, keys, like);
}

Tensor DistanceBias::matrix(std::int64_t queries, std::int64_t keys, const Tensor& like) {
  if (relative_) return learned(queries, keys, like);
  const Tensor positions = Tensor::arange(queries, DType::i32, like.device());
  return matrix_at(positions + static_cast<double>(keys - queries), keys, like);
}

Tensor DistanceBias::matrix_at(const Tensor& positions, std::int64_t keys, const Tensor& like) {
  check(alibi_, "DistanceBias: rows at chosen positions are those of alibi");
  const Tensor m = reshape(slopes(like), {1, heads_, 1, 1});
  const Tensor ahead =
      unsqueeze(Tensor::arange(keys, DType::i32, like.device()), 0) - unsqueeze(positions, 1);
  return cast(cast(abs(ahead), m.dtype()) * -m, like.dtype());
}

Tensor DistanceBias::slopes(const Tensor& like) {
  const DType dtype = statistics_type(like.dtype());
  const std::lock_guard lock(mutex_);
  if (slopes_.defined() && slopes_.dtype() == dtype && slopes_.device() == like.device()) return slopes_;
  std::vector<double> m;
  for (std::int64_t h = 1; h <= heads_; ++h)
    m.push_back(std::exp2(-8 * static_cast<double>(h) / static_cast<double>(heads_)));
  return slopes_ = dtype == DType::f64
                       ? Tensor::from(m, {heads_}, like.device())
                       : Tensor::from(std::vector<float>(m.begin(), m.end()), {heads_}, like.device());
}

Tensor DistanceBias::learned(std::int64_t queries, std::int64_t keys, const Tensor& like) {
  Tensor ids;
  {
    const std::lock_guard lock(mutex_);
    if (!buckets_.defined() || queries_ != queries || keys_ != keys || buckets_.device() != like.device()) {
      std::vector<std::int32_t> all;
      all.reserve(static_cast<std::size_t>(queries * keys));
      for (std::int64_t i = keys - queries; i < keys; ++i)
        for (std::int64_t j = 0; j < keys; ++j) all.push_back(bucket(j - i, causal_));
      buckets_ = Tensor::from(all, {queries * keys}, like.device());
      queries_ = queries;
      keys_ = keys;
    }
    ids = buckets_;
  }
  // From [N M, H] to rows of keys: the kernel reads them tile by tile.
  const Tensor by_pair = reshape(embedding(cast(weight, like.dtype()), ids), {1, queries, keys, heads_});
  return contiguous(permute(by_pair, {0, 3, 1, 2}));
}

std::int32_t DistanceBias::bucket(std::int64_t ahead, bool causal) {
  const std::int64_t half = causal ? buckets : buckets / 2, exact = half / 2;
  const std::int64_t side = !causal && ahead > 0 ? half : 0;
  const std::int64_t distance = causal ? std::max<std::int64_t>(-ahead, 0) : std::abs(ahead);
  if (distance < exact) return static_cast<std::int32_t>(side + distance);
  const auto octaves = [&](std::int64_t d) {
    return std::log2(static_cast<double>(d) / static_cast<double>(exact));
  };
  const double beyond = octaves(distance) / octaves(farthest) * static_cast<double>(half - exact);
  return static_cast<std::int32_t>(side + std::min(exact + static_cast<std::int64_t>(beyond), half - 1));
}

}  // namespace heed
