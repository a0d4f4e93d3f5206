#pragma once

#include "heed/models/layers.h"
#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"

namespace heed {

/// A linear classifier over the words of a text and their pairs, used beside a deep one (Cheng et al. 2016,
/// arXiv 1606.07792, eq. 3): it learns from few texts which words and word pairs matter, and leaves the
/// rest to the deep part.
///
///   logits = scale / sqrt(n max(1, n / 40)) sum_f V[h(f)],
///   f over the words w_i and pairs (w_i, w_{i+1}), n of them together,
///
/// with a table V "weight" [buckets, classes] (0) and a hash h with few collisions (arXiv 0902.2206).
/// Without the factor max(1, n / 40), a step of Adam, which moves every V[h(f)] equally far, would memorise
/// long texts. The scale lets Adam's even steps reach the weights of rare words, as a larger learning rate
/// for V would.
///
/// Words may be marked, for example by the text that they belong to or by whether another text contains
/// them. Then every word in the formula is combined with its mark, and the marks alone are additional f.
class WordPairs : public Module {
 public:
  WordPairs(std::int64_t buckets, std::int64_t classes, double dropout);
  /// ids i32 [B, N] (padding: -1), read on the host, and optional marks i32 [B, N], 0 or more for each word
  /// -> [B, classes]. In training each f is dropped with probability `dropout`.
  Tensor operator()(const Tensor& ids, Context& context, const Tensor& marks = {}) const;

  Tensor weight;

 private:
  double dropout_;
};

/// A sequence encoder whose pooled vector is mapped to `classes` logits by a linear map, the part "output".
/// When `word_pairs` is set, the logits of the part "pairs" (WordPairs) are added.
class EncoderClassifier : public SequenceEncoder {
 public:
  explicit EncoderClassifier(const TransformerConfig& config);

  /// Class logits [B, classes] of tokens i32 [B, N].
  Tensor logits(const PaddedTokens& tokens, Context& context);
  /// Cross entropy summed over the samples. Auxiliary losses of layers are in the context.
  Loss loss(const ClassificationBatch& batch, double smoothing, Context& context);

 private:
  EncoderClassifier(const TransformerConfig& config, Initialiser initialiser);

  Linear output_;
  std::unique_ptr<WordPairs> pairs_;  // null: none
};

/// What an image classifier needs beside the shape of its encoder.
struct ImageClassifierConfig : TransformerConfig {
  std::int64_t rows = 0, columns = 0;  ///< of the images
  std::int64_t patch = 0;              ///< rows and columns of a patch; divides both
  std::int64_t patches() const { return rows / patch * (columns / patch); }
};

/// An encoder that reads the patches of an image as a sequence (Dosovitskiy et al. 2021, arXiv 2010.11929,
/// eq. 1; the patches are pooled, without a class token):
///
///   z_p = x_p E + position_p (learned),    x_p the values of patch p between 0 and 1, row by row
///
/// E is the "embedding" [patch^2, d]. With rotary, alibi or relative positions there are no position
/// vectors. Settings about words (source_vocabulary, max_length, word_pairs, local_width, word_dropout) are
/// ignored.
class ImageClassifier : public EncoderClassifier {
 public:
  /// Throws an Error when `patch` does not divide both rows and columns.
  explicit ImageClassifier(const ImageClassifierConfig& config);
  /// Hidden states [B, patches, d] of images given as ids i32 [B, rows * columns] from 0 to 255.
  Tensor hidden(const PaddedTokens& images, Context& context) override;

 private:
  std::int64_t rows_, columns_, patch_;
};

}  // namespace heed
