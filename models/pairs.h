#pragma once

#include <span>
#include <vector>

#include "heed/models/classifier.h"
#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"

namespace heed {

/// A text of a pair: its tokens, and for each what the other text has of it: 0 nothing, else a kind of match
/// below the matcher's `match_kinds`.
struct MatchedTokens {
  Tokens tokens, matches;
};
struct TokenPair {
  MatchedTokens first, second;
};

/// A batch of B pairs. Jointly a row is a pair, "first second"; in towers rows 0 to B-1 are the first texts
/// and rows B to 2B-1 the second ones.
struct PairBatch {
  PaddedTokens tokens;  ///< [B or 2B, N]
  Tensor matches;       ///< i32 [B or 2B, N]; -1: no match, and padding
  Tensor segments;      ///< i32 [B, N]: 0 in the first text, 1 in the second, -1 padding; undefined in towers
  Tensor in_first, in_second;  ///< i32 [B, N]: 1 where segments is 0, or 1; undefined in towers
  Tensor marks;  ///< i32 [B or 2B, N]: the text and kind of match of a token, for the part "pairs"
};

/// Tells the class of a pair of texts. Their vectors u and v [B, d] are compared by their difference and
/// product (Mou et al. 2016, arXiv 1512.08422, eq. 5 to 7):
///
///   logits = W2 dropout(relu(W1 [u; v; |u - v|; u * v] + b1)) + b2
///
/// Either one encoder reads each text by itself and u and v are its pooled outputs (two towers), or it reads
/// both at once, with an embedding of the segment, and u and v are pooled over the positions of each text. To
/// every token an embedding of its kind of match is added: that a word stands in the other text, too, is what
/// a model trained from scratch on a few thousand pairs could hardly learn. Parts beside those of
/// SequenceEncoder: "matches", "segments" (joint, unless token_types serve for them), "compare" (W1),
/// "output" (W2). Where the configuration has `word_pairs`, the logits of the part "pairs" (WordPairs) are
/// added: words and pairs of words, each marked by the text it stands in and by its kind of match; in towers
/// the sum over both texts.
class PairMatcher : public SequenceEncoder {
 public:
  /// Kinds of match: 0, none, to 4; a higher one is of a rarer word.
  static constexpr std::int32_t match_kinds = 5;

  PairMatcher(const TransformerConfig& config, bool joint);

  /// The batch that this model reads. Throws Error when there are no pairs.
  PairBatch batch(std::span<const TokenPair> pairs) const;
  /// Class logits [B, classes].
  Tensor logits(const PairBatch& batch, Context& context);

 private:
  PairMatcher(const TransformerConfig& config, bool joint, Initialiser initialiser);

  bool joint_;
  bool has_types_;  // the segments are types of tokens
  Embedding matches_, segments_;
  Linear compare_, output_;
  std::unique_ptr<WordPairs> pairs_;  // null: none
};

/// A sequence encoder that gives a text one vector of length 1: its pooled output, divided by its norm. Texts
/// that belong together are to point the same way (Reimers and Gurevych 2019, arXiv 1908.10084).
class SentenceEncoder : public SequenceEncoder {
 public:
  explicit SentenceEncoder(const TransformerConfig& config);

  /// Unit vectors [B, d] of tokens i32 [B, N].
  Tensor vectors(const PaddedTokens& tokens, Context& context);
  /// The loss of B pairs, each of which has the others' partners for wrong answers (Henderson et al. 2017,
  /// arXiv 1705.00652, section 4.4): sum_i -log softmax_j(scale u_i . v_j)_i, with rows 0 to B-1 of the
  /// tokens the first texts and rows B to 2B-1 the second ones; `smoothing` is the share of each target's
  /// probability that is spread over all partners. Throws an Error for an odd number of rows.
  Loss loss(const PaddedTokens& tokens, double scale, double smoothing, Context& context);

 private:
  SentenceEncoder(const TransformerConfig& config, Initialiser initialiser);
};

}  // namespace heed
