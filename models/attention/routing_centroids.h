#pragma once

#include <span>

#include "heed/models/attention/attention.h"
#include "heed/models/initialise.h"

namespace heed {

/// The centroids of routing attention and the rules by which they follow the words (equations in
/// routing_transformer.cpp). They and what is computed with them keep their own type, where words are f16 or bf16, too.
/// Buffers "centroids" [H, C, dh], "counts" [H, C] and "sums" [H, C, dh]. Words are
/// [B, H, N, dh], the nearest centroids of words i32 [B, H, N] with -1 at padding.
class RoutingCentroids : public Module {
 public:
  /// Takes the options "decay" and "update". Centroids start as layer norms of normal vectors, each as of one
  /// word seen before.
  RoutingCentroids(const AttentionConfig& config, std::int64_t clusters, Initialiser& initialiser);

  /// mu_c . x_i: [B, H, C, N].
  Tensor scores(const Tensor& x) const;
  /// The mean of (x - mu_nearest)^2 over all entries of real words; 0 when there are none.
  Tensor distance(const Tensor& x, const Tensor& nearest) const;
  /// Hands the sums and the numbers of words of every centroid on to absorb(); one entry for x = q, or two for q and k.
  void follow(std::span<const Tensor> x, std::span<const Tensor> nearest, Context& context);
  /// Moves the centroids by sums [H, C, dh] and numbers [H, C] of a pass.
  void absorb(std::span<const Tensor> values) override;

 private:
  double decay_;
  bool paper_;
  Tensor centroids_, counts_, sums_;
};

}  // namespace heed
