#include "heed/models/classifier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/tensor.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

constexpr std::int64_t most_columns = 16;
constexpr double scale = 10;
using Shares = std::array<double, 2>;
constexpr Shares first_shares = {0.25, 1}, first_shares_of_number = {0.5, 0.5};

/// A cross entropy with its first and second derivatives by the shares.
struct Fit {
  double value = 0;
  Shares gradient = {};
  double deep_twice = 0, mixed = 0, sparse_twice = 0;
};

/// One sample's share in the fit: with p the softmax of z = s_0 deep + s_1 sparse and y the label,
///   dL/ds_i = E_p[part_i] - part_i[y],    d2L/ds_i ds_j = Cov_p(part_i, part_j).
void add_sample(Fit& fit, const Shares& shares, std::span<const float> logits, std::int32_t its_class) {
  const auto label = static_cast<std::size_t>(its_class);
  if (label >= logits.size() / 2) return;  // no class
  const std::size_t classes = logits.size() / 2;
  const std::span<const float> deep = logits.first(classes), sparse = logits.last(classes);
  const auto together = [&](std::size_t c) {
    return shares[0] * static_cast<double>(deep[c]) + shares[1] * static_cast<double>(sparse[c]);
  };
  double largest = together(0), total = 0, a = 0, b = 0, aa = 0, ab = 0, bb = 0;
  for (std::size_t c = 1; c < classes; ++c) largest = std::max(largest, together(c));
  for (std::size_t c = 0; c < classes; ++c) {
    const double p = std::exp(together(c) - largest);
    // relative to the label's, so that large logits cancel before they are squared
    const double x = static_cast<double>(deep[c]) - static_cast<double>(deep[label]);
    const double y = static_cast<double>(sparse[c]) - static_cast<double>(sparse[label]);
    total += p;
    a += p * x;
    b += p * y;
    aa += p * x * x;
    ab += p * x * y;
    bb += p * y * y;
  }
  a /= total;
  b /= total;
  fit.value += std::log(total) + largest - together(label);
  fit.gradient[0] += a;
  fit.gradient[1] += b;
  fit.deep_twice += aa / total - a * a;
  fit.mixed += ab / total - a * b;
  fit.sparse_twice += bb / total - b * b;
}

/// Adds a sample that may have any number of classes: with p_c = 1 / (1 + exp(-z_c)) and y_c 1 or 0
///   dL/ds_i = sum_c (p_c - y_c) part_i[c],    d2L/ds_i ds_j = sum_c p_c (1 - p_c) part_i[c] part_j[c].
void add_sample(Fit& fit, const Shares& shares, std::span<const float> logits,
                const std::vector<std::int32_t>& its_classes) {
  const std::size_t classes = logits.size() / 2;
  for (std::size_t c = 0; c < classes; ++c) {
    const auto a = static_cast<double>(logits[c]), b = static_cast<double>(logits[classes + c]);
    const bool has = std::ranges::count(its_classes, static_cast<std::int32_t>(c)) > 0;
    const double z = shares[0] * a + shares[1] * b, sign = has ? -1 : 1;
    const double p = 1 / (1 + std::exp(-z)), slope = p * (1 - p);
    fit.value += std::max(sign * z, 0.) + std::log1p(std::exp(-std::abs(z)));
    fit.gradient[0] += (p - (has ? 1 : 0)) * a;
    fit.gradient[1] += (p - (has ? 1 : 0)) * b;
    fit.deep_twice += slope * a * a;
    fit.mixed += slope * a * b;
    fit.sparse_twice += slope * b * b;
  }
}

template <class Label>
Fit fit_at(const Shares& shares, std::span<const std::vector<float>> logits, std::span<const Label> labels) {
  Fit fit;
  for (std::size_t i = 0; i < logits.size(); ++i) add_sample(fit, shares, logits[i], labels[i]);
  // The prior: normal distributions around the first shares, with these as deviations.
  for (const std::size_t i : {0, 1}) {
    const double first = first_shares[i], distance = (shares[i] - first) / first;
    fit.value += distance * distance / 2;
    fit.gradient[i] += distance / first;
    (i == 0 ? fit.deep_twice : fit.sparse_twice) += 1 / (first * first);
  }
  return fit;
}

