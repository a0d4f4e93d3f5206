#include "heed/models/image_classifier.h"

#include "heed/autograd/ops.h"
#include "heed/core/checked.h"
#include "heed/models/token_input.h"

namespace heed {
namespace {

TransformerConfig of_patches(const ImageClassifierConfig& images) {
  check(images.rows > 0 && images.columns > 0 && images.patch > 0 && images.rows % images.patch == 0 &&
            images.columns % images.patch == 0,
        "patches of ", images.patch, " x ", images.patch, " do not fill images of ", images.rows, " x ",
        images.columns, ": both must be multiples of data.patch");
  TransformerConfig config = images;
  config.source_vocabulary = checked_product("a patch", images.patch, images.patch);
  config.max_length = images.patches();
  config.word_pairs = config.local_width = 0;
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
