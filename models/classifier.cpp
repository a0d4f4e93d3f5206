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
                                                 config.vector_features);
}

ClassLogits EncoderClassifier::part_logits(const PaddedTokens& tokens, Context& context,
                                           const SparseBatch& sparse) {
  return class_logits(deep_logits(tokens, context), sparse_.get(), sparse);
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
