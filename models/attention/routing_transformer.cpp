// Routing attention: "Efficient Content-Based Sparse Attention with Routing Transformers", Roy et
// al. 2021, arXiv 2003.05997, algorithm 1. Every head has centroids mu_c, c < C, which follow the
// words:
//
//   q, k  = LN(split(X Wq)), LN(split(X Wk))           LN without scale and shift: |q| = sqrt(dh)
//   qi_c  = the w words with the largest mu_c . q_i, in their order;  ki_c: same for k
//           (causal: k = q, ki_c = qi_c)
//   o_c   = softmax(q[qi_c] k[ki_c]^T / sqrt(dh)) v[ki_c]   (causal: only keys not later)
//   o_i   = mean of o_c over the clusters that took word i, 0 if none did;  O = merge(o) Wo
//
// The commitment loss is the mean of (x - mu_a(x))^2 over the real words, with weight "beta". a(x)
// is the nearest centroid (largest mu . x). The loss is averaged over q and k if they differ. In
// training the centroids move after the pass:
//
//   "ema"    n_c, s_c <- moving averages of the number and the sum of the x with a(x) = c;
//            mu_c <- s_c / ((n_c + e) T / (T + C e)), T = sum_c n_c, e = 1e-5  (released code,
//            default)
//   "paper"  mu_c <- decay mu_c + (1 - decay) / 2 (sum of q in c + sum of k in c)
//
// Time N C d + N w d + N d^2, with C and w near sqrt(N); parameters 4 d^2 (3 d^2 shared).
//
// Later words never contribute values, but they can push a word out of a cluster, so the causal
// form is not strictly causal.
//
// Departure: the mean over clusters is exact (the released code divides by the count + 0.01).
//
// Options: "clusters" C (sqrt(max_length), or 3), "window" w (0: ceil(N / C)), "decay" (0.999),
// "beta" (1e-4), "update" ("ema" or "paper"), "shared_qk" (k = q; always in the causal form).

#include <algorithm>
#include <span>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/sorting.h"
#include "heed/models/module.h"

namespace heed {
namespace {

// Centroids.

/// The centroids and the rules by which they follow the words. They and everything computed with
/// them keep their own dtype, even if words are f16 or bf16. Buffers "centroids" [H, C, dh],
/// "counts" [H, C] and "sums" [H, C, dh]. Words are [B, H, N, dh]; their nearest centroids are i32
/// [B, H, N], -1 at padding.
class RoutingCentroids : public Module {
 public:
  /// Takes the options "decay" and "update". Centroids start as layer-normalised normal vectors,
  /// each counted as one word already seen.
  RoutingCentroids(const AttentionConfig& config, std::int64_t clusters, Initialiser& initialiser)
      : decay_(config.options.take_number("decay", 0.999, 1e-6, 1)),
        paper_(config.options.take_choice("update", {"ema", "paper"}) == "paper") {
    const Shape shape{config.heads, clusters, config.width / config.heads};
    const Tensor drawn = initialiser.normal(shape, 1);
    // Each buffer has its own memory, so that loading one does not overwrite the other.
    const auto start = [&] { return ShapesOnly::active() ? drawn : layer_norm(drawn, {}, {}, 1e-6); };
    add_buffer("centroids", centroids_, start());
    add_buffer("counts", counts_, Initialiser::constant({config.heads, clusters}, 1));
    add_buffer("sums", sums_, start());
  }

  /// mu_c . x_i: [B, H, C, N].
  Tensor scores(const Tensor& x) const {
    const Tensor words = cast(x, centroids_.dtype());
    return matmul(centroids_, transpose(words, -2, -1));  // [H, C, dh] [B, H, dh, N]
  }

  /// The mean of (x - mu_nearest)^2 over all entries of real words; 0 without real words.
  Tensor distance(const Tensor& x, const Tensor& nearest) const {
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

  /// Passes the sum and the number of the words of every centroid on to absorb(); x has one entry
  /// for shared q and k, else two.
  void follow(std::span<const Tensor> x, std::span<const Tensor> nearest, Context& context) {
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

  /// Moves the centroids by the sums [H, C, dh] and counts [H, C] of a pass.
  void absorb(std::span<const Tensor> values) override {
    check(
        values.size() == 2 && values[0].shape() == centroids_.shape() && values[1].shape() == counts_.shape(),
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

 private:
  double decay_;
  bool paper_;
  Tensor centroids_, counts_, sums_;
};

// The layer.

class RoutingAttention : public Attention {
 public:
  explicit RoutingAttention(const AttentionConfig& config)
      : Attention(config),
        clusters_(config.options.take_integer("clusters", default_clusters(config), 1, most_units)),
        window_(config.options.take_integer("window", 0, 0, most_positions)),
        beta_(config.options.take_number("beta", 1e-4, 0, 1e6)),
        shared_(config.options.take_bool("shared_qk", config.causal)),
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

    // The nearest centroid of each word, and the words that every centroid takes.
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

  /// The positions of the w largest scores of real words, ascending, then -1: [B, H, C, w].
  Tensor largest(const Tensor& scores, const Tensor& real) const {
    const std::int64_t length = scores.size(3);
    const std::int64_t width = std::min(window_ ? window_ : ceil_div(length, clusters_), length);
    return sorted_top_k(scores, real.defined() ? unsqueeze(real, 2) : real, width);
  }

  /// Attention inside every cluster, then the mean over the clusters of each word: [B, H, N, dh].
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
    options.causal = config().causal;  // positions ascend, and query and key i are the same word
    options.mask = reshape(greater(key_ids, -1), {sequences, clusters_, 1, width});
    const Tensor out = attention(members(query, flat_query_ids), members(key, flat_key_ids),
                                 members(value, flat_key_ids), options);
    show(context, "weights", [&] {
      const Tensor inside =
          attention_weights(members(query, flat_query_ids), members(key, flat_key_ids), options);
      return all_weights(inside, query_ids, key_ids, length);
    });
    const Tensor total = scatter_add_rows(reshape(out, {sequences, -1, dh}), flat_query_ids, length);
    const Tensor one = Tensor::ones({sequences, flat_query_ids.size(1), 1}, query.dtype(), query.device());
    const Tensor count = scatter_add_rows(one, flat_query_ids, length);  // [B H, N, 1]
    const Tensor mean = total / maximum(count, 1);
    return reshape(mean, query.shape());
  }

  /// Weights [B H, C, w, w] inside clusters -> their mean over the clusters of each word, [B, H, N,
  /// N].
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
          make_layer<RoutingAttention>};
}

}  // namespace heed
