#include "heed/models/attention/routing_centroids.h"

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {

RoutingCentroids::RoutingCentroids(const AttentionConfig& config, std::int64_t clusters,
                                   Initialiser& initialiser)
    : decay_(config.options.take_number("decay", 0.999, 1e-6, 1)),
      paper_(config.options.take_choice("update", {"ema", "paper"}) == "paper") {
  const Shape shape{config.heads, clusters, config.width / config.heads};
  const Tensor drawn = initialiser.normal(shape, 1);
  // Each has memory of its own: what a file has of one must not be read into the other.
  const auto start = [&] { return ShapesOnly::active() ? drawn : layer_norm(drawn, {}, {}, 1e-6); };
  add_buffer("centroids", centroids_, start());
  add_buffer("counts", counts_, Initialiser::constant({config.heads, clusters}, 1));
  add_buffer("sums", sums_, start());
}

Tensor RoutingCentroids::scores(const Tensor& x) const {
  const Tensor words = cast(x, centroids_.dtype());
  return matmul(centroids_, transpose(words, -2, -1));  // [H, C, dh] [B, H, dh, N]
}

Tensor RoutingCentroids::distance(const Tensor& x, const Tensor& nearest) const {
  const std::int64_t heads = x.size(1), clusters = centroids_.size(1), dh = x.size(3);
  // Row h C + c of all centroids.
  const Tensor of_head = unsqueeze(Tensor::arange(heads, DType::i32, x.device()) * clusters, 1);
  const Tensor real = greater(nearest, -1);  // [B, H, N]
  const Tensor rows = where(real, nearest + of_head, -1);
  const Tensor target = embedding(reshape(centroids_, {heads * clusters, dh}), rows);  // [B, H, N, dh]
  const Tensor difference = where(unsqueeze(real, 3), cast(x, target.dtype()) - target, 0);
  const Tensor entries = sum(cast(real, target.dtype())) * static_cast<double>(dh);
  return sum(square(difference)) / maximum(entries, 1);
}

void RoutingCentroids::follow(std::span<const Tensor> x, std::span<const Tensor> nearest, Context& context) {
  const NoGrad no_grad;
  const std::int64_t heads = centroids_.size(0), clusters = centroids_.size(1), dh = centroids_.size(2);
  Tensor counts = Tensor::zeros({heads, clusters}, centroids_.dtype(), centroids_.device());
  Tensor sums = Tensor::zeros(centroids_.shape(), centroids_.dtype(), centroids_.device());
  for (std::size_t i = 0; i < x.size(); ++i) {
    // All words of a head together: [B, H, N, ...] -> [H, B N, ...].
    const Tensor words = reshape(transpose(cast(x[i].detach(), centroids_.dtype()), 0, 1), {heads, -1, dh});
    const Tensor ids = reshape(transpose(nearest[i], 0, 1), {heads, -1});
    const Tensor one = Tensor::ones({heads, ids.size(1), 1}, words.dtype(), words.device());
    sums = sums + scatter_add_rows(words, ids, clusters);
    counts = counts + squeeze(scatter_add_rows(one, ids, clusters), 2);
  }
  // Shared queries and keys count twice, once in each role.
  const double share = (1 - decay_) / static_cast<double>(x.size());
  context.observe(*this, {paper_ ? sums * share : sums, counts});
}

void RoutingCentroids::absorb(std::span<const Tensor> values) {
  check(values.size() == 2 && values[0].shape() == centroids_.shape() && values[1].shape() == counts_.shape(),
        described("RoutingCentroids"), ": these are not the sums and numbers of its centroids");
  const NoGrad no_grad;
  const Tensor &sums = values[0], &counts = values[1];
  if (paper_) {
    centroids_ = centroids_ * decay_ + sums;
    return;
  }
  constexpr double epsilon = 1e-5;
  counts_ = counts_ * decay_ + counts * (1 - decay_);
  sums_ = sums_ * decay_ + sums * (1 - decay_);
  const Tensor total = sum(counts_, -1, true);  // [H, 1]
  const Tensor smooth =
      (counts_ + epsilon) / (total + static_cast<double>(centroids_.size(1)) * epsilon) * total;
  centroids_ = sums_ / unsqueeze(smooth, 2);
}

}  // namespace heed
