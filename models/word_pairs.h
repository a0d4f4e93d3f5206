#pragma once

#include "heed/models/layers.h"

namespace heed {

/// A linear classifier over the words of a text and their pairs, to stand beside a deep one (Cheng et al. 2016, arXiv
/// 1606.07792, eq. 3): what word and which two words stand in a text is learned from few texts, the rest is left to
/// the deep part.
///
///   logits = scale / sqrt(n max(1, n / 40)) sum_f V[h(f)],    f over the n words w_i and pairs (w_i, w_{i+1})
///
/// (the further division keeps a step of Adam, which moves every V[h(f)] as far, from learning a long text by heart)
/// with a table V "weight" [buckets, classes] (0) and a hash h that makes collisions rare (arXiv 0902.2206). The scale
/// lets Adam's even steps reach the weights of rare words, as a larger learning rate for V would.
///
/// Words may be marked: by the text they stand in, or by whether another text has them, too. Then a word is a word with
/// its mark, alone and in pairs, and the f are also the marks alone.
class WordPairs : public Module {
 public:
  WordPairs(std::int64_t buckets, std::int64_t classes, double dropout);
  /// ids i32 [B, N] (padding: -1), whose values are read on the processor, and where they have some, marks i32 [B, N] of
  /// 0 and above -> [B, classes]. While training each f is left out with the probability of dropout.
  Tensor operator()(const Tensor& ids, Context& context, const Tensor& marks = {}) const;

  Tensor weight;

 private:
  double dropout_;
};

}  // namespace heed
