#include "heed/models/classifier.h"

#include <algorithm>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/tensor.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

constexpr std::int64_t most_columns = 16;
constexpr double scale = 10;

}  // namespace

SparseLinear::SparseLinear(std::int64_t features, std::int64_t classes, Initialiser& initialiser) {
  add_parameter("weight", weight, Initialiser::constant({features, std::min(classes, most_columns)}, 0));
  if (classes <= most_columns) return;
  output_ = std::make_unique<Linear>(most_columns, classes, false, initialiser);
  add_module("output", *output_);
}

Tensor SparseLinear::operator()(const SparseBatch& batch) const {
  check(batch.ids.defined(), "the model reads sparse features beside the tokens, but there are none");
  const std::int64_t rows = batch.ids.size(0), width = batch.ids.size(1), columns = weight.size(1);
  const Tensor values = reshape(cast(batch.values, weight.dtype()), {rows, 1, width});
  const Tensor total = reshape(matmul(values, embedding(weight, batch.ids)), {rows, columns}) * scale;
  return output_ ? (*output_)(total) : total;
}

Tensor ClassLogits::together() const {
  return sparse.defined() ? deep * share + sparse : deep;
}

Loss ClassLogits::loss(const Tensor& labels, double smoothing, const Tensor& weights) const {
  const auto summed = [&](const Tensor& logits) {
    const Tensor losses = cross_entropy(logits, labels, smoothing);
    return sum(weights.defined() ? losses * weights : losses);
  };
  return {sparse.defined() ? (summed(deep) + summed(sparse)) / 2 : summed(deep), labels.count()};
}

EncoderClassifier::EncoderClassifier(const TransformerConfig& config)
    : EncoderClassifier(
          checked_config(config, "a classifier",
                         {{"source_vocabulary", config.source_vocabulary}, {"classes", config.classes}}),
          Initialiser(static_cast<std::uint64_t>(config.seed))) {}

EncoderClassifier::EncoderClassifier(const TransformerConfig& config, Initialiser initialiser)
    : SequenceEncoder(config, initialiser), output_(config.width, config.classes, true, initialiser) {
  add_pooling(initialiser);
  add_module("output", output_);
  if (config.sparse_features == 0) return;
  sparse_ = std::make_unique<SparseLinear>(config.sparse_features, config.classes, initialiser);
  add_module("sparse", *sparse_);
}

ClassLogits EncoderClassifier::logits_of_parts(const PaddedTokens& tokens, Context& context,
                                               const SparseBatch& sparse) {
  const Tensor deep = output_(pooled(hidden(tokens, context), tokens.mask));
  return {deep, sparse_ ? (*sparse_)(sparse) : Tensor(), config().encoder_share};
}

Loss EncoderClassifier::loss(const ClassificationBatch& batch, double smoothing, Context& context) {
  return logits_of_parts(batch.input, context, batch.sparse).loss(batch.labels, smoothing);
}

namespace {

TransformerConfig of_patches(const ImageClassifierConfig& images) {
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

}  // namespace

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
