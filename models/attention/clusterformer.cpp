// ClusterFormer: "ClusterFormer: Neural Clustering Attention for Efficient and Effective
// Transformer", Wang et al., ACL 2022 (2022.acl-long.170), section 3. Centroids C pass from layer
// to layer; the first layer starts from C0:
//
//   S     = softmax over words j of phi(C_k, X_j Wc)           [B, K, N]
//   C_k'  = sum_j S_kj X_j,   I_j = argmax_k S_kj              new centroids, cluster of each word
//   X^S   = the words in stable order of I,  Q, K, V = X^S Wq, X^S Wk, X^S Wv
//   O^S_i = softmax(Q_i K_i^T / sqrt(dh)) V_i                  block i of w = ceil(N / K) sorted
//   O     = unsort(O^S) Wo                                     words, which sees 2 w words
//
// Two losses shape the clusters (section 3.2), with n real words in the batch:
//
//   L1 = - 1/n sum over real words j of phi(X_j, C'_{I_j})           each word near its centroid
//   L2 = - 1/(K-1) sum_{k<K} phi(C'_k, C'_{k+1}), mean over samples  neighbours in the order alike
//
// Departure: the paper's phi is the dot product, with which both losses reward large norms without
// bound. At weights of 1 they dominate the clipped gradient. Here phi is the cosine, which bounds
// both losses (unless "cosine" is false), and their weights are small. The paper leaves these
// weights, the window and the normaliser open. C0 is normal with variance 1 / d.
//
// Time N (K + 2 N / K) d + N d^2, memory N d + K N, parameters 5 d^2, and K d once.
//
// Options: "clusters" K defaults to blocks of 256 words, because the paper's sqrt(max_length)
// clusters see too little of a document. "auto" chooses K (cluster_count.h); the first layer
// chooses for all others. "window": a block sees itself and the "next" block (default) or the
// previous one, "prev". "assoc": the softmax runs over "words" (default) or over "clusters", which
// makes C' a mean. Also "phi_scale" (1), "cosine" (true), "lambda1" and "lambda2" (0.01).
//
// Causal form (an extension, because the form above reveals future words through its centroids, its
// softmax over words and its sort). Each layer has its own centroids C, which do not depend on the
// words:
//
//   I_j = argmax_k phi(C_k, X_j Wc)                            X_j alone decides
//   O_t = softmax(Q_t K_s^T / sqrt(dh)) V_s Wo                 the last w words s <= t, I_s = I_t
//
// The losses use C in place of C'. Wc acts only through the argmax and gets no gradient: it is a
// buffer that keeps its initial value. In stable order of I, the words of a cluster are adjacent
// and in time order, so a block of w sorted words needs only itself and the block before.
//
// Time N (K + 2 w) d + N d^2, parameters 4 d^2 + K d.
//
// Options of the causal form: "clusters" K (sqrt(max_length), or 3; "auto": cluster_count.h);
// "block" w (ceil(max_length / K), or 64 without a max_length); "phi_scale", "cosine", "lambda1",
// "lambda2" as above.

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/cluster_count.h"
#include "heed/models/attention/shared/block_patterns.h"
#include "heed/models/attention/shared/sorting.h"

namespace heed {
namespace {

// Shared by both forms: the similarity and the losses.

/// phi(x, y) = scale cos(x, y), or scale x . y: options "phi_scale" (1) and "cosine" (true).
class Similarity {
 public:
  explicit Similarity(const Options& options)
      : scale_(options.take_number("phi_scale", 1, 1e-6, 1e6)), cosine_(options.take_bool("cosine", true)) {}

  /// The vectors that phi multiplies: x itself, or its unit vectors.
  Tensor prepared(const Tensor& x) const { return cosine_ ? unit_vectors(x) : x; }

  /// a [..., K, d], b [..., N, d] -> phi of all pairs, [..., K, N].
  Tensor of_pairs(const Tensor& a, const Tensor& b) const {
    const Tensor products = matmul(prepared(a), transpose(prepared(b), -2, -1));
    return scale_ == 1 ? products : products * scale_;
  }

