// Performer, FAVOR+: "Rethinking attention with Performers", Choromanski et al. 2021, arXiv
// 2009.14794, sections 2.2 - 2.4. Positive, orthogonal random features estimate the softmax kernel
// without bias. With x' = x / dh^(1/4) for the queries and keys of a head:
//
//   phi(x) = e^( W x' - |x'|^2 / 2 ) / sqrt(m)
//   E[ phi(q) . phi(k) ] = e^( q . k / sqrt(dh) )                                       (lemma 1)
//   O_i    = phi(q_i) S / (phi(q_i) z)      S = sum_j phi(k_j)^T v_j,  z = sum_j phi(k_j)^T
//   causal: over j <= i,  O = merge(...) Wo
//
// W [m, dh] has rows in orthogonal blocks of dh, each as long as a Gaussian vector (section 2.4).
// All heads share it. Training redraws it every `redraw` batches, from the seed of the layer and
// the number of the batch only, so threads, ranks and resumed runs draw the same. W is a buffer:
// inference uses the last draw, with which the weights were trained.
//
// Stabiliser: exponents are taken relative to the largest of each feature over the keys seen, and
// to the largest of a query (shared/feature_attention.h). All of this cancels in O. The authors'
// code takes them relative to the largest of a query and of all keys, and adds a small number to
// each feature, which biases the estimate; here nothing is added. linear_transformer.cpp describes
// padding, decoding and dropout.
//
// Time N m d + N d^2, memory N (H m + d), parameters 4 d^2.
//
// Settings: "features" m (dh ln dh, section 2.5); "redraw" (1000 batches; 0: never).

#include <algorithm>
#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/feature_attention.h"

namespace heed {
namespace {

class Performer : public FeatureAttention {
 public:
  explicit Performer(const AttentionConfig& config)
      : FeatureAttention(config),
        width_(config.inner_width() / config.heads),
        count_(config.options.take_integer("features", usual_count(width_), 1, most_features)),
        redraw_(config.options.take_integer("redraw", 1000, 0, most_positions)) {
    add_buffer("features", features_, ShapesOnly::active() ? ShapesOnly::tensor({count_, width_}) : drawn(0));
  }

  /// The draw in use when the training pass began.
  void absorb(std::span<const Tensor> values) override {
    check(values.size() == 1 && values[0].shape() == features_.shape(), described("attention"),
          ": these are not the features of a Performer");
    features_ = values[0].to(features_.dtype()).to(features_.device());
  }

 protected:
  FeatureMap feature_map(Context& context) override {
    const Tensor w = features_for(context);
    const double scale = std::pow(static_cast<double>(width_), -0.25);
    return [w, scale](const Tensor& x, const Places&) {
      const Tensor scaled = x * scale;
      const Tensor products = matmul(scaled, transpose(cast(w.to(x.device()), x.dtype()), 0, 1));
      const Tensor half = sum(square(scaled), -1, true) * 0.5;
      return Features{products, (half * 0.0).detach() - half};  // NaN beyond the range of squares
    };
  }

 private:
  static constexpr std::int64_t most_features = 4096;

  static std::int64_t usual_count(std::int64_t width) {
    const auto dh = static_cast<double>(width);
    return std::clamp(static_cast<std::int64_t>(dh * std::log(dh)), std::int64_t{1}, most_features);
  }

  Tensor features_for(Context& context) {
    if (!context.training || redraw_ == 0) return features_;
    const std::uint32_t batch = Random(context.random).next().step;  // they count from 1
    const std::uint32_t before = std::max(batch, 1U) - 1, every = static_cast<std::uint32_t>(redraw_);
    const Tensor w = drawn(before / every);
    if (before % every == 0) context.observe(*this, {w});
    return w;
  }

  /// W [m, dh] of the draw with this number.
  Tensor drawn(std::uint32_t number) const {
    const RandomKey key{config().seed, number, 0xffffffff};  // a stream that no op of a pass has
    Initialiser initialiser((std::uint64_t{random_word(key, 0)} << 32) | random_word(key, 1));
    std::vector<Tensor> blocks;
    for (std::int64_t left = count_; left > 0; left -= width_)
      blocks.push_back(initialiser.orthogonal(std::min(left, width_), width_));
    return concat(blocks, 0) * norm(initialiser.normal({count_, width_}, 1), 1, true);
  }

  std::int64_t width_;  // dh
  std::int64_t count_;  // m
  std::int64_t redraw_;
  Tensor features_;  // W [m, dh]
};

}  // namespace

AttentionVariant performer_variant() {
  return {"performer", {.causal = true, .cross = true, .as_heads = true}, make_layer<Performer>};
}

}  // namespace heed
