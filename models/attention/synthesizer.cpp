// The Synthesizers: "Synthesizer: Rethinking Self-Attention for Transformer Models", Tay, Bahri,
// Metzler, Juan, Zhao and Zheng 2021, arXiv 2005.00743 v3, section 3. Each replaces the logits of
// self-attention by S(X):
//
//   Y_h = softmax( S_h(X) ) v_h,  O = merge(Y) Wo   (eq. 2)   over allowed keys, no 1 / sqrt(dh)
//
// L is max_length: longer inputs are an error, shorter ones use the leading rows and columns of the
// parameters.
//
// Dense (section 3.1). Each token predicts how much to attend to each position, without looking at
// the others; df is the hidden width:
//
//   hid_i   = ReLU( W1_h x_i + b1_h )                     [B, H, N, df]
//   S[i, j] = hid_i . W2_h[:, j] + b2_h[j],   j < N       (eq. 1)
//
// S is a product, so the fused attention kernel computes it tile by tile, with W2 in place of the
// keys. Time N d H df + N^2 (H df + d) + N d^2, memory N d (fused). Parameters 2 d^2 + H (d df + df
// L). Settings: hidden (df, default d / H), share_w2 (false; true: one W2 for all heads, as in the
// released code), logit_bias (b1 and b2; defaults to that of the projections). Departure: the paper
// has df = d with one head; d / H per head keeps the cost at d^2.
//
// Random (section 3.2). The logits are parameters, learned for the task and the same for every
// sample:
//
//   S_h = R_h[0:N, 0:N]                                   [1, H, N, N]   (eq. 4)
//
// The fused kernel adds S to scores of 0. When no sample is padded and nothing is dropped, one
// weight matrix per head serves the whole batch, and the values of all samples form one product per
// head. Time N^2 d + N d^2, memory H L^2 for the parameters and their gradient. Parameters 2 d^2 +
// H L^2. Setting: deviation (of normal initial logits; default 0: Xavier uniform on [L, L], since
// the paper says only "random").
//
// Fixed Random (section 3.2). As Random, but R keeps its initial values, is saved with the model
// and has no gradient. Time N^2 d + N d^2, memory H L^2; 2 d^2 trained parameters and H L^2 fixed
// numbers. Setting: deviation as above; a large one makes each row attend to a few random
// positions.
//
// Factorized Dense (section 3.3). A token makes two short vectors, of lengths a and b with a b >=
// L, which are stretched to the length of the sequence and multiplied:
//
//   hid_i   = ReLU( W1_h x_i + b1_h )                                     [B, H, N, df]
//   A_i     = WA_h hid_i + bA_h,   B_i = WB_h hid_i + bB_h               [B, H, N, a], [B, H, N, b]
//   S[i, n] = A_i[n mod a] B_i[n mod b]       tiling "tile"               [B, H, N, N]   (eq. 5)
//           = A_i[n div b] B_i[n mod b]       tiling "outer" (an extension)
//
// "tile" repeats after lcm(a, b) positions. If a and b have a common divisor, as in a = b = 16,
// some positions always share a logit; this is allowed, but the default b is coprime to a. Time N d
// H df + N H df (a + b) + N^2 d + N d^2; S is computed for some rows at a time, and again in
// backward. Parameters 2 d^2 + H df (d + a + b). Settings: tiling ("tile"), a (default about
// sqrt(L)), b (about L / a), hidden (df, default d / H), logit_bias (b1, bA and bB; defaults to
// that of the projections).
//
// Factorized Random (section 3.4). Random logits of rank k:
//
//   S_h = R1_h[0:N] R2_h[0:N]^T                           [1, H, N, N]   (eq. 6)
//
// S is a product, so the fused kernel computes it tile by tile, with R1 and R2 in place of queries
// and keys, and holds no weight matrix. Time N^2 (H k + d) + N d^2, memory N d (fused). Parameters
// 2 d^2 + 2 H L k. Settings: k (default 8, as in the paper; the released code has 16), deviation
// (of the normal initial factors; default k^(-1/4), so that each logit starts with variance 1).
//
// Mixture (section 3.5). The logits are a weighted sum over any set of components m, with learned
// weights per head and one softmax after the sum:
//
//   S_h   = sum_m alpha_{m, h} S_{m, h}(X),   alpha = softmax(logits of alpha) over m  (eq. 7)
//   S_dot = Q K^T / sqrt(dh),   Q = split(X Wq),  K = split(X Wk)                      [B, H, N, N]
//
// Time and parameters are those of the components, plus M H for the weights of M components. The
// sum of components that are products (dense, fact_random, dot) is again one product for the fused
// kernel. The others add a matrix to its scores, computed for some rows at a time, and again in
// backward. Settings: components (of dense, random, random_fixed, fact_dense, fact_random, dot;
// default random, dot) and those of the components: hidden, share_w2, logit_bias, tiling, a, b, k,
// deviation. Each setting applies to every component that has it. All weights start equal.
// Departures: the paper writes the dot product without its 1 / sqrt(dh), which its code folds into
// the initial values; the released code has one scalar per layer.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/models/attention/attention.h"

