// ClusterFormer: "ClusterFormer: Neural Clustering Attention for Efficient and Effective Transformer", Wang
// et al., ACL 2022 (2022.acl-long.170), section 3. Centroids C travel from layer to layer, C0 in the first:
//
//   S     = softmax over words j of phi(C_k, X_j Wc)                [B, K, N]
//   C_k'  = sum_j S_kj X_j,   I_j = argmax_k S_kj                    new centroids, assignment of words
//   X^S   = the words in stable order of I,  Q, K, V = X^S Wq, X^S Wk, X^S Wv
//   O^S_i = softmax(Q_i K_i^T / sqrt(dh)) V_i                        block i of w = ceil(N / K) sorted words,
//   O     = unsort(O^S) Wo                                           which sees 2 w words
//
// Two losses shape the clusters (cluster_losses.cpp); clusterformer_causal.cpp has the causal form.
// Time N (K + 2 N / K) d + N d^2, memory N d + K N, parameters 5 d^2, and K d once.
//
// Options: "clusters" K (blocks of 256 words; the paper's sqrt(max_length) sees too little on documents; "auto":
// cluster_count.h says how either is chosen, and the first layer chooses for all that follow); "window": a block sees
// itself and the "next" one (default) or the one before, "prev"; "assoc": the softmax runs over "words" (default) or
// over "clusters", C' then being a mean; "phi_scale" (1), "cosine" (true), "lambda1", "lambda2" (0.01). The paper
// leaves the window, the normaliser and the weights of the losses open; its similarity phi is the plain product,
// "cosine" false. Ours are the cosine and the small weights, because plain products grow without bound: with weights of
// 1 the losses of the clusters take the whole clipped gradient. C0 is normal with variance 1 / d.

#include "heed/models/attention/clusterformer.h"

#include <cmath>
#include <limits>

#include "heed/autograd/ops.h"
#include "heed/core/checked.h"
#include "heed/models/attention/block_patterns.h"
#include "heed/models/attention/cluster_count.h"
#include "heed/models/attention/heads.h"
#include "heed/models/attention/sorting.h"

namespace heed {
namespace {

const std::string travelling = "clusterformer.centroids";  // [B, K, d], from layer to layer

class ClusterFormer : public Attention {
 public:
  explicit ClusterFormer(const AttentionConfig& config)
      : Attention(config),
        count_(config),
        next_(config.options.take_choice("window", {"next", "prev"}) == "next"),
        over_words_(config.options.take_choice("assoc", {"words", "clusters"}) == "words"),
        phi_(config.options),
        losses_(config.options, phi_),
        initialiser_(config.seed),
        similarity_(config.width, config.width, false, initialiser_),
        w_(config, initialiser_) {
    if (!config.first) {
      const double deviation = 1 / std::sqrt(static_cast<double>(config.width));
      add_parameter("centroids", centroids_, initialiser_.normal({count_.most(), config.width}, deviation));
      add_module("count", count_);
    }
    add_module("similarity", similarity_);
    add_projections(w_);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Tensor& x = input.x;
    const std::int64_t length = x.size(1);
    const Tensor before = centroids(x, context);                               // [B, K, d]
    const Tensor logits = phi_.of_projected(before, x, similarity_.matrix());  // [B, K, N]
    const std::int64_t clusters = before.size(1);
    const Tensor updated = over_words_ ? matmul(masked_softmax(logits, allowed(input)), x)
                                       : mean_of_members(logits, input);  // [B, K, d]
    const Tensor assignment = assign(logits.detach(), input.mask);        // [B, N]
    if (context.training && centroids_.defined()) count_.observe(x, updated, assignment, input.mask, context);
    losses_.add(x, updated, assignment, input.mask, context);
    context.handed_on[travelling] = updated;

    const Tensor order = argsort(assignment);  // [B, N], padding last
    const Tensor sorted = gather_rows(x, order);
    const Projections::Projected projected = w_.of(sorted);
    const Tensor query = split_heads(projected.query, config().heads);  // [B, H, N, dh]
    const Tensor key = split_heads(projected.key, config().heads);
    const Tensor value = split_heads(projected.value, config().heads);
    const Tensor sorted_mask = input.mask.defined() ? gather(input.mask, 1, order) : Tensor();
    AttentionOptions options = kernel_options(sorted_mask, context);
    const std::int64_t width = ceil_div(length, clusters);
    options.pattern = patterns_.get({length, width}, [&] { return neighbour_pattern(length, width, next_); });
    const Tensor attended = merge_heads(attention(query, key, value, options));  // [B, N, d]

    show(context, "assignment", assignment);
    show(context, "order", order);
    show(context, "centroids", updated);
    if (context.capture)
      show(context, "weights", unsorted_weights(attention_weights(query, key, options), order));
    return w_.output(scatter_add_rows(attended, order, length));
  }

