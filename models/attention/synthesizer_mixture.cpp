// Mixture of Synthesizers: "Synthesizer: Rethinking Self-Attention for Transformer Models", Tay, Bahri,
// Metzler, Juan, Zhao and Zheng 2021, arXiv 2005.00743 v3, section 3.5. The logits are a weighted sum of
// those of any set of components m, with learned weights per head; one softmax follows the sum:
//
//   S_h   = sum_m alpha_{m, h} S_{m, h}(X),   alpha = softmax(logits of alpha) over m    (eq. 7)
//   S_dot = Q K^T / sqrt(dh),   Q = split(X Wq),  K = split(X Wk)                        [B, H, N, N]
//   Y_h   = softmax( S_h(X) ) v_h,   O = merge(Y) Wo           (eq. 2, in synthesizer_logits.cpp)
//
// Time and parameters are those of the parts and M H for the M weights per head. The sum of components that are products
// (dense, fact_random, dot) is again one product for the fused kernel; the others add a matrix to its scores, made for
// some rows at a time, and again backward.
//
// Settings: components (of dense, random, random_fixed, fact_dense, fact_random, dot; default random, dot),
// and those of the components, each setting serving every component that has it: hidden, share_w2,
// logit_bias, tiling, a, b, k, deviation. All weights start equal. Departure: the paper prints the dot
// product without its 1 / sqrt(dh), which its code folds into the initial values; the released code has one
// scalar per layer.

#include <algorithm>
#include <cmath>
#include <string>

#include "heed/autograd/ops.h"
#include "heed/core/nearest_name.h"
#include "heed/models/attention/heads.h"
#include "heed/models/attention/synthesizer_logits.h"

namespace heed {
namespace {

class DotProductLogits : public SynthesizerLogits {
 public:
  DotProductLogits(const AttentionConfig& config, Initialiser& initialiser)
      : heads_(config.heads),
        query_(config.width, config.inner_width(), config.bias, initialiser),
        key_(config.width, config.inner_width(), config.bias, initialiser) {
    add_module("query", query_);
    add_module("key", key_);
  }

  LogitFactors factors(const Tensor& x, std::int64_t first) const override {
    const Tensor query = split_heads(query_(slice(x, 1, first, x.size(1))), heads_);  // [B, H, n, dh]
    return {query / std::sqrt(static_cast<double>(query.size(3))), split_heads(key_(x), heads_)};
  }

 private:
  std::int64_t heads_;
  Linear query_, key_;
};

LogitsPtr make_dot_logits(const AttentionConfig& config, Initialiser& initialiser) {
  return std::make_unique<DotProductLogits>(config, initialiser);
}

LogitsPtr make_component(const std::string& name, const AttentionConfig& config, Initialiser& initialiser) {
  struct Kind {
    const char* name;
    LogitsPtr (*make)(const AttentionConfig&, Initialiser&);
  };
  static constexpr Kind kinds[] = {{"dense", make_dense_logits},
                                   {"random", make_random_logits},
                                   {"random_fixed", make_random_fixed_logits},
                                   {"fact_dense", make_factorized_dense_logits},
                                   {"fact_random", make_factorized_random_logits},
                                   {"dot", make_dot_logits}};
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
    for (const LogitsPtr& component : components_) {
      for (Tensor& rows : component->matrix_rows(x, first)) all.push_back(std::move(rows));
    }
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

}  // namespace

LogitsPtr make_mixture_logits(const AttentionConfig& config, Initialiser& initialiser) {
  return std::make_unique<MixtureLogits>(config, initialiser);
}

AttentionVariant synthesizer_mixture_variant() {
  return {"synthesizer_mixture", synthesizer_capabilities(), [](const AttentionConfig& config) {
            return make_synthesizer("synthesizer_mixture", config, make_mixture_logits);
          }};
}

}  // namespace heed