  /// phi of all pairs of a and b W^T, [..., K, N], with W [out, in]. The dot product is computed as
  /// (a W) b^T, which takes K d^2 instead of N d^2.
  Tensor of_projected(const Tensor& a, const Tensor& b, const Tensor& weight) const {
    return cosine_ ? of_pairs(a, linear(b, weight)) : of_pairs(matmul(a, weight), b);
  }

  /// The sum of phi(a_i, b_i) over all rows of equal shape.
  Tensor sum_of_rows(const Tensor& a, const Tensor& b) const { return sum(a * b) * scale_; }

 private:
  double scale_;
  bool cosine_;
};

/// The two losses with their weights, options "lambda1" and "lambda2" (0.01 each).
class ClusterLosses {
 public:
  ClusterLosses(const Options& options, const Similarity& similarity)
      : similarity_(similarity),
        lambda1_(options.take_number("lambda1", 0.01, 0, 1e6)),
        lambda2_(options.take_number("lambda2", 0.01, 0, 1e6)) {}

  /// Adds "clustering" L1 and "centroid_sorting" L2 to the losses of the pass. x [B, N, d],
  /// centroids [B or 1, K, d], assignment i32 [B, N] (K: padding), mask [B, N].
  void add(const Tensor& words_seen, const Tensor& centroids_seen, const Tensor& assignment,
           const Tensor& mask, Context& context) const {
    const DType precise = statistics_type(words_seen.dtype());  // losses are f32 where words are f16 or bf16
    const Tensor x = cast(words_seen, precise), centroids = cast(centroids_seen, precise);
    const std::int64_t clusters = centroids.size(1);
    const Tensor real = mask_as_numbers(mask, x);  // [B, N]
    const Tensor one = Tensor::ones({}, x.dtype(), x.device());
    const Tensor c = similarity_.prepared(centroids);

    // The words of a cluster are added up first: sum_j X_j . C_{I_j} = sum_k (sum of the words of
    // k) . C_k. [B, K, d]
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

 private:
  Similarity similarity_;
  double lambda1_, lambda2_;
};

// The bidirectional form.

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
    // "assoc" is "clusters": each word is shared among the centroids, and a centroid is the mean of
    // the words, weighted by its shares.
    const Tensor shares = masked_softmax(over_words_ ? logits : log_softmax(logits, 1), allowed(input));
    const Tensor updated = matmul(shares, x);                       // [B, K, d]
    const Tensor assignment = assign(logits.detach(), input.mask);  // [B, N]
    if (context.training && centroids_.defined()) count_.observe(x, updated, assignment, input.mask, context);
    losses_.add(x, updated, assignment, input.mask, context);
    context.shared_tensors[travelling] = updated;

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
    show(context, "weights", [&] { return unsorted_weights(attention_weights(query, key, options), order); });
    return w_.output(scatter_add_rows(attended, order, length));
  }

 private:
  /// The centroids of the layer before, [B, K, d]; in the first layer C0, the same for all samples.
  Tensor centroids(const Tensor& x, const Context& context) {
    if (const auto found = context.shared_tensors.find(travelling); found != context.shared_tensors.end()) {
      const Tensor& given = found->second;
      check(given.size(0) == x.size(0) && given.size(2) == x.size(2) &&
                (count_.is_automatic() || given.size(1) == count_.most()),
            "the layer before has ", given.size(1), " clusters, this one ", count_.most(),
            "; centroids travel, so the numbers must be equal");
      return given;
    }
    check(centroids_.defined(),
          "this is not the first ClusterFormer layer, and no layer before it gave centroids");
    const std::int64_t clusters = count_.of(x.size(1), context.training);
    return expand(slice(centroids_, 0, 0, clusters), {x.size(0), clusters, x.size(2)});
  }

