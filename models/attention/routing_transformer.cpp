// Routing attention: "Efficient Content-Based Sparse Attention with Routing Transformers", Roy et al. 2021,
// arXiv 2003.05997, algorithm 1. Every head has centroids mu_c, c < C, which follow the words:
//
//   q, k  = LN(split(X Wq)), LN(split(X Wk))           LN without scale and shift: |q| = sqrt(dh)
//   qi_c  = the w words of largest mu_c . q_i, in their order;  ki_c likewise  (causal: k = q, ki_c = qi_c)
//   o_c   = softmax(q[qi_c] k[ki_c]^T / sqrt(dh)) v[ki_c]            (causal: only keys that are not later)
//   o_i   = mean of o_c over the clusters that took word i, 0 when none did;  O = merge(o) Wo
//
// Commitment loss: mean (x - mu_a(x))^2 over the real words, a(x) the nearest centroid (largest mu . x), with
// weight "beta"; the mean over q and k where they differ. In training the centroids move after the pass:
//   "ema"    n_c, s_c <- moving averages of the number and the sum of the x with a(x) = c;
//            mu_c <- s_c / ((n_c + e) T / (T + C e)), T = sum_c n_c, e = 1e-5   (released code, default)
//   "paper"  mu_c <- decay mu_c + (1 - decay) / 2 (sum of q in c + sum of k in c)
// Time N C d + N w d + N d^2, with C and w near sqrt(N); parameters 4 d^2 (3 d^2 shared).
//
// Later words never enter with their values, but they can push a word out of a cluster: not strictly causal.
// Departures: the mean over clusters is exact (the released code divides by the count + 0.01).
// Options: "clusters" C (sqrt(max_length), or 3), "window" w (0: ceil(N / C)), "decay" (0.999), "beta"
// (1e-4), "update" ("ema" or "paper"), "shared_qk" (k = q; always in the causal form).

#include <algorithm>

#include "heed/autograd/ops.h"
#include "heed/core/checked.h"
#include "heed/models/attention/heads.h"
#include "heed/models/attention/routing_centroids.h"
#include "heed/models/attention/sorting.h"

namespace heed {
namespace {

class RoutingAttention : public Attention {
 public:
  explicit RoutingAttention(const AttentionConfig& config)
      : Attention(config),
        clusters_(config.options.take_integer("clusters", default_clusters(config), 1, most_units)),
        window_(config.options.take_integer("window", 0, 0, most_positions)),
        beta_(config.options.take_number("beta", 1e-4, 0, 1e6)),
        shared_(config.options.take_bool("shared_qk", config.causal)),
        initialiser_(config.seed),
        centroids_(config, clusters_, initialiser_),
        query_(config.width, config.width, config.bias, initialiser_),
        value_(config.width, config.width, config.bias, initialiser_),
        output_(config.width, config.width, config.bias, initialiser_) {
    check(shared_ || !config.causal, "the causal form needs 'shared_qk', as its keys are its queries");
    add_module(shared_ ? "query_key" : "query", query_);
    if (!shared_) {
      key_ = std::make_unique<Linear>(config.width, config.width, config.bias, initialiser_);
      add_module("key", *key_);
    }
    add_module("value", value_);
    add_module("output", output_);
    add_module("routing", centroids_);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const auto on_sphere = [&](const Tensor& x) {  // [B, N, d] -> [B, H, N, dh]
      return layer_norm(split_heads(x, config().heads), {}, {}, 1e-6);
    };
    std::vector<Tensor> routed{on_sphere(query_(input.x))};
    if (!shared_) routed.push_back(on_sphere((*key_)(input.x)));
    const Tensor value = split_heads(value_(input.x), config().heads);

    // Which centroid is nearest, and which words every centroid takes.
    std::vector<Tensor> nearest, taken;
    for (const Tensor& x : routed) {
      const Tensor scores = centroids_.scores(x.detach());                   // [B, H, C, N]
      nearest.push_back(at_real(argmax(scores, 2), over_heads(input), -1));  // [B, H, N]
      taken.push_back(largest(scores, over_heads(input)));                   // [B, H, C, w]
    }
    const Tensor attended =
        attend(routed.front(), routed.back(), value, taken.front(), taken.back(), context);

    Tensor commitment;
    for (std::size_t i = 0; i < routed.size(); ++i) {
      const Tensor part = centroids_.distance(routed[i], nearest[i]) / static_cast<double>(routed.size());
      commitment = commitment.defined() ? commitment + part : part;
    }
    context.losses.push_back({"commitment", beta_, commitment});
    if (context.training) centroids_.follow(routed, nearest, context);

    show(context, "query_words", taken.front());
    show(context, "key_words", taken.back());
    show(context, "query_centroids", nearest.front());
    show(context, "key_centroids", nearest.back());
    return output_(merge_heads(attended));
  }