/// Newton's step on the shares; one that is 0 and wants to fall stays there.
Shares newton_step(const Fit& fit, const Shares& shares) {
  const bool deep_stays = shares[0] == 0 && fit.gradient[0] > 0;
  const bool sparse_stays = shares[1] == 0 && fit.gradient[1] > 0;
  const double mixed = deep_stays || sparse_stays ? 0 : fit.mixed;
  const double determinant = fit.deep_twice * fit.sparse_twice - mixed * mixed;
  return {deep_stays ? 0 : (mixed * fit.gradient[1] - fit.sparse_twice * fit.gradient[0]) / determinant,
          sparse_stays ? 0 : (mixed * fit.gradient[0] - fit.deep_twice * fit.gradient[1]) / determinant};
}

/// The losses [B] that `loss_of` gives for logits, summed over the samples; of two parts their mean.
template <class LossOf>
Loss loss_of_parts(const ClassLogits& logits, const Tensor& weights, const LossOf& loss_of) {
  const auto summed = [&](const Tensor& part) {
    const Tensor losses = loss_of(part);
    return sum(weights.defined() ? losses * weights : losses);
  };
  const Tensor deep = summed(logits.deep);
  return {logits.sparse.defined() ? (deep + summed(logits.sparse)) / 2 : deep, logits.deep.size(0)};
}

}  // namespace

SparseLinear::SparseLinear(std::int64_t features, std::int64_t classes, Initialiser& initialiser) {
  add_parameter("weight", weight, Initialiser::constant({features, std::min(classes, most_columns)}, 0));
  const Shares& first = classes == 1 ? first_shares_of_number : first_shares;
  add_buffer("shares", shares, Tensor::from(std::vector<float>{first.begin(), first.end()}, {2}));
  if (classes <= most_columns) return;
  output_ = std::make_unique<Linear>(most_columns, classes, false, initialiser);
  set_hidden_map(output_->weight, false);
  add_module("output", *output_);
}

Tensor SparseLinear::operator()(const SparseBatch& batch) const {
  check(batch.ids.defined(), "the model reads sparse features and tokens, but there are no features");
  const std::int64_t rows = batch.ids.size(0), width = batch.ids.size(1), columns = weight.size(1);
  const Tensor values = reshape(cast(batch.values, weight.dtype()), {rows, 1, width});
  const Tensor total = reshape(matmul(values, embedding(weight, batch.ids)), {rows, columns}) * scale;
  return output_ ? (*output_)(total) : total;
}

template <class Label>
void SparseLinear::fit_to(std::span<const std::vector<float>> logits, std::span<const Label> labels) {
  check(logits.size() == labels.size(), "shares: ", logits.size(), " samples have ", labels.size(),
        " labels");
  Shares found = first_shares;
  Fit fit = fit_at(found, logits, labels);
  for (int step = 0; step < 100; ++step) {
    const Shares direction = newton_step(fit, found);
    bool improved = false;
    for (double length = 1; length > 1e-6 && !improved; length /= 2) {
      const Shares next = {std::max(0., found[0] + length * direction[0]),
                           std::max(0., found[1] + length * direction[1])};
      const Fit its_fit = fit_at(next, logits, labels);
      improved = its_fit.value < fit.value - 1e-9;
      if (improved) std::tie(found, fit) = std::tie(next, its_fit);
    }
    if (!improved) break;
  }
  set_shares(found);
}

void SparseLinear::fit_shares(std::span<const std::vector<float>> logits,
                              std::span<const std::int32_t> labels) {
  fit_to(logits, labels);
}

void SparseLinear::fit_shares(std::span<const std::vector<float>> logits,
                              std::span<const std::vector<std::int32_t>> labels) {
  fit_to(logits, labels);
}

/// Fits by least squares, with the same prior. A negative share becomes 0, and the other is fitted
/// alone.
void SparseLinear::fit_shares(std::span<const std::vector<float>> outputs, std::span<const float> targets) {
  check(outputs.size() == targets.size(), "shares: ", outputs.size(), " samples have ", targets.size(),
        " targets");
  double aa = 0, ab = 0, bb = 0, at = 0, bt = 0;
  const auto add = [&](double a, double b, double target) {
    aa += a * a, ab += a * b, bb += b * b, at += a * target, bt += b * target;
  };
  for (std::size_t i = 0; i < outputs.size(); ++i)
    add(static_cast<double>(outputs[i][0]), static_cast<double>(outputs[i][1]),
        static_cast<double>(targets[i]));
  const auto& [a, b] = first_shares_of_number;
  add(1 / a, 0, 1);
  add(0, 1 / b, 1);
  const double determinant = aa * bb - ab * ab;
  const double deep = (at * bb - bt * ab) / determinant, sparse = (bt * aa - at * ab) / determinant;
  set_shares(deep < 0     ? Shares{0, std::max(0., bt / bb)}
             : sparse < 0 ? Shares{std::max(0., at / aa), 0}
                          : Shares{deep, sparse});
}