namespace heed {
namespace {

/// The part of S that is a product rows columns^T and is never materialised: rows [B or 1, H, n, f]
/// and columns [B or 1, H or 1, N, f]. Both are undefined when S has no such part.
struct LogitFactors {
  Tensor rows, columns;
};

/// S(X) = rows columns^T + matrix for one kind of Synthesizer, with its parameters. Queries are the
/// n = N - first positions from `first` on; keys are all N positions of x [B, N, d]. A batch extent
/// of 1 means that all samples share the logits. A kind overrides one of the two parts, or both.
class SynthesizerLogits : public Module {
 public:
  virtual LogitFactors factors(const Tensor& /*x*/, std::int64_t /*first*/) const { return {}; }
  /// Inputs of the matrix: matrix_parts() tensors [B or 1, H, n, ...], with one row per query.
  virtual std::size_t matrix_parts() const { return 0; }
  virtual std::vector<Tensor> matrix_rows(const Tensor& /*x*/, std::int64_t /*first*/) const { return {}; }
  /// The first `keys` columns of the matrix, [B or 1, H, rows, keys], for a subset of these rows.
  virtual Tensor matrix(std::span<const Tensor> /*rows*/, std::int64_t /*keys*/) const { return {}; }
};

using LogitsPtr = std::unique_ptr<SynthesizerLogits>;
using MakeLogits = LogitsPtr (*)(const AttentionConfig&, Initialiser&);

/// Initial values of H matrices [in, out], each Xavier uniform on its own: [H, in, out].
Tensor xavier_per_head(std::int64_t heads, std::int64_t in, std::int64_t out, Initialiser& initialiser) {
  return initialiser.xavier_uniform({heads, in, out}, in, out);
}

/// One matrix per head: x W + b as [B, H, N, f], for x [B, N, d], W [H, d, f] and b [H, f] or
/// undefined.
Tensor linear_per_head(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t heads = weight.size(0), in = weight.size(1), out = weight.size(2);
  // All heads read the same x, so their matrices are placed side by side in one product.
  const Tensor y = matmul(x, reshape(permute(weight, {1, 0, 2}), {in, heads * out}));
  return split_heads(bias.defined() ? y + reshape(bias, {heads * out}) : y, heads);
}

// Settings shared by several kinds: the hidden width df (default d / H), and whether the maps that
// produce the logits have biases (default: as in the projections).

std::int64_t take_hidden_width(const AttentionConfig& config) {
  return config.options.take_integer("hidden", config.inner_width() / config.heads, 1, most_units);
}

bool take_logit_bias(const AttentionConfig& config) {
  return config.options.take_bool("logit_bias", config.bias);
}

template <class Logits>
LogitsPtr make_logits(const AttentionConfig& config, Initialiser& initialiser) {
  return std::make_unique<Logits>(config, initialiser);
}

// Dense.

class DenseLogits : public SynthesizerLogits {
 public:
  DenseLogits(const AttentionConfig& config, Initialiser& initialiser) : heads_(config.heads) {
    const std::int64_t hidden = take_hidden_width(config), length = config.max_length;
    const std::int64_t sets = config.options.take_bool("share_w2", false) ? 1 : config.heads;
    add_parameter("W1", w1_, xavier_per_head(config.heads, config.width, hidden, initialiser));
    add_parameter("W2", w2_, xavier_per_head(sets, hidden, length, initialiser));
    if (!take_logit_bias(config)) return;
    add_parameter("b1", b1_, Initialiser::constant({config.heads, hidden}, 0));
    add_parameter("b2", b2_, Initialiser::constant({sets, length}, 0));
  }

