// Similarity and losses of ClusterFormer (Wang et al., ACL 2022, section 3), with n real words in the batch:
//
//   L1 = - 1/n sum over real words j of phi(X_j, C_{I_j})           each word near its centroid
//   L2 = - 1/(K-1) sum_{k<K} phi(C_k, C_{k+1}), mean over samples   neighbours in the order alike
//
// With the dot product as phi both reward large norms without bound: with weights of 1 they drown the task's loss. So
// phi is the cosine here unless "cosine" is false, which bounds both, and the weights are small.

#include "heed/autograd/ops.h"
#include "heed/models/attention/clusterformer.h"
#include "heed/models/attention/sorting.h"

namespace heed {

Similarity::Similarity(const Options& options)
    : scale_(options.take_number("phi_scale", 1, 1e-6, 1e6)), cosine_(options.take_bool("cosine", true)) {}

Tensor Similarity::prepared(const Tensor& x) const {
  return cosine_ ? unit_vectors(x) : x;
}

Tensor Similarity::of_pairs(const Tensor& a, const Tensor& b) const {
  const Tensor products = matmul(prepared(a), transpose(prepared(b), -2, -1));
  return scale_ == 1 ? products : products * scale_;
}

Tensor Similarity::of_projected(const Tensor& a, const Tensor& b, const Tensor& weight) const {
  return cosine_ ? of_pairs(a, linear(b, weight)) : of_pairs(matmul(a, weight), b);
}

Tensor Similarity::sum_of_rows(const Tensor& a, const Tensor& b) const {
  return sum(a * b) * scale_;
}

ClusterLosses::ClusterLosses(const Options& options, const Similarity& similarity)
    : similarity_(similarity),
      lambda1_(options.take_number("lambda1", 0.01, 0, 1e6)),
      lambda2_(options.take_number("lambda2", 0.01, 0, 1e6)) {}

void ClusterLosses::add(const Tensor& words_seen, const Tensor& centroids_seen, const Tensor& assignment,
                        const Tensor& mask, Context& context) const {
  const DType precise = statistics_type(words_seen.dtype());  // losses are f32 where words are f16 or bf16
  const Tensor x = cast(words_seen, precise), centroids = cast(centroids_seen, precise);
  const std::int64_t clusters = centroids.size(1);
  const Tensor real = mask_as_numbers(mask, x);  // [B, N]
  const Tensor one = Tensor::ones({}, x.dtype(), x.device());
  const Tensor c = similarity_.prepared(centroids);

  // The words of a cluster are added up first: sum_j X_j . C_{I_j} = sum_k (sum of the words of k) . C_k.
  // [B, K, d]
  const Tensor members =
      slice(scatter_add_rows(similarity_.prepared(x), assignment, clusters + 1), 1, 0, clusters);
  const Tensor words = maximum(sum(real), one);
  context.losses.push_back({"clustering", lambda1_, -similarity_.sum_of_rows(members, c) / words});

  const Tensor occupied = max(real, 1, true);  // [B, 1], 1: a sample with real words
  const Tensor samples = maximum(sum(occupied), one);
  const Tensor before = slice(c, 1, 0, clusters - 1), after = slice(c, 1, 1, clusters);
  const double links = static_cast<double>(std::max<std::int64_t>(clusters - 1, 1));
  const Tensor chain = similarity_.sum_of_rows(before * unsqueeze(occupied, 2), after);  // 0 when K = 1
  context.losses.push_back({"centroid_sorting", lambda2_, -chain / (samples * links)});
}

}  // namespace heed
