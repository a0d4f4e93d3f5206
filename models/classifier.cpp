#include "heed/models/classifier.h"

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/tensor.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

constexpr double scale = 20, long_text = 40;

/// Hashes two words (the finaliser of SplitMix64, Steele et al. 2014); 0 means no word.
std::uint64_t mixed(std::uint32_t first, std::uint32_t second) {
  std::uint64_t z = (static_cast<std::uint64_t>(first) << 32 | second) + 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace

WordPairs::WordPairs(std::int64_t buckets, std::int64_t classes, double dropout) : dropout_(dropout) {
  add_parameter("weight", weight, Initialiser::constant({buckets, classes}, 0));
}

Tensor WordPairs::operator()(const Tensor& ids, Context& context, const Tensor& marks) const {
  const std::int64_t batch = ids.size(0), length = ids.size(1);
  const std::vector<std::int32_t> words = ids.to_vector<std::int32_t>();
  const std::vector<std::int32_t> marked = marks.defined() ? marks.to_vector<std::int32_t>() : Tokens();
  const std::size_t kinds = marks.defined() ? 3 : 2;         // f per word: alone, with the next, its mark
  std::vector<std::int32_t> rows(kinds * words.size(), -1);  // -1: none, a row of zeros
  std::vector<float> factors(static_cast<std::size_t>(batch));
  const auto row_of = [&](std::uint32_t first, std::uint32_t second) {
    return static_cast<std::int32_t>(mixed(first, second) % static_cast<std::uint64_t>(weight.size(0)));
  };
  const auto word_at = [&](std::size_t at) {
    const auto word = static_cast<std::uint32_t>(words[at]) + 1;
    return marked.empty() ? word : word + static_cast<std::uint32_t>(marked[at]) * 0x9e3779b1U;
  };
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<std::size_t>(b * length + i);
      if (words[at] < 0) continue;
      rows[kinds * at] = row_of(word_at(at), 0);
      const bool pair = i + 1 < length && words[at + 1] >= 0;
      if (pair) rows[kinds * at + 1] = row_of(word_at(at), word_at(at + 1));
      if (!marked.empty()) rows[kinds * at + 2] = row_of(0, static_cast<std::uint32_t>(marked[at]) + 1);
      count += static_cast<std::int64_t>(kinds) - (pair ? 0 : 1);
    }
    const auto n = static_cast<double>(std::max<std::int64_t>(count, 1));
    factors[static_cast<std::size_t>(b)] =
        static_cast<float>(scale / std::sqrt(n * std::max(1.0, n / long_text)));
  }
  const Device device = ids.device();
  const std::int64_t in_row = static_cast<std::int64_t>(kinds) * length;
  const Tensor picked = embedding(weight, Tensor::from(rows, {batch, in_row}, device));  // [.., classes]
  return sum(drop_tokens(picked, dropout_, context), 1) *
         cast(Tensor::from(factors, {batch, 1}, device), weight.dtype());
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
  if (config.word_pairs == 0) return;
  pairs_ = std::make_unique<WordPairs>(config.word_pairs, config.classes, config.word_dropout);
  add_module("pairs", *pairs_);
}

Tensor EncoderClassifier::logits(const PaddedTokens& tokens, Context& context) {
  const Tensor deep = output_(pooled(hidden(tokens, context), tokens.mask));
  return pairs_ ? deep + (*pairs_)(tokens.ids, context) : deep;
}

Loss EncoderClassifier::loss(const ClassificationBatch& batch, double smoothing, Context& context) {
  const Tensor losses = cross_entropy(logits(batch.input, context), batch.labels, smoothing);
  return {sum(losses), batch.labels.count()};
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