  LogitFactors factors(const Tensor& x, std::int64_t first) const override {
    const std::int64_t batch = x.size(0), length = x.size(1);
    Tensor hid = relu(linear_per_head(slice(x, 1, first, length), w1_, b1_));  // [B, H, n, df]
    Tensor columns = transpose(slice(w2_, 2, 0, length), 1, 2);                // [H or 1, N, df]
    if (b2_.defined()) {  // the bias is one more column, for a hidden unit that is always 1
      hid = concat({hid, Tensor::ones({batch, heads_, length - first, 1}, x.dtype(), x.device())}, 3);
      columns = concat({columns, unsqueeze(slice(b2_, 1, 0, length), 2)}, 2);
    }
    return {hid, unsqueeze(columns, 0)};
  }

 private:
  std::int64_t heads_;
  Tensor w1_, b1_;  // [H, d, df], [H, df]
  Tensor w2_, b2_;  // [H, df, L], [H, L]; H = 1 when shared
};

// Random.

class RandomLogits : public SynthesizerLogits {
 public:
  RandomLogits(const AttentionConfig& config, Initialiser& initialiser, bool trained = true) {
    const std::int64_t heads = config.heads, length = config.max_length;
    const double deviation = config.options.take_number("deviation", 0, 0, 1e6);
    const Tensor initial = deviation > 0 ? initialiser.normal({heads, length, length}, deviation)
                                         : xavier_per_head(heads, length, length, initialiser);
    if (trained)
      add_parameter("R", r_, initial);
    else
      add_buffer("R", r_, initial);
  }

  std::size_t matrix_parts() const override { return 1; }
  std::vector<Tensor> matrix_rows(const Tensor& x, std::int64_t first) const override {
    // Fixed logits are a buffer, which keeps its dtype where words are f16 or bf16.
    return {cast(unsqueeze(slice(r_, 1, first, x.size(1)), 0), x.dtype())};
  }
  Tensor matrix(std::span<const Tensor> rows, std::int64_t keys) const override {
    return slice(rows[0], 3, 0, keys);
  }

