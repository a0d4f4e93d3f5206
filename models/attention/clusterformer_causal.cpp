// The causal form of ClusterFormer (an extension: the paper's form shows future words through its centroids,
// its softmax over words and its sort). Each layer has centroids C of its own, which no word moves:
//
//   I_j = argmax_k phi(C_k, X_j Wc)                                   X_j alone decides
//   O_t = softmax(Q_t K_s^T / sqrt(dh)) V_s Wo                        over the last w words s <= t, I_s = I_t
//
// Losses as in cluster_losses.cpp, with C in place of the updated centroids. Wc acts through the argmax
// alone and has no gradient: it is a buffer that keeps its initial value.
// In stable order of I the words of a cluster stand side by side in time, so a block of w sorted words needs
// itself and the block before. Time N (K + 2 w) d + N d^2, parameters 4 d^2 + K d.
//
// Options: "clusters" K (sqrt(max_length), or 3; "auto": cluster_count.h); "block" w (ceil(max_length / K),
// or 64 when no max_length is stated); "phi_scale", "cosine", "lambda1", "lambda2" as in the other form.

#include <algorithm>
#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/core/checked.h"
#include "heed/models/attention/cluster_count.h"
#include "heed/models/attention/clusterformer.h"
#include "heed/models/attention/heads.h"
#include "heed/models/attention/sorting.h"

namespace heed {
namespace {

class CausalClusterFormer : public Attention {
 public:
  explicit CausalClusterFormer(const AttentionConfig& config)
      : Attention(config),
        count_(config),
        block_(config.options.take_integer("block", 0, 1, most_positions)),
        phi_(config.options),
        losses_(config.options, phi_),
        initialiser_(config.seed),
        w_(config, initialiser_) {
    const double deviation = 1 / std::sqrt(static_cast<double>(config.width));
    add_parameter("centroids", centroids_, initialiser_.normal({count_.most(), config.width}, deviation));
    add_module("count", count_);
    add_buffer("similarity.weight", similarity_, initialiser_.xavier_uniform(config.width, config.width));
    add_projections(w_);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Tensor& x = input.x;
    // Neither K nor w may follow the length of this input, or the past would change as the text grows.
    const std::int64_t longest = config().max_length, batch = x.size(0), length = x.size(1);
    const std::int64_t clusters = count_.of(longest > 0 ? longest : 2048, context.training);
    const std::int64_t block = block_ > 0 ? block_ : longest > 0 ? ceil_div(longest, clusters) : 64;
    const std::int64_t width = std::min(block, length);
    const Tensor centroids = unsqueeze(slice(centroids_, 0, 0, clusters), 0);  // [1, K, d]
    const Tensor scores = phi_.of_projected(centroids.detach(), x.detach(), cast(similarity_, x.dtype()));
    const Tensor assignment = at_real(argmax(scores, 1), input.mask, clusters);  // [B, N], from [B, K, N]
    if (context.training) count_.observe(x, centroids, assignment, input.mask, context);
    losses_.add(x, centroids, assignment, input.mask, context);

    const Tensor order = argsort(assignment);     // stable: in time within a cluster, padding last
    const Tensor sorted = gather_rows(x, order);  // [B, N, d]
    // Blocks become samples: [B, N, d] -> [B blocks, H, w (keys: 2 w), dh].
    const auto heads_of = [&](const Tensor& blocks) {
      return split_heads(reshape(blocks, {batch * blocks.size(1), blocks.size(2), x.size(2)}),
                         config().heads);
    };
    const Projections::Projected projected = w_.of(sorted);
    const Tensor query = heads_of(into_blocks(projected.query, width));
    const Tensor key = heads_of(with_block_before(into_blocks(projected.key, width)));
    const Tensor value = heads_of(with_block_before(into_blocks(projected.value, width)));
    AttentionOptions options = kernel_options({}, context);
    options.mask = allowed(gather(assignment, 1, order), clusters, width, block);
    const Tensor attended = merge_heads(attention(query, key, value, options));  // [B blocks, w, d]

    show(context, "assignment", assignment);
    show(context, "order", order);
    if (context.capture) {
      const Tensor in_blocks = attention_weights(query, key, options);  // [B blocks, H, w, 2 w]
      const std::int64_t blocks = in_blocks.size(0) / batch, heads = config().heads;
      const Tensor by_head =
          permute(reshape(in_blocks, {batch, blocks, heads, width, 2 * width}), {0, 2, 1, 3, 4});
      const Tensor sorted_words =
          weights_of_blocks(reshape(by_head, {batch * heads, blocks, width, 2 * width}), length);
      show(context, "weights",
           unsorted_weights(reshape(sorted_words, {batch, heads, length, length}), order));
    }
    const Tensor blocks = reshape(attended, {batch, attended.size(0) / batch, width, x.size(2)});
    return w_.output(scatter_add_rows(from_blocks(blocks, length), order, length));
  }

 private:
  /// Sorted clusters [B, N] -> i32 [B blocks, 1, w, 2 w]: the same cluster, not later, among the last w.
  static Tensor allowed(const Tensor& cluster, std::int64_t clusters, std::int64_t width,
                        std::int64_t block) {
    const Device device = cluster.device();
    const Tensor queries = into_blocks(cluster, width, static_cast<double>(clusters));  // [B, blocks, w]
    const Tensor keys = with_block_before(queries, static_cast<double>(clusters));      // [.., 2 w]
    const Tensor same = equal(unsqueeze(queries, 3), unsqueeze(keys, 2)) * unsqueeze(less(keys, clusters), 2);
    // Counted from the first word of the block before, query r stands at w + r.
    const Tensor at = unsqueeze(Tensor::arange(width, DType::i32, device) + width, 1);  // [w, 1]
    const Tensor of_key = unsqueeze(Tensor::arange(2 * width, DType::i32, device), 0);  // [1, 2 w]
    const Tensor recent = less_equal(of_key, at) * greater(of_key, at - block);
    const Tensor mask = same * recent;
    return reshape(mask, {mask.size(0) * mask.size(1), 1, width, 2 * width});
  }

  ClusterCount count_;
  std::int64_t block_;  // 0: not set, so that it follows from K
  Similarity phi_;
  ClusterLosses losses_;
  Initialiser initialiser_;
  Tensor centroids_;   // [K, d]
  Tensor similarity_;  // Wc [out, in], not trained
  Projections w_;
};

}  // namespace

std::unique_ptr<Attention> make_causal_clusterformer(const AttentionConfig& config) {
  return std::make_unique<CausalClusterFormer>(config);
}

}  // namespace heed
