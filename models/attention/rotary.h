#pragma once

#include <mutex>

#include "heed/models/attention/attention.h"

namespace heed {

/// Rotary positions of queries and keys (Su et al. 2021, arXiv 2104.09864, sections 3.2.2 and 3.4): in every head the i-th
/// pair of elements at position n is turned by the angle n 10000^(-2i / dh), so that a product of a query and a key depends
/// on the distance of their positions alone. A pair is elements i and i + dh / 2, as published models of the LLaMA kind
/// have it (the paper's 2i and 2i + 1, with the rows of the maps in another order). There are no parameters, and any
/// length is allowed; beyond the lengths of training a model meets distances that it has not learned.
class Rotary {
 public:
  /// Of an attention without them (AttentionConfig::rotary) it changes nothing. Throws where a head has an odd width.
  explicit Rotary(const AttentionConfig& config);
  /// Queries or keys x [B, N, H dh], for any number of heads H, at the positions from `begin` on.
  Tensor operator()(const Tensor& x, std::int64_t begin = 0);
  /// The same at positions i32 [N], each below `end`.
  Tensor at(const Tensor& x, const Tensor& positions, std::int64_t end);

 private:
  struct Angles {
    Tensor cosines, sines;  // [positions, dh / 2]
  };
  /// Those of the positions below `end` at least.
  Angles angles(std::int64_t end, const Tensor& like);
  Tensor turned(const Tensor& x, const Tensor& cosines, const Tensor& sines) const;

  std::int64_t width_;  // of a head; 0: no rotary positions
  std::mutex mutex_;    // several threads may compute with one model
  Angles table_;        // those computed so far
};

}  // namespace heed
