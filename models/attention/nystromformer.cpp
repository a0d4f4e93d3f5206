// Nystromformer: "Nystromformer: a Nystrom-based algorithm for approximating self-attention", Xiong
// et al. 2021, arXiv 2102.03902, section 3. Landmarks, the means of m segments of queries and keys,
// represent all of them on one side of each softmax. With s = 1 / sqrt(dh) and memory Y = X in
// self-attention:
//
//   q~, k~ = means of q, k = split(X Wq), split(Y Wk) over each segment   [B, H, m, dh] (sec. 3.4)
//   A = softmax( s q~ k~^T )                                              [B, H, m, m]
//   O = merge( softmax( s q k~^T )  A+  softmax( s q~ k^T ) v  +  C ) Wo                  (eq. 13)
//   C_n = sum_t w_h[t] v[n + t - c / 2],  t = 0 ... c - 1: a convolution of the values with one
//         kernel per head (the skip connection of figure 2)
//
// A+ approximates the pseudo-inverse of A by six steps of (eq. 11)
//
//   Z <- 1/4 Z (13 I - A Z (15 I - A Z (7 I - A Z))),     Z_0 = A^T / (|A|_1 |A|_inf)
//
// Padding: a segment holds n / m of the n real tokens of the sample (to within one), so a sample's
// output does not depend on its batch. With n <= m every token is a landmark, and the rest of the m
// are unused. Published checkpoints count padding among the tokens of a segment, and padding has
// outputs. Its values have no weight in the softmax over all tokens, but enter the convolution.
// "padding" = "counted" does the same.
//
// Six steps reach the pseudo-inverse only for a well-conditioned A. Below 64 tokens all are
// landmarks and the exact inverse would give the dot product; six steps do not reach it, about 24
// do. Z_0 is computed per matrix, as in the paper; the authors' code uses the largest |A|_1 |A|_inf
// of the batch.
//
// Cross-attention is an extension that the paper's derivation allows: A is then [m of X, m of Y].
// Each query enters the landmarks of X, so it cannot decode token by token, and it has no
// convolution.
//
// The convolution is off by default. It counts positions, and padding is 0 there. Dropout acts on
// the two softmaxes over tokens and landmarks. Each landmark mixes past and future, so there is no
// causal form.
//
// Time N m d + m^3 H + N d^2 + N c d, memory N (m + d), parameters 4 d^2 + H c.
//
// Settings: "landmarks" m (64); "iterations" (6); "convolution" c, the width of its kernels (0:
// none; odd); "padding", "skipped" (default) or "counted".

#include <algorithm>
#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

/// The tokens whose mean is each landmark.
struct Segments {
  Tensor mean;    // [1 or B, m, N]: 1 / count at the real tokens of a segment, else 0
  Tensor exists;  // i32 [1 or B, m], 0: a segment without tokens
};

Segments make_segments(const Tensor& mask, const Tensor& x, std::int64_t count) {
  const RealPlaces real = real_places(mask, x);
  // floor(place m / n); adding a half keeps whole quotients from being rounded down.
  const Tensor segment =
      cast(floor((cast(real.place, real.count.dtype()) * static_cast<double>(count) + 0.5) / real.count),
           DType::i32);
  Tensor member = equal(unsqueeze(segment, 1), unsqueeze(Tensor::arange(count, DType::i32, x.device()), 1));
  if (mask.defined()) member = member * unsqueeze(mask, 1);
  const Tensor tokens = sum(member, 2);  // i32 [B, m]
  const Tensor share = 1 / maximum(cast(tokens, real.count.dtype()), 1);
  return {cast(member, share.dtype()) * unsqueeze(share, 2), greater(tokens, 0)};
}

/// A+ [B, H, n, m] of a [B, H, m, n]; rows and columns of zeros stay.
Tensor pseudo_inverse(const Tensor& a, std::int64_t iterations) {
  const auto norm = [&](int axis) { return max(sum(a, axis, true), {2, 3}, true); };  // a is not negative
  const Tensor identity = eye(a.size(2), a.dtype(), a.device());
  Tensor z = transpose(a, 2, 3) / maximum(norm(2) * norm(3), 1e-30);  // 0 / 0 where a sample is all padding
  for (std::int64_t i = 0; i < iterations; ++i) {
    const Tensor az = matmul(a, z);
    const Tensor inner = identity * 15 - matmul(az, identity * 7 - az);
    z = matmul(z, identity * 13 - matmul(az, inner)) * 0.25;
  }
  return z;
}

std::int64_t read_convolution(const Options& options) {
  return options.take_integer("convolution", 0, 0, 255);
}

