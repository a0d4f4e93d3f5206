#pragma once

#include "heed/models/encoder_classifier.h"

namespace heed {

/// What an image classifier is told beside the shape of its encoder.
struct ImageClassifierConfig : TransformerConfig {
  std::int64_t rows = 0, columns = 0;  ///< of the images
  std::int64_t patch = 0;              ///< rows and columns of a patch, of which both are multiples
  std::int64_t patches() const { return rows / patch * (columns / patch); }
};

/// An encoder that reads the patches of an image as a sequence (Dosovitskiy et al. 2021, arXiv 2010.11929, eq. 1; the
/// patches are pooled, without a class token):
///
///   z_p = x_p E + position_p (learned),    x_p the values of patch p between 0 and 1, row by row
///
/// E is the "embedding" [patch^2, d]. What concerns words (source_vocabulary, max_length, word_pairs, local_width,
/// word_dropout) is left aside.
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