  /// 1 at real words, [B, 1, N] or one element.
  static Tensor allowed(const AttentionInput& input) {
    return input.mask.defined() ? unsqueeze(input.mask, 1)
                                : Tensor::ones({1, 1, 1}, DType::i32, input.x.device());
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
  Tensor centroids_;  // C0 [K, d] (with "auto" the largest possible K), in the first layer only
  Linear similarity_;
  Projections w_;
};

// The causal form.

class CausalClusterFormer : public Attention {
 public:
  explicit CausalClusterFormer(const AttentionConfig& config)
      : Attention(config),
        count_(config),
        block_(config.options.take_integer("block", 0, 1, most_positions)),
        phi_(config.options),
        losses_(config.options, phi_),
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
    // Neither K nor w may depend on the length of this input, or the past would change as the text
    // grows.
    const std::int64_t longest = config().max_length, batch = x.size(0), length = x.size(1);
    const std::int64_t clusters = count_.of(longest > 0 ? longest : 2048, context.training);
    const std::int64_t block = block_ > 0 ? block_ : longest > 0 ? ceil_div(longest, clusters) : 64;
    const std::int64_t width = std::min(block, length);
    const Tensor centroids = unsqueeze(slice(centroids_, 0, 0, clusters), 0);  // [1, K, d]
    const Tensor scores = phi_.of_projected(centroids.detach(), x.detach(), cast(similarity_, x.dtype()));
    const Tensor assignment = at_real(argmax(scores, 1), input.mask, clusters);  // [B, N], from [B, K, N]
    if (context.training) count_.observe(x, centroids, assignment, input.mask, context);
    losses_.add(x, centroids, assignment, input.mask, context);

    const Tensor order = argsort(assignment);     // stable: by time within a cluster, padding last
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
    show(context, "weights", [&] { return weights(attention_weights(query, key, options), order); });
    const Tensor blocks = reshape(attended, {batch, attended.size(0) / batch, width, x.size(2)});
    return w_.output(scatter_add_rows(from_blocks(blocks, length), order, length));
  }

 private:
  /// Sorted clusters [B, N] -> i32 [B blocks, 1, w, 2 w]: the same cluster, not later, among the
  /// last w.
  static Tensor allowed(const Tensor& cluster, std::int64_t clusters, std::int64_t width,
                        std::int64_t block) {
    const Device device = cluster.device();
    const Tensor queries = into_blocks(cluster, width, static_cast<double>(clusters));  // [B, blocks, w]
    const Tensor keys = with_block_before(queries, static_cast<double>(clusters));      // [.., 2 w]
    const Tensor same = equal(unsqueeze(queries, 3), unsqueeze(keys, 2)) * unsqueeze(less(keys, clusters), 2);
    // Positions count from the first word of the block before, so query r is at w + r.
    const Tensor at = unsqueeze(Tensor::arange(width, DType::i32, device) + width, 1);  // [w, 1]
    const Tensor of_key = unsqueeze(Tensor::arange(2 * width, DType::i32, device), 0);  // [1, 2 w]
    const Tensor recent = less_equal(of_key, at) * greater(of_key, at - block);
    const Tensor mask = same * recent;
    return reshape(mask, {mask.size(0) * mask.size(1), 1, width, 2 * width});
  }

  /// Weights [B blocks, H, w, 2 w] inside the blocks -> [B, H, N, N] between the words in their own
  /// order.
  static Tensor weights(const Tensor& in_blocks, const Tensor& order) {
    const std::int64_t batch = order.size(0), length = order.size(1);
    const std::int64_t blocks = in_blocks.size(0) / batch, heads = in_blocks.size(1),
                       width = in_blocks.size(2);
    const Tensor by_head =
        permute(reshape(in_blocks, {batch, blocks, heads, width, 2 * width}), {0, 2, 1, 3, 4});
    const Tensor sorted_words =
        weights_of_blocks(reshape(by_head, {batch * heads, blocks, width, 2 * width}), length);
    return unsorted_weights(reshape(sorted_words, {batch, heads, length, length}), order);
  }

  ClusterCount count_;
  std::int64_t block_;  // 0: not set, follows from K
  Similarity phi_;
  ClusterLosses losses_;
  Tensor centroids_;   // [K, d]
  Tensor similarity_;  // Wc [out, in], not trained
  Projections w_;
};

}  // namespace

AttentionVariant clusterformer_variant() {
  return {"clusterformer",
          {.causal = true, .reason = "the paper replaces self-attention only; use dot_product across"},
          [](const AttentionConfig& config) {
            return config.causal ? make_layer<CausalClusterFormer>(config)
                                 : make_layer<ClusterFormer>(config);
          }};
}

}  // namespace heed
