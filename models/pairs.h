#pragma once

#include <span>
#include <vector>

#include "heed/models/classifier.h"
#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"

namespace heed {

/// One text of a pair: its tokens, and how the other text matches each of them. 0 means no match;
/// other numbers are kinds of match below the matcher's `match_kinds`.
struct MatchedTokens {
  Tokens tokens, matches;
};
struct TokenPair {
  MatchedTokens first, second;
};

/// A batch of B pairs. In joint mode a row is a pair, "first second"; with towers, rows 0 to B-1
/// are the first texts and rows B to 2B-1 the second ones.
struct PairBatch {
  PaddedTokens tokens;  ///< [B or 2B, N]
  Tensor matches;       ///< i32 [B or 2B, N]; -1: no match, or padding
  /// i32 [B, N]: 0 first text, 1 second text, -1 padding; undefined for towers.
  Tensor segments;
  Tensor in_first, in_second;  ///< i32 [B, N]: 1 where segments is 0, or 1; undefined for towers
};

/// Classifies pairs of texts. Their vectors u and v [B, d] are compared by difference and product
/// (Mou et al. 2016, arXiv 1512.08422, eq. 5 to 7):
///
///   logits = W2 dropout(relu(W1 [u; v; |u - v|; u * v] + b1)) + b2
///
/// Either one encoder reads each text separately and u and v are its pooled outputs (two towers),
/// or it reads both together, with an embedding of the segment, and u and v are pooled over the
/// positions of each text. Every token gets an additional embedding of its kind of match: from a
/// few thousand pairs, a model could hardly learn that a word also occurs in the other text.
///
/// Parts in addition to those of SequenceEncoder: "matches", "segments" (joint, unless token_types
/// provide them), "compare" (W1), "output" (W2), and "sparse" (SparseLinear) when `sparse_features`
/// is set.
class PairMatcher : public SequenceEncoder {
 public:
  /// Kinds of match: 0 (none); 1 to 4 for words, higher ones for rarer words; 5 to 7 for runs of
  /// one to three tokens within a word that itself has no match.
  static constexpr std::int32_t match_kinds = 8;

  PairMatcher(const TransformerConfig& config, bool joint);

  /// Makes the batch that this model reads. Throws an Error when there are no pairs.
  PairBatch batch(std::span<const TokenPair> pairs) const;
  /// Returns the logits [B, classes] of the encoder alone.
  Tensor deep_logits(const PairBatch& batch, Context& context);
  /// Returns class logits. With `sparse_features` set, `sparse` holds the features of the same
  /// pairs.
  ClassLogits part_logits(const PairBatch& batch, Context& context, const SparseBatch& sparse = {}) {
    return class_logits(deep_logits(batch, context), sparse_.get(), sparse);
  }
  /// Returns the logits of both parts together, [B, classes].
  Tensor logits(const PairBatch& batch, Context& context, const SparseBatch& sparse = {}) {
    return part_logits(batch, context, sparse).together();
  }
  /// The sparse part; null: none.
  SparseLinear* sparse() { return sparse_.get(); }

 private:
  PairMatcher(const TransformerConfig& config, bool joint, Initialiser initialiser);

  bool joint_;
  bool has_types_;  // segments are passed as token types
  Embedding matches_, segments_;
  Linear compare_, output_;
  std::unique_ptr<SparseLinear> sparse_;  // null: none
};

/// A sequence encoder that maps a text to one unit vector: its pooled output divided by its norm.
/// Texts that belong together should point in the same direction (Reimers and Gurevych 2019, arXiv
/// 1908.10084).
class SentenceEncoder : public SequenceEncoder {
 public:
  explicit SentenceEncoder(const TransformerConfig& config);

  /// Returns vectors [B, d] of tokens i32 [B, N], of any length.
  Tensor pooled_outputs(const PaddedTokens& tokens, Context& context);
  /// Returns them divided by their lengths.
  Tensor vectors(const PaddedTokens& tokens, Context& context);
  /// Returns the loss of B pairs, each of which uses the partners of the others as wrong answers
  /// (Henderson et al. 2017, arXiv 1705.00652, section 4.4): sum_i -log softmax_j(scale u_i .
  /// v_j)_i. Rows 0 to B-1 of the tokens are the first texts, rows B to 2B-1 the second ones.
  /// `smoothing` is the share of each target's probability that is spread over all partners. Throws
  /// an Error for an odd number of rows.
  Loss loss(const PaddedTokens& tokens, double scale, double smoothing, Context& context);

 private:
  SentenceEncoder(const TransformerConfig& config, Initialiser initialiser);
};

}  // namespace heed