 private:
  /// Those of the layer before [B, K, d]; C0 for all samples in the first one.
  Tensor centroids(const Tensor& x, const Context& context) {
    if (const auto found = context.handed_on.find(travelling); found != context.handed_on.end()) {
      const Tensor& given = found->second;
      check(given.size(0) == x.size(0) && given.size(2) == x.size(2) &&
                (count_.is_automatic() || given.size(1) == count_.most()),
            "the layer before has ", given.size(1), " clusters, this one ", count_.most(),
            "; centroids travel, so the numbers must be equal");
      return given;
    }
    check(centroids_.defined(),
          "this is no first ClusterFormer layer, and no layer before it gave centroids");
    const std::int64_t clusters = count_.of(x.size(1), context.training);
    return expand(slice(centroids_, 0, 0, clusters), {x.size(0), clusters, x.size(2)});
  }

  /// 1 at real words, [B, 1, N] or one element.
  static Tensor allowed(const AttentionInput& input) {
    return input.mask.defined() ? unsqueeze(input.mask, 1)
                                : Tensor::ones({1, 1, 1}, DType::i32, input.x.device());
  }

  /// "clusters": every word shares itself out, and a centroid is the weighted mean of what it got.
  static Tensor mean_of_members(const Tensor& logits, const AttentionInput& input) {
    const Tensor real = unsqueeze(mask_as_numbers(input.mask, input.x), 1);  // [B, 1, N]
    const Tensor shares = softmax(logits, 1) * real;                         // [B, K, N]
    const Tensor total = sum(shares, -1, true);
    const Tensor nothing = equal(total.detach(), 0);
    return matmul(shares, input.x) / masked_fill(total, nothing, 1);
  }

  /// argmax_k S_kj, compared as logarithms; K at padding.
  Tensor assign(const Tensor& logits, const Tensor& mask) const {
    Tensor score = logits;
    if (over_words_) {
      const double never = -std::numeric_limits<double>::infinity();
      const Tensor real = mask.defined() ? where(unsqueeze(mask, 1), logits, never) : logits;
      score = logits - log_sum_exp(real, -1, true);
    }
    return at_real(argmax(score, 1), mask, logits.size(1));
  }

  ClusterCount count_;
  bool next_, over_words_;
  Similarity phi_;
  ClusterLosses losses_;
  PatternCache patterns_;
  Initialiser initialiser_;
  Tensor centroids_;  // C0 [K, d] (of "auto": the most K there may be), in the first layer only
  Linear similarity_;
  Projections w_;
};

}  // namespace

AttentionVariant clusterformer_variant() {
  return {"clusterformer",
          {.causal = true, .reason = "the paper replaces self-attention only; use dot_product across"},
          [](const AttentionConfig& config) {
            return config.causal ? make_causal_clusterformer(config)
                                 : std::unique_ptr<Attention>(std::make_unique<ClusterFormer>(config));
          }};
}

}  // namespace heed
