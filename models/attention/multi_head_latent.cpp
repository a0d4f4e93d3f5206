// Multi-head latent attention: "DeepSeek-V2", DeepSeek-AI 2024, arXiv 2405.04434, section 2.1. Keys
// and values are computed from one short vector per token. Decoding keeps only this vector and a
// small key with rotary positions, which all heads share:
//
//   c_t = RMSNorm(x_t Wdkv)  [dc],    k_C = split(c Wuk),  v = split(c Wuv)            (eq. 9 - 11)
//   k_R = RoPE(x_t Wkr)      [dR],    one for all heads                                    (eq. 15)
//   q_C = split(x Wq),  q_R = RoPE(split(x Wqr))                                       (eq. 13, 14)
//   O   = merge( softmax( [q_C; q_R] [k_C; k_R]^T / sqrt(dh + dR) ) v ) Wo            (eq. 16 - 18)
//
// With a query rank, x in the third line is RMSNorm(x Wdq) [rq] (eq. 12). In decoding, Wuk moves to
// the queries and Wuv behind the softmax, so keys and values of past tokens are never computed
// (section 2.1.2): a step compares q_C Wuk^T with c itself. The norms of c and of the queries'
// latent have gains, as in the authors' code and section 3.1.2; it adds 1e-6, here 1e-5. Wuk has no
// bias, which would add the same to all logits of a query.
//
// The mechanism has its own positions. Keys and queries are rotated as in models/positions.h.
//
// Time N^2 d + N (2 dc + dR) d + 2 N d^2; decoding keeps dc + dR numbers per token. Parameters 2
// d^2 + 2 dc d and (H + 1) dR d.
//
// Settings: "kv_rank" dc (0: 4 dh, as in the paper); "query_rank" rq (0: none, as in
// DeepSeek-V2-Lite; the paper's is 12 dh); "rotary_width" dR, even (0: dh / 2, as in the paper).

#include <cmath>
#include <memory>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

class MultiHeadLatent : public Attention {
 public:
  explicit MultiHeadLatent(const AttentionConfig& config)
      : Attention(config),
        width_(config.width / config.heads),
        rank_(size_of_option(config, "kv_rank", 4 * width_)),
        query_rank_(config.options.take_integer("query_rank", 0, 0, most_units)),
        rotary_width_(size_of_option(config, "rotary_width", 2 * ceil_div(width_, 4))),
        query_(*this, "query", asking_width(), config.width, config.bias, initialiser_),
        rotary_query_(*this, "rotary_query", asking_width(), config.heads * rotary_width_, config.bias,
                      initialiser_),
        latent_(*this, "latent", config.width, rank_, config.bias, initialiser_),
        rotary_key_(*this, "rotary_key", config.width, rotary_width_, config.bias, initialiser_),
        key_(*this, "key", rank_, config.width, false, initialiser_),
        value_(*this, "value", rank_, config.width, config.bias, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_),
        rotary_(rotated(config, rotary_width_)) {
    add_parameter("latent_norm", gains_, Initialiser::constant({rank_}, 1));
    if (query_rank_ == 0) return;
    query_latent_ = std::make_unique<Part<Linear>>(*this, "query_latent", config.width, query_rank_,
                                                   config.bias, initialiser_);
    add_parameter("query_latent_norm", query_gains_, Initialiser::constant({query_rank_}, 1));
  }

  /// The cache holds c in `key` [B, T, dc] and k_R in `value` [B, T, dR].
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().causal) return Attention::step(input, cache, context);
    const std::int64_t before = cache.extend_mask(input), heads = config().heads;
    const Parts x = parts_of(input.x, before);
    cache.key = appended(std::move(cache.key), x.latent);
    cache.value = appended(std::move(cache.value), x.rotary_key);
    const auto by_head = [&](const Tensor& weight) {  // [H dh, dc] -> [1, H, dh, dc]
      return reshape(weight, {1, heads, width_, rank_});
    };
    const auto for_all = [&](const Tensor& t) {
      return expand(unsqueeze(t, 1), {t.size(0), heads, t.size(1), t.size(2)});
    };
    const Tensor queries = concat({matmul(x.query, by_head(key_.matrix())), x.rotary_query}, 3);
    const Tensor attended = attention(queries, for_all(concat({cache.key, cache.value}, 2)),
                                      for_all(cache.key), masked_options(cache.mask, context));
    const Tensor merged = merge_heads(matmul(attended, transpose(by_head(value_.matrix()), 2, 3)));
    return output_(value_.bias.defined() ? merged + value_.bias : merged);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t heads = config().heads;
    const Parts x = parts_of(input.x, 0);
    const std::vector<Tensor> made = Linear::each({&key_, &value_}, x.latent);
    const Tensor shared = unsqueeze(x.rotary_key, 1);
    const Tensor query = concat({x.query, x.rotary_query}, 3);
    const Tensor key = concat({split_heads(made[0], heads),
                               expand(shared, {shared.size(0), heads, shared.size(2), shared.size(3)})},
                              3);
    const AttentionOptions options = masked_options(input.mask, context);
    show_weights(context, query, key, options);
    return output_(merge_heads(attention(query, key, split_heads(made[1], heads), options)));
  }

 private:
  /// q_C [B, H, N, dh] and q_R [B, H, N, dR], c [B, N, dc] and k_R [B, N, dR].
  struct Parts {
    Tensor query, rotary_query, latent, rotary_key;
  };

  static std::int64_t size_of_option(const AttentionConfig& config, const char* name, std::int64_t usual) {
    const std::int64_t given = config.options.take_integer(name, 0, 0, most_units);
    return given > 0 ? given : usual;
  }
  static AttentionConfig rotated(AttentionConfig config, std::int64_t width) {
    config.rotary = true;
    config.head_width = width;
    return config;
  }
  std::int64_t asking_width() const { return query_rank_ > 0 ? query_rank_ : config().width; }

  Parts parts_of(const Tensor& x, std::int64_t begin) {
    const std::int64_t heads = config().heads;
    const std::vector<Tensor> shared = Linear::each({&latent_, &rotary_key_}, x);
    const Tensor asking = query_latent_ ? rms_norm((*query_latent_)(x), query_gains_) : x;
    const std::vector<Tensor> queries = Linear::each({&query_, &rotary_query_}, asking);
    return {split_heads(queries[0], heads), split_heads(rotary_(queries[1], begin), heads),
            rms_norm(shared[0], gains_), rotary_(shared[1], begin)};
  }

  AttentionOptions masked_options(const Tensor& mask, Context& context) const {
    AttentionOptions options = kernel_options(mask, context);
    options.scale = 1 / std::sqrt(static_cast<double>(width_ + rotary_width_));
    options.causal = config().causal;
    return options;
  }

  std::int64_t width_, rank_, query_rank_, rotary_width_;  // dh, dc, rq, dR
  Part<Linear> query_, rotary_query_, latent_, rotary_key_, key_, value_, output_;
  Rotary rotary_;
  Tensor gains_;                          // [dc]
  std::unique_ptr<Linear> query_latent_;  // Wdq; null without a query rank
  Tensor query_gains_;                    // [rq]
};

}  // namespace

AttentionVariant multi_head_latent_variant() {
  return {"multi_head_latent",
          {.causal = true, .reason = "the rotary part of its keys compares positions of one sequence"},
          make_layer<MultiHeadLatent>};
}

}  // namespace heed
