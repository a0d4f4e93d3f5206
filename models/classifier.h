#pragma once

#include "heed/models/layers.h"
#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"

namespace heed {

/// A linear classifier over the words of a text and their pairs, to stand beside a deep one (Cheng et al.
/// 2016, arXiv 1606.07792, eq. 3): what word and which two words stand in a text is learned from few texts,
/// the rest is left to the deep part.
///
///   logits = scale / sqrt(n max(1, n / 40)) sum_f V[h(f)],    f over the n words w_i and pairs (w_i, w_{i+1})
///
/// (the further division keeps a step of Adam, which moves every V[h(f)] as far, from learning a long text by
/// heart) with a table V "weight" [buckets, classes] (0) and a hash h that makes collisions rare (arXiv
/// 0902.2206). The scale lets Adam's even steps reach the weights of rare words, as a larger learning rate
/// for V would.
///
/// Words may be marked: by the text they stand in, or by whether another text has them, too. Then a word is a
/// word with its mark, alone and in pairs, and the f are also the marks alone.
class WordPairs : public Module {
 public:
  WordPairs(std::int64_t buckets, std::int64_t classes, double dropout);
  /// ids i32 [B, N] (padding: -1), whose values are read on the processor, and where they have some, marks
  /// i32 [B, N] of 0 and above -> [B, classes]. While training each f is left out with the probability of
  /// dropout.
  Tensor operator()(const Tensor& ids, Context& context, const Tensor& marks = {}) const;

  Tensor weight;

 private:
  double dropout_;
};

/// A sequence encoder whose pooled vector a linear map, the part "output", turns into `classes` logits. Where
/// the configuration has `word_pairs`, the logits of the part "pairs" (WordPairs) are added.
class EncoderClassifier : public SequenceEncoder {
 public:
  explicit EncoderClassifier(const TransformerConfig& config);

  /// Class logits [B, classes] of tokens i32 [B, N].
  Tensor logits(const PaddedTokens& tokens, Context& context);
  /// Cross entropy summed over the samples; what the layers add is in the context.
  Loss loss(const ClassificationBatch& batch, double smoothing, Context& context);

 private:
  EncoderClassifier(const TransformerConfig& config, Initialiser initialiser);

  Linear output_;
  std::unique_ptr<WordPairs> pairs_;  // null: none
};

/// What an image classifier is told beside the shape of its encoder.
struct ImageClassifierConfig : TransformerConfig {
  std::int64_t rows = 0, columns = 0;  ///< of the images
  std::int64_t patch = 0;              ///< rows and columns of a patch, of which both are multiples
  std::int64_t patches() const { return rows / patch * (columns / patch); }
};

/// An encoder that reads the patches of an image as a sequence (Dosovitskiy et al. 2021, arXiv 2010.11929,
/// eq. 1; the patches are pooled, without a class token):
///
///   z_p = x_p E + position_p (learned),    x_p the values of patch p between 0 and 1, row by row
///
/// E is the "embedding" [patch^2, d]. What concerns words (source_vocabulary, max_length, word_pairs,
/// local_width, word_dropout) is left aside.
class ImageClassifier : public EncoderClassifier {
 public:
  /// Throws an Error for a patch that does not divide both rows and columns.
  explicit ImageClassifier(const ImageClassifierConfig& config);
  /// Hidden states [B, patches, d] of images, whose ids i32 [B, rows * columns] are values of 0 to 255.
  Tensor hidden(const PaddedTokens& images, Context& context) override;

 private:
  std::int64_t rows_, columns_, patch_;
};

}  // namespace heed