void SparseLinear::set_shares(const Shares& found) {
  const Tensor values = Tensor::from(std::vector<double>{found[0], found[1]}, {2});
  shares = values.to(shares.dtype()).to(shares.device());
}

Tensor ClassLogits::together() const {
  if (!sparse.defined()) return deep;
  return deep * slice(shares, 0, 0, 1) + sparse * slice(shares, 0, 1, 2);
}

Loss ClassLogits::loss(const Tensor& labels, double smoothing, const Tensor& weights) const {
  return loss_of_parts(*this, weights,
                       [&](const Tensor& logits) { return cross_entropy(logits, labels, smoothing); });
}

Loss ClassLogits::multilabel_loss(const Tensor& targets, double smoothing, const Tensor& weights) const {
  const Tensor smooth = targets * (1 - smoothing) + smoothing / 2;
  return loss_of_parts(*this, weights, [&](const Tensor& logits) {
    return sum(binary_cross_entropy_with_logits(cast(logits, DType::f32), smooth), -1);
  });
}

ClassLogits class_logits(const Tensor& deep, const SparseLinear* sparse, const SparseBatch& batch) {
  if (!sparse) return {deep};
  return {deep, (*sparse)(batch), sparse->shares};
}

EncoderClassifier::EncoderClassifier(const TransformerConfig& config)
    : EncoderClassifier(
          checked_config(config, "a classifier",
                         {{"source_vocabulary", config.source_vocabulary}, {"classes", config.classes}}),
          Initialiser(static_cast<std::uint64_t>(config.seed))) {}

EncoderClassifier::EncoderClassifier(const TransformerConfig& config, Initialiser initialiser)
    : SequenceEncoder(config, initialiser), output_(config.width, config.classes, true, initialiser) {
  set_hidden_map(output_.weight, false);
  add_pooling(initialiser);
  add_module("output", output_);
  if (config.sparse_features == 0) return;
  sparse_ = std::make_unique<Part<SparseLinear>>(*this, "sparse", config.sparse_features, config.classes,
                                                 initialiser);
}

ClassLogits EncoderClassifier::part_logits(const PaddedTokens& tokens, Context& context,
                                           const SparseBatch& sparse) {
  return class_logits(output_(pooled(hidden(tokens, context), tokens.mask)), sparse_.get(), sparse);
}

Loss EncoderClassifier::loss(const ClassificationBatch& batch, double smoothing, Context& context) {
  return part_logits(batch.input, context, batch.sparse).loss(batch.labels, smoothing);
}

static TransformerConfig of_patches(const ImageClassifierConfig& images) {
  check(images.rows > 0 && images.columns > 0 && images.patch > 0 && images.rows % images.patch == 0 &&
            images.columns % images.patch == 0,
        "patches of ", images.patch, " x ", images.patch, " do not fill images of ", images.rows, " x ",
        images.columns, ": both must be multiples of data.patch");
  TransformerConfig config = images;
  config.source_vocabulary = checked_product("a patch", images.patch, images.patch);
  config.max_length = images.patches();
  config.sparse_features = config.local_width = 0;
  if (has_position_vectors(config) || config.positions == "none") config.positions = "learned";
  return config;
}

ImageClassifier::ImageClassifier(const ImageClassifierConfig& config)
    : EncoderClassifier(of_patches(config)),
      rows_(config.rows),
      columns_(config.columns),
      patch_(config.patch) {}

Tensor ImageClassifier::hidden(const PaddedTokens& images, Context& context) {
  const std::int64_t batch = images.ids.size(0), down = rows_ / patch_, across = columns_ / patch_;
  check(images.ids.size(1) == rows_ * columns_, "the model reads images of ", rows_, " x ", columns_,
        ", but got ", images.ids.size(1), " values");
  const Tensor values = cast(images.ids, dtype()) / 255;
  const Tensor grid = permute(reshape(values, {batch, down, patch_, across, patch_}), {0, 1, 3, 2, 4});
  const Tensor patches = reshape(grid, {batch, down * across, patch_ * patch_});
  return encode(placed(matmul(patches, embedding().weight), context), {}, context);
}

}  // namespace heed