class Nystromformer : public Attention {
 public:
  explicit Nystromformer(const AttentionConfig& config)
      : Attention(config),
        w_(config, initialiser_),
        landmarks_(config.options.take_integer("landmarks", 64, 1, 4096)),
        iterations_(config.options.take_integer("iterations", 6, 1, 64)),
        kernel_width_(read_convolution(config.options)),
        counted_(is_padding_counted(config.options)) {
    check(kernel_width_ == 0 || kernel_width_ % 2 == 1, "attention 'nystromformer': convolution is ",
          kernel_width_, "; the width of a kernel must be odd, or 0 for none");
    add_projections(w_);
    if (kernel_width_ > 0) {
      const double deviation = 1 / std::sqrt(static_cast<double>(kernel_width_));
      add_parameter("convolution", kernels_, initialiser_.normal({config.heads, kernel_width_}, deviation));
    }
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    check(!config().cross, described("attention"),
          ": cross-attention 'nystromformer' takes means of all queries and cannot decode token by token");
    return Attention::step(input, cache, context);
  }

 protected:
  bool counts_padding() const override { return counted_; }

  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t heads = config().heads;
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const bool cross = config().cross;
    const Tensor &memory = cross ? input.memory : input.x,
                 &memory_mask = cross ? input.memory_mask : input.mask;
    Projections::Projected x = cross ? w_.of_memory(memory) : w_.of(input.x);
    if (cross) x.query = w_.query(input.x);
    const Tensor in_query = counted_ ? Tensor() : input.mask, in_memory = counted_ ? Tensor() : memory_mask;
    const auto cut = [&](const Tensor& mask, const Tensor& t) {
      return make_segments(mask, t, std::min(landmarks_, t.size(1)));
    };
    const Segments segments = cut(in_memory, memory),
                   asking_segments = cross ? cut(in_query, input.x) : segments;
    const auto place_landmarks = [&](const Segments& of, const Tensor& t, const Tensor& mask) {
      return split_heads(matmul(of.mean, cast(without_padding(t, mask), precise)), heads);  // [B, H, m, dh]
    };
    const Tensor query_landmarks = place_landmarks(asking_segments, x.query, in_query),
                 key_landmarks = place_landmarks(segments, x.key, in_memory);
    const double scale = 1 / std::sqrt(static_cast<double>(query_landmarks.size(3)));
    const Tensor between = masked_softmax(matmul(query_landmarks, transpose(key_landmarks, 2, 3)) * scale,
                                          unsqueeze(unsqueeze(segments.exists, 1), 1)) *
                           cast(unsqueeze(unsqueeze(asking_segments.exists, 1), 3), precise);
    const Tensor inverse = pseudo_inverse(between, iterations_);  // [B, H, m of Y, m of X]

    const Tensor query = split_heads(x.query, heads), key = split_heads(x.key, heads);
    const Tensor landmark_queries = cast(query_landmarks, type), landmark_keys = cast(key_landmarks, type);
    const AttentionOptions over_tokens = kernel_options(memory_mask, context);
    const AttentionOptions over_landmarks =
        kernel_options(expand(segments.exists, {query.size(0), segments.exists.size(1)}), context);
    const Tensor pooled =
        attention(landmark_queries, key, split_heads(x.value, heads), over_tokens);  // [B, H, m, dh]
    const Tensor values = cast(matmul(inverse, cast(pooled, precise)), type);
    show(context, "weights", [&] {
      return matmul(attention_weights(query, landmark_keys, over_landmarks),
                    matmul(inverse, attention_weights(landmark_queries, key, over_tokens)));
    });
    Tensor out = attention(query, landmark_keys, values, over_landmarks);
    if (kernel_width_ > 0) out = out + convolved(split_heads(x.value, heads), in_query);
    return w_.output(merge_heads(out));
  }

 private:
  /// C of v [B, H, N, dh].
  Tensor convolved(const Tensor& v, const Tensor& mask) const {
    const Tensor padded = pad(without_padding(v, mask), 2, kernel_width_ / 2, kernel_width_ / 2);
    Tensor sum;
    for (std::int64_t t = 0; t < kernel_width_; ++t) {
      const Tensor weight = reshape(slice(kernels_, 1, t, t + 1), {1, v.size(1), 1, 1});
      const Tensor term = slice(padded, 2, t, t + v.size(2)) * cast(weight, v.dtype());
      sum = sum.defined() ? sum + term : term;
    }
    return sum;
  }

  Projections w_;
  std::int64_t landmarks_, iterations_, kernel_width_;
  bool counted_;
  Tensor kernels_;  // w [H, c]; undefined without convolution
};

Capabilities nystromformer_capabilities(const Options& options) {
  return {.cross = read_convolution(options) == 0,
          .cross_by_step = false,
          .as_heads = true,
          .padding = !is_padding_counted(options),
          .reason =
              "each of its landmarks is a mean over past and future, and its convolution goes over the "
              "places of one sequence"};
}

}  // namespace

AttentionVariant nystromformer_variant() {
  return {"nystromformer", nystromformer_capabilities({}), make_layer<Nystromformer>,
          nystromformer_capabilities};
}

}  // namespace heed
