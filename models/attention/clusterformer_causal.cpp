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
// Options: "clusters" K (sqrt(max_length), or 3); "block" w: ceil(max_length / K), or 64 when no max_length
// is stated. It does not depend on the length of the input, or the past would change as the text grows.
// "phi_scale", "cosine", "lambda1", "lambda2" as in the other form.

#include <algorithm>
#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/clusterformer.h"
#include "heed/models/attention/heads.h"
#include "heed/models/attention/sorting.h"
#include "heed/models/layers.h"

namespace heed {
namespace {

std::int64_t default_block(const AttentionConfig& config, std::int64_t clusters) {
  return config.max_length > 0 ? (config.max_length + clusters - 1) / clusters : 64;
}

class CausalClusterFormer : public Attention {
 public:
  explicit CausalClusterFormer(const AttentionConfig& config)
      : Attention(config),
        clusters_(config.options.take_integer("clusters", default_clusters(config))),
        block_(config.options.take_integer("block",
                                           default_block(config, std::max<std::int64_t>(clusters_, 1)))),
        phi_(config.options),
        losses_(config.options, phi_),
        initialiser_(config.seed),
        query_(config.width, config.width, config.bias, initialiser_),
        key_(config.width, config.width, config.bias, initialiser_),
        value_(config.width, config.width, config.bias, initialiser_),
        output_(config.width, config.width, config.bias, initialiser_) {
    config.options.check_all_taken("causal attention 'clusterformer'");
    check(clusters_ > 0, "setting 'clusters' must be positive, is ", clusters_);
    check(block_ > 0, "setting 'block' must be positive, is ", block_);
    const double deviation = 1 / std::sqrt(static_cast<double>(config.width));
    add_parameter("centroids", centroids_, initialiser_.normal({clusters_, config.width}, deviation));
    add_buffer("similarity.weight", similarity_, initialiser_.xavier_uniform(config.width, config.width));
    add_module("query", query_);
    add_module("key", key_);
    add_module("value", value_);
    add_module("output", output_);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Tensor& x = input.x;
    const std::int64_t batch = x.size(0), words = x.size(1), width = std::min(block_, words);
    const Tensor scores = phi_.of_projected(centroids_.detach(), x.detach(), similarity_);
    const Tensor assignment = at_real(argmax(scores, 1), input.mask, clusters_);  // [B, N], from [B, K, N]
    losses_.add(x, unsqueeze(centroids_, 0), assignment, input.mask, context);

    const Tensor order = argsort(assignment);     // stable: in time within a cluster, padding last
    const Tensor sorted = gather_rows(x, order);  // [B, N, d]
    // Blocks become samples: [B, N, d] -> [B blocks, H, w (keys: 2 w), dh].
    const auto heads_of = [&](const Tensor& blocks) {
      return split_heads(reshape(blocks, {batch * blocks.size(1), blocks.size(2), x.size(2)}),
                         config().heads);
    };
    const Tensor query = heads_of(into_blocks(query_(sorted), width));
    const Tensor key = heads_of(with_block_before(into_blocks(key_(sorted), width)));
    const Tensor value = heads_of(with_block_before(into_blocks(value_(sorted), width)));
    AttentionOptions options;
    options.mask = allowed(gather(assignment, 1, order), width);
    if (context.training && config().dropout > 0) {
      options.dropout = config().dropout;
      options.key = context.random.next();
    }
    const Tensor attended = merge_heads(attention(query, key, value, options));  // [B blocks, w, d]

    show(context, "assignment", assignment);
    show(context, "order", order);
    const Tensor blocks = reshape(attended, {batch, attended.size(0) / batch, width, x.size(2)});
    return output_(scatter_add_rows(from_blocks(blocks, words), order, words));
  }

 private:
  /// Sorted clusters [B, N] -> i32 [B blocks, 1, w, 2 w]: the same cluster, not later, among the last w.
  Tensor allowed(const Tensor& cluster, std::int64_t width) const {
    const Device device = cluster.device();
    const Tensor padding = Tensor::full({}, static_cast<double>(clusters_), DType::i32, device);
    const Tensor queries = into_blocks(cluster, width, static_cast<double>(clusters_));  // [B, blocks, w]
    const Tensor keys = with_block_before(queries, static_cast<double>(clusters_));      // [.., 2 w]
    const Tensor same = equal(unsqueeze(queries, 3), unsqueeze(keys, 2)) * unsqueeze(less(keys, padding), 2);
    // Counted from the first word of the block before, query r stands at w + r.
    const auto number = [&](std::int64_t n) {
      return Tensor::full({}, static_cast<double>(n), DType::i32, device);
    };
    const Tensor at = unsqueeze(Tensor::arange(width, DType::i32, device) + number(width), 1);  // [w, 1]
    const Tensor of_key = unsqueeze(Tensor::arange(2 * width, DType::i32, device), 0);          // [1, 2 w]
    const Tensor recent = less_equal(of_key, at) * greater(of_key, at - number(block_));
    const Tensor mask = same * recent;
    return reshape(mask, {mask.size(0) * mask.size(1), 1, width, 2 * width});
  }

  std::int64_t clusters_, block_;
  Similarity phi_;
  ClusterLosses losses_;
  Initialiser initialiser_;
  Tensor centroids_;   // [K, d]
  Tensor similarity_;  // Wc [out, in], not trained
  Linear query_, key_, value_, output_;
};

}  // namespace

std::unique_ptr<Attention> make_causal_clusterformer(const AttentionConfig& config) {
  return std::make_unique<CausalClusterFormer>(config);
}

}  // namespace heed