 private:
  Tensor r_;  // [H, L, L]
};

struct FixedRandomLogits : RandomLogits {
  FixedRandomLogits(const AttentionConfig& config, Initialiser& initialiser)
      : RandomLogits(config, initialiser, false) {}
};

// Factorized Dense.

/// The smallest b with a b >= length; for tiles also coprime to a.
std::int64_t second_length(std::int64_t a, std::int64_t length, bool outer) {
  std::int64_t b = ceil_div(length, a);
  while (!outer && std::gcd(a, b) > 1) ++b;
  return b;
}

/// x [B, H, n, a] repeated along the last axis: [B, H, n, length].
Tensor tiled(const Tensor& x, std::int64_t length) {
  const std::int64_t a = x.size(3), times = ceil_div(length, a);
  const Tensor copies = expand(unsqueeze(x, 3), {x.size(0), x.size(1), x.size(2), times, a});
  return slice(reshape(copies, {x.size(0), x.size(1), x.size(2), times * a}), 3, 0, length);
}

class FactorizedDenseLogits : public SynthesizerLogits {
 public:
  FactorizedDenseLogits(const AttentionConfig& config, Initialiser& initialiser) {
    const std::int64_t heads = config.heads, length = config.max_length, hidden = take_hidden_width(config);
    outer_ = config.options.take_choice("tiling", {"tile", "outer"}) == "outer";
    const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(length))));
    const std::int64_t a = config.options.take_integer("a", root, 1, most_units);
    const std::int64_t b =
        config.options.take_integer("b", second_length(a, length, outer_), 1, std::max(most_units, length));
    check(b >= ceil_div(length, a), "factorized dense logits need a b >= max_length, got a = ", a,
          ", b = ", b, " for ", length, " positions");
    add_parameter("W1", w1_, xavier_per_head(heads, config.width, hidden, initialiser));
    add_parameter("WA", wa_, xavier_per_head(heads, hidden, a, initialiser));
    add_parameter("WB", wb_, xavier_per_head(heads, hidden, b, initialiser));
    if (!take_logit_bias(config)) return;
    add_parameter("b1", b1_, Initialiser::constant({heads, hidden}, 0));
    add_parameter("bA", ba_, Initialiser::constant({heads, a}, 0));
    add_parameter("bB", bb_, Initialiser::constant({heads, b}, 0));
  }

  std::size_t matrix_parts() const override { return 2; }
  std::vector<Tensor> matrix_rows(const Tensor& x, std::int64_t first) const override {
    const Tensor hid = relu(linear_per_head(slice(x, 1, first, x.size(1)), w1_, b1_));  // [B, H, n, df]
    Tensor a = matmul(hid, wa_), b = matmul(hid, wb_);
    if (ba_.defined()) {
      a = a + unsqueeze(ba_, 1);
      b = b + unsqueeze(bb_, 1);
    }
    return {a, b};
  }

  Tensor matrix(std::span<const Tensor> rows, std::int64_t keys) const override {
    Tensor a = rows[0], b = rows[1];
    if (!outer_) {
      const std::int64_t each = a.size(3), times = ceil_div(keys, each);
      const Tensor pieces = reshape(tiled(b, times * each), {b.size(0), b.size(1), b.size(2), times, each});
      const Shape flat{b.size(0), b.size(1), b.size(2), times * each};
      return slice(reshape(pieces * unsqueeze(a, 3), flat), 3, 0, keys);
    }
    a = slice(a, 3, 0, ceil_div(keys, b.size(3)));  // the others match no position
    if (a.size(3) == 1) b = slice(b, 3, 0, keys);
    const Tensor products = unsqueeze(a, 4) * unsqueeze(b, 3);  // [B, H, n, a, b]
    const Shape flat{a.size(0), a.size(1), a.size(2), a.size(3) * b.size(3)};
    return slice(reshape(products, flat), 3, 0, keys);
  }

 private:
  bool outer_ = false;
  Tensor w1_, b1_;  // [H, d, df], [H, df]
  Tensor wa_, ba_;  // [H, df, a], [H, a]
  Tensor wb_, bb_;  // [H, df, b], [H, b]
};

// Factorized Random.

class FactorizedRandomLogits : public SynthesizerLogits {
 public:
  FactorizedRandomLogits(const AttentionConfig& config, Initialiser& initialiser) {
    const std::int64_t k = config.options.take_integer("k", 8, 1, most_units);
    const double deviation =
        config.options.take_number("deviation", std::pow(static_cast<double>(k), -0.25), 1e-6, 1e6);
    const Shape shape{config.heads, config.max_length, k};
    add_parameter("R1", r1_, initialiser.normal(shape, deviation));
    add_parameter("R2", r2_, initialiser.normal(shape, deviation));
  }

  LogitFactors factors(const Tensor& x, std::int64_t first) const override {
    return {unsqueeze(slice(r1_, 1, first, x.size(1)), 0),  // [1, H, n, k]
            unsqueeze(slice(r2_, 1, 0, x.size(1)), 0)};     // [1, H, N, k]
  }

 private:
  Tensor r1_, r2_;  // [H, L, k]
};

// Mixture.

class DotProductLogits : public SynthesizerLogits {
 public:
  DotProductLogits(const AttentionConfig& config, Initialiser& initialiser)
      : heads_(config.heads),
        query_(*this, "query", config.width, config.inner_width(), config.bias, initialiser),
        key_(*this, "key", config.width, config.inner_width(), config.bias, initialiser) {}

  LogitFactors factors(const Tensor& x, std::int64_t first) const override {
    const Tensor query = split_heads(query_(slice(x, 1, first, x.size(1))), heads_);  // [B, H, n, dh]
    return {query / std::sqrt(static_cast<double>(query.size(3))), split_heads(key_(x), heads_)};
  }