 private:
  /// The mask as [B, 1, N], undefined when all are real.
  static Tensor over_heads(const AttentionInput& input) {
    return input.mask.defined() ? unsqueeze(input.mask, 1) : Tensor();
  }

  /// The positions of the w largest scores of real words, ascending, -1 behind them: [B, H, C, w].
  Tensor largest(const Tensor& scores, const Tensor& real) const {
    const std::int64_t length = scores.size(3);
    const std::int64_t width = std::min(window_ ? window_ : ceil_div(length, clusters_), length);
    return sorted_top_k(scores, real.defined() ? unsqueeze(real, 2) : real, width);
  }

  /// Attention inside every cluster, and the mean over the clusters of a word: [B, H, N, dh].
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_ids,
                const Tensor& key_ids, Context& context) const {
    const std::int64_t sequences = query.size(0) * query.size(1), length = query.size(2), dh = query.size(3);
    const std::int64_t width = query_ids.size(3);
    const Tensor flat_query_ids = reshape(query_ids, {sequences, -1}),
                 flat_key_ids = reshape(key_ids, {sequences, -1});
    const auto members = [&](const Tensor& x, const Tensor& ids) {  // -> [B H, C, w, dh]
      return reshape(gather_rows(reshape(x, {sequences, length, dh}), ids),
                     {sequences, clusters_, width, dh});
    };
    AttentionOptions options = kernel_options({}, context);
    options.causal = config().causal;  // positions ascend, and keys stand where their queries do
    options.mask = reshape(greater(key_ids, -1), {sequences, clusters_, 1, width});
    const Tensor out = attention(members(query, flat_query_ids), members(key, flat_key_ids),
                                 members(value, flat_key_ids), options);
    if (context.capture) {
      const Tensor weights =
          attention_weights(members(query, flat_query_ids), members(key, flat_key_ids), options);
      show(context, "weights", all_weights(weights, query_ids, key_ids, length));
    }
    const Tensor total = scatter_add_rows(reshape(out, {sequences, -1, dh}), flat_query_ids, length);
    const Tensor one = Tensor::ones({sequences, flat_query_ids.size(1), 1}, query.dtype(), query.device());
    const Tensor count = scatter_add_rows(one, flat_query_ids, length);  // [B H, N, 1]
    const Tensor mean = total / maximum(count, 1);
    return reshape(mean, query.shape());
  }

  /// Weights [B H, C, w, w] inside clusters -> the mean over the clusters of a word, [B, H, N, N].
  static Tensor all_weights(const Tensor& inside, const Tensor& query_ids, const Tensor& key_ids,
                            std::int64_t length) {
    const Tensor at = Tensor::arange(length, DType::i32, inside.device());
    // [B H, C, w, N]: 1 where member i of a cluster is word j.
    const auto member_is = [&](const Tensor& ids) {
      const Tensor is = cast(equal(unsqueeze(ids, 4), at), inside.dtype());
      return reshape(is, {inside.size(0), inside.size(1), inside.size(2), length});
    };
    const Tensor of_query = member_is(query_ids);
    const Tensor taken = matmul(transpose(of_query, 2, 3), matmul(inside, member_is(key_ids)));
    const Tensor count = unsqueeze(sum(sum(of_query, 2), 1), 2);  // [B H, N, 1]
    const Tensor mean = sum(taken, 1) / maximum(count, 1);
    return reshape(mean, {query_ids.size(0), query_ids.size(1), length, length});
  }

  std::int64_t clusters_, window_;
  double beta_;
  bool shared_;
  Initialiser initialiser_;
  RoutingCentroids centroids_;
  Linear query_;
  std::unique_ptr<Linear> key_;  // null: shared
  Linear value_, output_;
};

}  // namespace

AttentionVariant routing_transformer_variant() {
  return {"routing_transformer",
          {.causal = true,
           .strictly_causal = false,
           .reason = "queries and keys are routed among the words of one sequence"},
          [](const AttentionConfig& config) {
            return std::unique_ptr<Attention>(std::make_unique<RoutingAttention>(config));
          }};
}

}  // namespace heed
