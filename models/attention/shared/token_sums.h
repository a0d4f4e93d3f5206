#pragma once

#include <functional>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/options.h"

// Shared by the variants whose tokens meet in sums instead of in pairs.

namespace heed {

/// The output of recurrence(). Causal: it starts from `*state` (undefined: 0), which becomes S
/// after the last token and is all that decoding keeps; null: the sequence is whole. Bidirectional:
/// the sum of both directions' outputs; without a delta rule, a query's own token counts once.
Tensor recurrence_output(Recurrence of, bool causal, Tensor* state);

/// Log-linear attention: "Log-linear attention", Guo et al. 2025, arXiv 2506.04761, section 3. Instead
/// of one state, a token t = 0, 1, ... reads one for each level l of a Fenwick tree, the larger the
/// more distant its tokens are:
///
///   o_t = lambda^0_t (q_t k_t) v_t + sum over l with bit l - 1 of t set: lambda^l_t q_t S^l_t
///
/// S^l_t sums e^{g_{j+1} + ... + g_t} k_j^T v_j over 2^(l-1) consecutive tokens, which end where
/// those of the next lower level begin, and at level 0 there is the token itself. O(N log N) time;
/// decoding keeps at most log2(N) + 1 states. `of` has a query, key, value and log_decay [B, H, N];
/// `scales` is lambda [B, H, N, m], whose last column holds for all higher levels, too. Causal: the
/// states are in the parts of `cache` (null: the sequence is whole). Bidirectional: the sum of both
/// directions' outputs, in which a query's own token counts once.
Tensor log_linear_output(const Recurrence& of, const Tensor& scales, bool causal, AttentionCache* cache);

/// Attention that is a recurrence over the tokens, so decoding continues from a state.
class RecurrentAttention : public Attention {
 public:
  using Attention::Attention;

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    return config().causal ? mixed(input, &cache, context) : Attention::step(input, cache, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    return mixed(input, nullptr, context);
  }

  /// The output for these positions. `cache` holds the state before them and is updated to the
  /// state after them; null: they are the whole sequence.
  virtual Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) = 0;
};

/// A causal depthwise convolution, used before the recurrences of newer mechanisms: y_t = sum_s
/// w_{c-1-s} x_{t-s} + b over s = 0 ... c - 1. "weight" [c, C] starts from U(-1, 1) / sqrt(c),
/// "bias" [C] from 0.
class ShortConvolution : public Module {
 public:
  ShortConvolution(std::int64_t taps, std::int64_t channels, bool with_bias, Initialiser& initialiser);
  /// x [B, N, C] -> [B, N, C]. `before` is x at the c - 1 positions before [B, c - 1, C]
  /// (undefined: 0), and becomes that of the last ones; null: a whole sequence.
  Tensor operator()(const Tensor& x, Tensor* before) const;

  Tensor weight, bias;
};

/// x [B, N, d] moved back by one token: row t is x_{t-1}. `last` is x at the last token before
/// [B, 1, d] (undefined: 0), and becomes that of these; null: a whole sequence.
Tensor tokens_before(const Tensor& x, Tensor* last);

/// Initial values, a function of an element's index.
Tensor first_values(const Shape& shape, const std::function<double(std::int64_t n)>& value);

/// Initial values for H heads that fade as e^( -e^A softplus(x + b) ), as in Mamba-2's code: e^A
/// from U(1, 16), and softplus(b) from e^U(log 0.001, log 0.1).
Tensor first_decay_rates(std::int64_t heads, Initialiser& initialiser);  // A
Tensor first_decay_steps(std::int64_t heads, Initialiser& initialiser);  // b

/// Positions of real tokens among the real tokens of their sample. Cutting or transforming by them
/// does not depend on the padding of the batch.
struct RealPlaces {
  Tensor place;  ///< i32 [B, N]: 0, 1, ... count - 1 at real tokens; meaningless at padding
  Tensor count;  ///< of real tokens, at least 1, [B, 1] (f32, or f64 where x is)
};

/// Of the tokens x [B, N, ...] with a mask i32 [B, N]. Without a mask all are real, and B is 1.
RealPlaces real_places(const Tensor& mask, const Tensor& x);

/// `total`, which must not be negative, with zeros replaced by 1, so that x / divisor(total) is 0
/// for empty sums.
Tensor divisor(const Tensor& total);

/// The setting "padding" of mechanisms that cut or transform a whole sequence. "skipped" is the
/// default; with "counted", padding counts like other tokens and has outputs. Published weights
/// were trained with "counted", with which a sample's outputs depend on the length of its batch.
inline bool is_padding_counted(const Options& options) {
  return options.take_choice("padding", {"skipped", "counted"}) == "counted";
}

}  // namespace heed