 private:
  std::int64_t heads_;
  Part<Linear> query_, key_;
};

LogitsPtr make_component(const std::string& name, const AttentionConfig& config, Initialiser& initialiser) {
  struct Kind {
    const char* name;
    MakeLogits make;
  };
  static constexpr Kind kinds[] = {{"dense", make_logits<DenseLogits>},
                                   {"random", make_logits<RandomLogits>},
                                   {"random_fixed", make_logits<FixedRandomLogits>},
                                   {"fact_dense", make_logits<FactorizedDenseLogits>},
                                   {"fact_random", make_logits<FactorizedRandomLogits>},
                                   {"dot", make_logits<DotProductLogits>}};
  std::vector<std::string> names;
  for (const Kind& kind : kinds) {
    if (kind.name == name) return kind.make(config, initialiser);
    names.emplace_back(kind.name);
  }
  fail("the Synthesizer's setting 'components' knows no '", name, "'", suggest_name(name, names));
}

class MixtureLogits : public SynthesizerLogits {
 public:
  MixtureLogits(const AttentionConfig& config, Initialiser& initialiser) : heads_(config.heads) {
    const std::vector<std::string> names = config.options.take_texts("components", {"random", "dot"});
    check(!names.empty(), "the Synthesizer's setting 'components' must name at least one");
    for (const std::string& name : names) {
      check(std::count(names.begin(), names.end(), name) == 1,
            "the Synthesizer's setting 'components' names '", name, "' twice");
      components_.push_back(make_component(name, config, initialiser));
      add_module(name, *components_.back());
    }
    add_parameter("alpha", alpha_,
                  Initialiser::constant({static_cast<std::int64_t>(names.size()), heads_}, 0));
  }

  /// sum_m alpha_m Q_m K_m^T = [alpha_1 Q_1, alpha_2 Q_2, ...] [K_1, K_2, ...]^T.
  LogitFactors factors(const Tensor& x, std::int64_t first) const override {
    std::vector<Tensor> rows, columns;
    for (std::size_t m = 0; m < components_.size(); ++m) {
      const LogitFactors part = components_[m]->factors(x, first);
      if (!part.rows.defined()) continue;
      const auto for_all = [&](const Tensor& y) {
        return expand(y, {x.size(0), heads_, y.size(2), y.size(3)});
      };
      rows.push_back(for_all(part.rows * weight(m)));
      columns.push_back(for_all(part.columns));
    }
    if (rows.empty()) return {};
    return {concat(rows, 3), concat(columns, 3)};
  }

  std::size_t matrix_parts() const override {
    std::size_t count = 0;
    for (const LogitsPtr& component : components_) count += component->matrix_parts();
    return count;
  }

  std::vector<Tensor> matrix_rows(const Tensor& x, std::int64_t first) const override {
    std::vector<Tensor> all;
    for (const LogitsPtr& component : components_)
      for (Tensor& rows : component->matrix_rows(x, first)) all.push_back(std::move(rows));
    return all;
  }

  Tensor matrix(std::span<const Tensor> rows, std::int64_t keys) const override {
    Tensor s;  // [B or 1, H, n, keys]
    for (std::size_t m = 0; m < components_.size(); ++m) {
      const std::size_t own = components_[m]->matrix_parts();
      if (own == 0) continue;
      const Tensor part = components_[m]->matrix(rows.first(own), keys) * weight(m);
      s = s.defined() ? s + part : part;
      rows = rows.subspan(own);
    }
    return s;
  }

 private:
  /// alpha_m of every head, [1, H, 1, 1].
  Tensor weight(std::size_t m) const {
    return reshape(select(softmax(alpha_, 0), 0, static_cast<std::int64_t>(m)), {1, heads_, 1, 1});
  }

  std::int64_t heads_;
  std::vector<LogitsPtr> components_;
  Tensor alpha_;  // [M, H]
};

// The layer that they share.

