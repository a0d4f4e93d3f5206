#include "heed/models/word_pairs.h"

#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

constexpr double scale = 20, long_text = 40;

/// Mixes two words (the finaliser of SplitMix64, Steele et al. 2014); 0 stands for no second word.
std::uint64_t mixed(std::int32_t first, std::int32_t second) {
  std::uint64_t z = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(first)) << 32 |
                     static_cast<std::uint32_t>(second)) +
                    0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace

WordPairs::WordPairs(std::int64_t buckets, std::int64_t classes, double dropout) : dropout_(dropout) {
  add_parameter("weight", weight, Initialiser::constant({buckets, classes}, 0));
}

Tensor WordPairs::operator()(const Tensor& ids, Context& context) const {
  const std::int64_t batch = ids.size(0), length = ids.size(1);
  const std::vector<std::int32_t> words = ids.to_vector<std::int32_t>();
  std::vector<std::int32_t> rows(2 * words.size(), -1);  // -1: nothing, a row of zeros
  std::vector<float> factors(static_cast<std::size_t>(batch));
  const auto row_of = [&](std::int32_t first, std::int32_t second) {
    return static_cast<std::int32_t>(mixed(first + 1, second + 1) %
                                     static_cast<std::uint64_t>(weight.size(0)));
  };
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<std::size_t>(b * length + i);
      if (words[at] < 0) continue;
      rows[2 * at] = row_of(words[at], -1);
      const bool pair = i + 1 < length && words[at + 1] >= 0;
      if (pair) rows[2 * at + 1] = row_of(words[at], words[at + 1]);
      count += pair ? 2 : 1;
    }
    const auto n = static_cast<double>(std::max<std::int64_t>(count, 1));
    factors[static_cast<std::size_t>(b)] =
        static_cast<float>(scale / std::sqrt(n * std::max(1.0, n / long_text)));
  }
  const Device device = ids.device();
  Tensor picked = embedding(weight, Tensor::from(rows, {batch, 2 * length}, device));  // [B, 2 N, classes]
  if (context.training && dropout_ > 0) {
    const Tensor one = Tensor::ones({batch, 2 * length, 1}, weight.dtype(), device);
    picked = picked * maybe_dropout(one, dropout_, context);
  }
  return sum(picked, 1) * cast(Tensor::from(factors, {batch, 1}, device), weight.dtype());
}

}  // namespace heed
