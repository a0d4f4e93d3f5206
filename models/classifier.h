#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "heed/models/layers.h"
#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"
#include "heed/models/sparse_linear.h"

namespace heed {

/// Class logits of a model with a deep and a sparse part. Each part learns from its own loss. With
/// a loss of the sum alone, the table would fit the training texts before the encoder has learned
/// from them.
struct ClassLogits {
  Tensor deep;         ///< [B, classes]
  Tensor sparse = {};  ///< [B, classes]; undefined: no sparse part
  Tensor shares = {};  ///< [2], of the sparse part
  /// Returns shares[0] deep + shares[1] sparse, from which the class is predicted; `deep` without a
  /// sparse part.
  Tensor together() const;
  /// The logarithms of the classes' probabilities, [B, classes].
  Tensor log_probabilities() const { return log_softmax(together(), -1); }
  /// [B, 2 classes]: the deep logits and then the sparse ones.
  Tensor side_by_side() const { return concat({deep, sparse}, -1); }
  /// Returns the cross entropy with labels i32 [B], times `weights` f32 [B] where defined, summed
  /// over the samples. With two parts it is the mean of their losses.
  Loss loss(const Tensor& labels, double smoothing, const Tensor& weights = {}) const;

  // The functions below are for samples with any number of classes: each class is a yes-no
  // decision.

  /// The logarithm of the probability that a sample has a class, -softplus(-logit), [B, classes].
  Tensor multilabel_log_probabilities() const { return -softplus(-together()); }
  /// Returns the binary cross entropy with targets f32 [B, classes] (1 where the sample has the
  /// class, otherwise 0), summed over classes and samples. `smoothing` and `weights` are those of
  /// loss().
  Loss multilabel_loss(const Tensor& targets, double smoothing, const Tensor& weights = {}) const;
};

/// Combines deep logits with those of a sparse part; null: there is no sparse part.
ClassLogits class_logits(const Tensor& deep, const SparseLinear* sparse, const SparseBatch& batch);

/// A sequence encoder whose pooled vector is mapped to `classes` logits by a linear map, the part
/// "output". When `sparse_features` is set, it has a sparse part too, "sparse" (SparseLinear).
class EncoderClassifier : public SequenceEncoder {
 public:
  explicit EncoderClassifier(const TransformerConfig& config);

  /// Logits [B, classes] of the encoder alone.
  Tensor deep_logits(const PaddedTokens& tokens, Context& context) {
    return output_(pooled(hidden(tokens, context), tokens.mask));
  }
  /// Class logits of tokens i32 [B, N]. With `sparse_features` set, `sparse` holds the features of
  /// the same texts.
  ClassLogits part_logits(const PaddedTokens& tokens, Context& context, const SparseBatch& sparse = {});
  /// Returns the logits of both parts together, [B, classes].
  Tensor logits(const PaddedTokens& tokens, Context& context, const SparseBatch& sparse = {}) {
    return part_logits(tokens, context, sparse).together();
  }
  /// The sparse part; null: none.
  SparseLinear* sparse() { return sparse_.get(); }
  /// Returns the cross entropy summed over the samples. Auxiliary losses of layers are in the
  /// context.
  Loss loss(const ClassificationBatch& batch, double smoothing, Context& context);

 private:
  EncoderClassifier(const TransformerConfig& config, Initialiser initialiser);

  Linear output_;
  std::unique_ptr<SparseLinear> sparse_;  // null: none
};

/// The configuration of an image classifier: that of its encoder and the sizes of images and
/// patches.
struct ImageClassifierConfig : TransformerConfig {
  std::int64_t rows = 0, columns = 0;  ///< of the images
  std::int64_t patch = 0;              ///< rows and columns of a patch; divides both
  std::int64_t patches() const { return rows / patch * (columns / patch); }
};

/// An encoder that reads the patches of an image as a sequence (Dosovitskiy et al. 2021, arXiv
/// 2010.11929, eq. 1; the patches are pooled, without a class token):
///
///   z_p = x_p E + position_p (learned),    x_p the values of patch p between 0 and 1, row by row
///
/// E is the "embedding" [patch^2, d]. With rotary, alibi or relative positions there are no
/// position vectors. Settings about words (source_vocabulary, max_length, sparse_features,
/// local_width, word_dropout) are ignored.
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