/// i32 [queries, keys]: key j is allowed for the query at first + i when j <= first + i.
Tensor causal_mask(std::int64_t first, std::int64_t queries, std::int64_t keys, Device device) {
  const Tensor row = Tensor::arange(queries, DType::i32, device).view({queries, 1});
  return less_equal(Tensor::arange(keys, DType::i32, device).view({1, keys}), row + first);
}

class Synthesizer : public Attention {
 public:
  Synthesizer(const AttentionConfig& config, MakeLogits make)
      : Attention(config),
        value_(*this, "value", config.width, config.inner_width(), config.bias, initialiser_),
        output_(*this, "output", config.inner_width(), config.width, config.bias, initialiser_),
        logits_(make(config, initialiser_)) {
    add_module("logits", *logits_);
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    const std::int64_t before = cache.extend_mask(input);
    cache.key = appended(std::move(cache.key), input.x);  // dot-product logits need all inputs
    cache.value = appended(std::move(cache.value), value_(input.x));
    return attend(cache.key, cache.value, cache.mask, before, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    return attend(input.x, value_(input.x), input.mask, 0, context);
  }

 private:
  /// O [B, N - first, d] for the positions from `first` on; x and value [B, N, d].
  Tensor attend(const Tensor& x, const Tensor& value, const Tensor& mask, std::int64_t first,
                Context& context) const {
    check_length(x.size(1));
    const LogitFactors product = logits_->factors(x, first);
    const std::vector<Tensor> rows = logits_->matrix_rows(x, first);
    const bool same_for_all =
        std::all_of(rows.begin(), rows.end(), [](const Tensor& r) { return r.size(0) == 1; });
    const bool drops = context.training && config().dropout > 0;
    if (!product.rows.defined() && same_for_all && x.size(0) > 1 && !mask.defined() && !drops)
      return output_(shared_product(shared_weights(rows, first, x.size(1), context), value));
    return output_(merge_heads(fused(product, rows, split_heads(value, config().heads), mask, context)));
  }

  /// The fused kernel computes the product tile by tile and adds the matrix, so the product itself
  /// needs no N x N memory. A matrix that must be materialised is made for some rows at a time.
  Tensor fused(const LogitFactors& product, const std::vector<Tensor>& rows, const Tensor& value,
               const Tensor& mask, Context& context) const {
    // First the tensors with one row per query, then those that all queries share.
    std::vector<Tensor> inputs = rows;
    if (product.rows.defined()) inputs.insert(inputs.end(), {product.rows, product.columns});
    inputs.push_back(value);
    const std::size_t by_row = rows.size() + (product.rows.defined() ? 1 : 0);
    const std::int64_t keys = value.size(2), queries = inputs[0].size(2), at_once = rows_at_once(rows, keys);
    if (at_once >= queries || context.capture) return part(inputs, keys, mask, context);

    std::vector<Tensor> outputs;
    for (std::int64_t begin = 0; begin < queries; begin += at_once) {
      const std::int64_t end = std::min(begin + at_once, queries);
      const std::int64_t seen = config().causal ? keys - queries + end : keys;
      std::vector<Tensor> own;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        own.push_back(i < by_row ? slice(inputs[i], 2, begin, end) : slice(inputs[i], 2, 0, seen));
      const auto segment = [this, seen, mask, training = context.training](std::span<const Tensor> parts,
                                                                           Random& random) {
        Context inner;
        inner.training = training;
        inner.random = random;
        const Tensor out = part(parts, seen, mask, inner);
        random = inner.random;
        return out;
      };
      outputs.push_back(recompute_in_backward(segment, std::move(own), context.random));
    }
    return concat(outputs, 2);
  }

  /// How many rows of the matrix to hold at once: all of them if the matrix is no larger than the
  /// tensors it is made from; otherwise as many as fit 64 MB of f32, but at least 64 to keep the
  /// kernel busy.
  std::int64_t rows_at_once(const std::vector<Tensor>& rows, std::int64_t keys) const {
    constexpr std::int64_t most_numbers = std::int64_t{1} << 24, fewest_rows = 64;
    if (rows.empty()) return keys;
    std::int64_t batch = 1, given = 0;
    for (const Tensor& one : rows) {
      batch = std::max(batch, one.size(0));
      given += one.count();
    }
    const std::int64_t of_a_row = batch * config().heads * keys;
    if (of_a_row * rows[0].size(2) <= given) return keys;
    return std::max(most_numbers / of_a_row, fewest_rows);
  }

  /// softmax(rows columns^T + matrix) v, [B, H, n, dh], from the inputs that fused() collects.
  Tensor part(std::span<const Tensor> inputs, std::int64_t keys, const Tensor& mask, Context& context) const {
    const std::size_t matrix_parts = logits_->matrix_parts();
    const Tensor& value = inputs.back();
    AttentionOptions options = kernel_options(mask.defined() ? slice(mask, 1, 0, keys) : mask, context);
    options.scale = 1;
    options.causal = config().causal;
    if (matrix_parts > 0) options.bias = logits_->matrix(inputs.first(matrix_parts), keys);
    const auto for_all = [&](const Tensor& x) {
      return expand(contiguous(x), {value.size(0), value.size(1), x.size(2), x.size(3)});
    };
    Tensor rows, columns;
    if (matrix_parts + 1 == inputs.size()) {  // no product: scores are 0 before the matrix is added
      const Tensor zero = Tensor::zeros({1, 1, 1, 1}, value.dtype(), value.device());
      rows = expand(zero, {value.size(0), value.size(1), inputs[0].size(2), 1});
      columns = expand(zero, {value.size(0), value.size(1), keys, 1});
    } else {
      rows = for_all(inputs[matrix_parts]);
      columns = for_all(inputs[matrix_parts + 1]);
    }
    show_weights(context, rows, columns, options);
    return attention(rows, columns, value, options);
  }

  /// softmax(S) [1, H, n, N] over the allowed keys, for an S that all samples share.
  Tensor shared_weights(const std::vector<Tensor>& rows, std::int64_t first, std::int64_t keys,
                        Context& context) const {
    const Tensor s = logits_->matrix(rows, keys);
    const Tensor weights =
        config().causal ? masked_softmax(s, causal_mask(first, s.size(2), keys, s.device())) : softmax(s);
    show(context, "weights", weights);
    return weights;
  }

  /// A [1, H, n, N] times the values of all samples side by side, [B, N, d] -> [B, n, d].
  Tensor shared_product(const Tensor& a, const Tensor& value) const {
    const std::int64_t batch = value.size(0), length = value.size(1), heads = config().heads;
    const std::int64_t dh = config().inner_width() / heads, queries = a.size(2);
    const Tensor by_head = permute(reshape(value, {batch, length, heads, dh}), {2, 1, 0, 3});
    const Tensor product = matmul(squeeze(a, 0), reshape(by_head, {heads, length, batch * dh}));
    const Tensor samples = permute(reshape(product, {heads, queries, batch, dh}), {2, 1, 0, 3});
    return reshape(samples, {batch, queries, config().inner_width()});
  }

  Part<Linear> value_, output_;
  LogitsPtr logits_;
};

template <class Logits>
AttentionVariant synthesizer(std::string name) {
  return {std::move(name),
          {.causal = true,
           .any_length = false,
           .as_heads = true,
           .reason = "synthetic logits are for self-attention"},
          [](const AttentionConfig& config) -> std::unique_ptr<Attention> {
            return std::make_unique<Synthesizer>(config, make_logits<Logits>);
          }};
}

}  // namespace

AttentionVariant synthesizer_dense_variant() {
  return synthesizer<DenseLogits>("synthesizer_dense");
}

AttentionVariant synthesizer_random_variant() {
  return synthesizer<RandomLogits>("synthesizer_random");
}

AttentionVariant synthesizer_random_fixed_variant() {
  return synthesizer<FixedRandomLogits>("synthesizer_random_fixed");
}

AttentionVariant synthesizer_factorized_dense_variant() {
  return synthesizer<FactorizedDenseLogits>("synthesizer_factorized_dense");
}

AttentionVariant synthesizer_factorized_random_variant() {
  return synthesizer<FactorizedRandomLogits>("synthesizer_factorized_random");
}

AttentionVariant synthesizer_mixture_variant() {
  return synthesizer<MixtureLogits>("synthesizer_mixture");
}

}  // namespace heed
